"""The machine as data: which processors this process may use, their caches, and the memory left.

On Linux everything is read from ``/proc`` and ``/sys`` below a root, so that tests can hand in the files of machines
they do not have. On macOS, which neither pins threads nor has control groups, ``sysctl`` gives the counts.
"""

from __future__ import annotations

import math
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ultrafast.engine import cgroup


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core that this process may use."""

    cpu: int  # the id to pin to: its lowest hardware thread that is allowed and online
    socket: int


@dataclass(frozen=True, slots=True)
class Topology:
    """What this process may use of the machine. Sizes are in bytes, 0 where the system does not say."""

    cpu_model: str
    cores: tuple[Core, ...]  # by socket, then by cpu
    cpu_quota: float | None  # CPUs' worth of time allowed by control groups; None: no limit
    l1d_bytes: int  # per core
    l2_bytes: int  # per core, or per cluster that shares one
    l3_bytes: int  # all that `cores` reach together
    memory_bytes: int  # available to new allocations
    can_pin: bool


def detect(root: Path = Path("/")) -> Topology:
    """Reads the machine; ``root`` stands for ``/``."""
    if sys.platform == "darwin" and root == Path("/"):
        return _detect_macos()
    cores = _cores(root)
    caches = {level: _cache_bytes(root, cores, level) for level in (1, 2, 3)}
    available = _fields(root / "proc/meminfo").get("MemAvailable", "0 kB")
    memory = int(available.split()[0]) * 1024
    left = cgroup.memory_left(root)
    return Topology(
        cpu_model=_fields(root / "proc/cpuinfo").get("model name") or platform.machine(),
        cores=cores,
        cpu_quota=cgroup.cpu_quota(root),
        l1d_bytes=max(caches[1].values(), default=0),
        l2_bytes=max(caches[2].values(), default=0),
        l3_bytes=sum(caches[3].values()),
        memory_bytes=memory if left is None else min(memory, left),
        can_pin=True,
    )


def default_threads(topology: Topology) -> list[int]:
    """The cpu ids to run one worker on each: one per physical core, and no more than the quota pays for.

    Rounded down, because a worker that is throttled in the middle of a step holds up all others.
    """
    count = len(topology.cores)
    if topology.cpu_quota is not None:
        count = min(count, max(1, math.floor(topology.cpu_quota)))
    return [core.cpu for core in topology.cores[:count]]


def _cores(root: Path) -> tuple[Core, ...]:
    cpus = root / "sys/devices/system/cpu"
    allowed = _cpu_list(_fields(root / "proc/self/status")["Cpus_allowed_list"])
    online = _text(cpus / "online")
    usable = allowed & _cpu_list(online) if online else allowed
    cores: dict[frozenset[int], Core] = {}
    for cpu in sorted(usable or allowed):
        topology = cpus / f"cpu{cpu}/topology"
        siblings = _text(topology / "core_cpus_list") or _text(topology / "thread_siblings_list") or str(cpu)
        socket = int(_text(topology / "physical_package_id") or 0)
        cores.setdefault(frozenset(_cpu_list(siblings)), Core(cpu, socket))
    return tuple(sorted(cores.values(), key=lambda core: (core.socket, core.cpu)))


def _cache_bytes(root: Path, cores: tuple[Core, ...], level: int) -> dict[str, int]:
    """Size of each distinct data cache of that level that the cores reach, by the list of cpus sharing it."""
    sizes = {}
    for core in cores:
        for index in (root / f"sys/devices/system/cpu/cpu{core.cpu}/cache").glob("index*"):
            if _text(index / "level") == str(level) and _text(index / "type") != "Instruction":
                sizes[_text(index / "shared_cpu_list")] = _size(_text(index / "size"))
    return sizes


def _size(text: str) -> int:
    """Bytes of a kernel size such as ``32K`` or ``2M``."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text.rstrip("KMG") or 0) * units.get(text[-1:], 1)


def _cpu_list(text: str) -> set[int]:
    """The cpus of a kernel list such as ``0-3,8,10-11``."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _fields(path: Path) -> dict[str, str]:
    """``name: value`` lines of a file under /proc; the first of each name."""
    fields: dict[str, str] = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # not every kernel or virtual machine shows every file


def _detect_macos() -> Topology:
    def sysctl(*names: str) -> str:
        for name in names:
            answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
            if answer.returncode == 0 and answer.stdout.strip():
                return answer.stdout.strip()
        return "0"

    # perflevel0 are the performance cores: a step waits for its slowest worker, so the efficiency cores stay out.
    count = int(sysctl("hw.perflevel0.physicalcpu", "hw.physicalcpu")) or 1
    return Topology(
        cpu_model=sysctl("machdep.cpu.brand_string"),
        cores=tuple(Core(cpu, 0) for cpu in range(count)),
        cpu_quota=None,
        l1d_bytes=int(sysctl("hw.perflevel0.l1dcachesize", "hw.l1dcachesize")),
        l2_bytes=int(sysctl("hw.perflevel0.l2cachesize", "hw.l2cachesize")),
        l3_bytes=int(sysctl("hw.l3cachesize")),
        memory_bytes=int(sysctl("hw.memsize")),
        can_pin=False,
    )
