"""Workflows that are programs: a shell command, or a Python function in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from ultrafast.bench.ab.run.records import Ended
from ultrafast.bench.ab.run.workflow import OUTCOME, Job, Result, Said, parse_outcome
from ultrafast.errors import ConfigError

_TAIL = 300  # characters of standard error that a record keeps


class Command:
    """A shell command. Its standard input is the task's JSON line; exit status 0 is success, unless it says otherwise
    in the file that ``ULTRAFAST_OUTCOME`` names, or in a last line of output that is a JSON object."""

    def __init__(self, command: str) -> None:
        self._argv = ("/bin/sh", "-c", command)

    async def __call__(self, job: Job) -> Result:
        return await _run(self._argv, job, job.environment())


class Function:
    """A Python function, ``module:function``, called with a `worker.Context` in a fresh process, in which the clock
    starts once it is imported. What it returns is the outcome: nothing, whether it succeeded, or a dictionary.

    Raises:
        ConfigError: this is no such name.
    """

    def __init__(self, name: str) -> None:
        module, colon, function = name.partition(":")
        if not (module and colon and all(part.isidentifier() for part in [*module.split("."), function])):
            raise ConfigError(f"--callable {name!r}: write module:function, such as my_agent:solve")
        self._argv = (sys.executable, "-m", "ultrafast.bench.ab.run.worker", name)

    async def __call__(self, job: Job) -> Result:
        paths = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return await _run(self._argv, job, job.environment() | {"PYTHONPATH": os.pathsep.join(paths)})


async def check(command: str, job: Job, output: bytes) -> bool:
    """Whether the user's check, with the workflow's output as its input and the same variables, ends with status 0.

    One that takes longer than the workflow may is no success.
    """
    with tempfile.TemporaryDirectory(prefix="ultrafast-ab-") as folder:
        env = job.environment() | {OUTCOME: str(Path(folder) / "outcome.json")}
        status, _, _ = await _to_the_end(("/bin/sh", "-c", command), env, output, job.timeout_s)
    return status == 0


async def _run(argv: tuple[str, ...], job: Job, env: dict[str, str]) -> Result:
    with tempfile.TemporaryDirectory(prefix="ultrafast-ab-") as folder:
        outcome = Path(folder) / "outcome.json"
        start = time.monotonic()
        status, output, complaint = await _to_the_end(
            argv, env | {OUTCOME: str(outcome)}, msgspec.json.encode(job.task.data) + b"\n", job.timeout_s
        )
        wall_s = time.monotonic() - start
        if status is None:
            return Result(start, wall_s, "timeout", error=f"stopped after {job.timeout_s:g} s", output=output)
        ended: Ended = "done" if status == 0 else "failed"
        error = (complaint.decode("utf-8", "replace").strip()[-_TAIL:] or f"exit status {status}") if status else None
        said = Said()
        try:
            said = _outcome(outcome, output)
        except ValueError as problem:
            ended, error = "failed", str(problem)[:_TAIL]
    if said.seconds is not None:
        start, wall_s = start + wall_s - said.seconds, said.seconds
    return Result(start, wall_s, ended, status, error, said.success, said.outcomes, output)


def _outcome(file: Path, output: bytes) -> Said:
    """From the file if there is one, else from the last line of output if it is a JSON object."""
    if file.is_file():
        return parse_outcome(file.read_bytes())
    last = output.rstrip().rpartition(b"\n")[2]
    return parse_outcome(last) if last.startswith(b"{") and last.endswith(b"}") else Said()


async def _to_the_end(
    argv: tuple[str, ...], env: dict[str, str], given: bytes, timeout_s: float
) -> tuple[int | None, bytes, bytes]:
    """Exit status (``None``: it took too long), output and complaints; whatever it started ends with it."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # so that it can be ended as a group, and Ctrl-C is ours to handle
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, complaint = await process.communicate(given)
        return process.returncode, output, complaint
    except TimeoutError:
        return None, b"", b""
    finally:
        _end_group(process.pid)
        await process.wait()


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of it has ended by itself
        os.killpg(pid, signal.SIGKILL)
