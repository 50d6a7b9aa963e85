"""`ultrafast bench exam`: a question set answered end to end against the clock."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ultrafast.cli.endpoint_options import (
    DEFAULT_BASE_URL,
    DEFAULT_KEY_ENV,
    ApiOption,
    AskedModel,
    BaseUrl,
    KeyEnv,
    PriceInput,
    PriceOutput,
    Tiers,
    endpoints,
    prices_of,
)
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from ultrafast.bench.client.endpoint import Endpoint
    from ultrafast.bench.exam.journal import Journal
    from ultrafast.bench.exam.setup import Setup


def exam(
    question_set: Annotated[
        str,
        typer.Option(
            "--set",
            metavar="SET",
            help="sample (ours, small, easy), a .jsonl, .json, .csv or .parquet file with the fields of HLE or GDPval, "
            "or from the hub: hle, hle-rolling, gdpval, hf:ORG/NAME/FILE, each perhaps with @REVISION.",
        ),
    ] = "sample",
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many, drawn by the seed; default: all.")] = None,
    images: Annotated[
        Literal["send", "skip"], typer.Option(help="Questions with an image: send it, or leave them out.")
    ] = "skip",
    url: BaseUrl = DEFAULT_BASE_URL,
    model: AskedModel = None,
    tier: Tiers = None,
    api: ApiOption = "chat",
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Requests in flight, over all tiers.")] = 1,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Limit of an answer with its reasoning; HLE's authors use 8192.")
    ] = 2048,
    reasoning_effort: Annotated[
        str | None, typer.Option(metavar="EFFORT", help="As the API calls it: low, medium, high…")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Default: the server's.")] = None,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which a call counts as never answered.")
    ] = 3600.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of questions and tiers; sent for sampling, too.")] = 0,
    journal_file: Annotated[
        Path, typer.Option("--journal", metavar="FILE", help="Where answers go; an unfinished one is gone on with.")
    ] = Path("exam.jsonl"),
    judge_url: Annotated[
        str | None, typer.Option(help="Have exact answers judged by a model at this API; default: graded here.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="The model there; default: the first it lists.")] = None,
    judge_key_env: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the API key of the judge.")
    ] = DEFAULT_KEY_ENV,
    api_key_env: KeyEnv = DEFAULT_KEY_ENV,
    price_input: PriceInput = None,
    price_output: PriceOutput = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the results to this file.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a report with plots to this file.")
    ] = None,
    answers_file: Annotated[
        Path | None, typer.Option("--answers", metavar="FILE", help="Also write every graded answer, as JSON lines.")
    ] = None,
) -> None:
    """Answer a question set end to end: wall time, accuracy, calibration, tokens and cost, by tier.

    Several tiers take turns, question by question. Every answer is in the journal at once: after a kill or Ctrl-C
    (exit code 130) the same command goes on, and asks nothing twice but what was under way.

    Example: ultrafast bench exam --tier default --tier ultrafast --html exam.html
    """
    from ultrafast.bench.exam.journal import Journal
    from ultrafast.bench.exam.sets import load
    from ultrafast.bench.exam.setup import Setup

    files = _Files(json_file, html_file, answers_file)
    files.check()
    prices = prices_of(price_input, price_output)
    chosen = load(question_set).chosen(images=images == "send", limit=limit, seed=seed)
    arms = asyncio.run(endpoints(url, model, tier, api, api_key_env, prices))
    judge = None
    if judge_url or judge_model:
        judge = asyncio.run(endpoints(judge_url or url, judge_model, None, "chat", judge_key_env))[0]
    setup = Setup(
        chosen,
        arms,
        concurrency=concurrency,
        max_tokens=max_tokens,
        reasoning_effort=reasoning_effort,
        temperature=temperature,
        timeout_s=timeout,
        seed=seed,
        images=images == "send",
    )
    with Journal(journal_file, setup.facts()) as journal:
        _announce(setup, journal)
        is_whole = _answer(setup, journal, judge)
        _tell(setup, journal, judge if is_whole else None, files)
    if not is_whole:
        print(f"{journal_file} has what is answered; the same command goes on from there", file=sys.stderr)
        raise typer.Exit(130)


@dataclass(frozen=True, slots=True)
class _Files:
    """What to write, beside the table."""

    json: Path | None
    html: Path | None
    answers: Path | None

    def check(self) -> None:
        """Before a long run, rather than after it.

        Raises:
            ConfigError: one cannot be written.
        """
        for file in filter(None, (self.json, self.html, self.answers)):
            if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
                raise ConfigError(f"{file}: cannot be written")


def _announce(setup: Setup, journal: Journal) -> None:
    from ultrafast.bench.exam.about import notes_of, title_of

    lines = [title_of(setup), *notes_of(setup), f"{setup.concurrency} in flight"]
    total = len(setup.questions.questions) * len(setup.endpoints)
    if len(journal.answers) == total:
        lines.append(f"every answer is in {journal.path} already, and none is asked for; another --journal asks anew")
    elif journal.answers:
        lines.append(f"going on in {journal.path}: {len(journal.answers)} of {total} answers are there")
    print("\n".join(lines), file=sys.stderr)


def _answer(setup: Setup, journal: Journal, judge: Endpoint | None) -> bool:
    """Ask and judge; whether it came to its end."""
    from ultrafast.bench.exam.judge import judge_all
    from ultrafast.bench.exam.run import ask_all
    from ultrafast.cli.progress import step_bar

    with step_bar() as show:
        try:
            asyncio.run(ask_all(setup, journal, show))
            if judge is not None:
                work = judge_all(setup.questions.questions, judge, journal, show, concurrency=setup.concurrency)
                asyncio.run(work)
        except KeyboardInterrupt:
            return False
    return True


def _tell(setup: Setup, journal: Journal, judge: Endpoint | None, files: _Files) -> None:
    from ultrafast.bench.exam.judge import name_of
    from ultrafast.bench.exam.report import json_lines, lines_of, text_of, to_json
    from ultrafast.bench.exam.results import results_of
    from ultrafast.bench.records import document, write_document

    judge_name = name_of(judge) if judge else None
    results = results_of(setup, journal, judge_name)
    print(text_of(setup, results))
    doc = document("exam", {**setup.facts(), "judge": judge_name}, to_json(setup, results))
    if files.json:
        write_document(files.json, doc)
    if files.html:
        from ultrafast.bench.exam.page import page_of

        page_of(setup, results, doc).write(files.html)
    if files.answers:
        _write(files.answers, json_lines(list(lines_of(results))))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
