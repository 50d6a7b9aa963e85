"""What the control groups (v1 or v2) of this process allow: processor time and memory.

A limit set anywhere between the process's own group and the mount point holds, so every group on that path is read
and the tightest one wins. Files that are missing or unreadable set no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that this process may use per period, or ``None`` when nothing limits it."""
    quotas = []
    for group in _groups(root, "cpu"):
        quota, period = _numbers(group / "cpu.max") or (None, None)  # v2: "200000 100000" or "max 100000"
        if quota is None:
            quota = _number(group / "cpu.cfs_quota_us")  # v1: -1 is no limit
            period = _number(group / "cpu.cfs_period_us")
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_left(root: Path) -> int | None:
    """Bytes that this process may still allocate, or ``None`` when nothing limits it.

    Cached file pages count as usage but are given back on demand, so the inactive ones are taken off.
    """
    left = []
    for group in _groups(root, "memory"):
        limit, usage = _number(group / "memory.max"), _number(group / "memory.current")
        if limit is None:
            limit, usage = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
        if limit is not None and usage is not None:
            left.append(max(0, limit - max(0, usage - _inactive_file(group))))
    return min(left, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The process's own group and its ancestors up to the mount point, for every hierarchy with that controller."""
    paths = dict(_own_paths(root))
    for mount_root, mount_point, controllers in _mounts(root):
        name = "" if controllers is None else controller
        if name not in paths or (controllers is not None and controller not in controllers):
            continue
        top = root / mount_point.relative_to("/")
        try:
            below = PurePosixPath(paths[name]).relative_to(mount_root)
        except ValueError:
            below = PurePosixPath()  # the path is as the host sees it; inside the container the mount is the group
        if ".." not in below.parts:
            yield from (top / part for part in (below, *below.parents))


def _own_paths(root: Path) -> Iterator[tuple[str, str]]:
    """Pairs of controller and path; the controller of the v2 hierarchy is the empty string."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(root: Path) -> Iterator[tuple[str, PurePosixPath, list[str] | None]]:
    """Root inside the hierarchy, mount point and controllers (``None``: v2) of each control group mount.

    A line of mountinfo: ``36 31 0:33 ROOT MOUNT_POINT options… - TYPE SOURCE rw,cpu,cpuacct`` (proc_pid_mountinfo(5)).
    """
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, *_, options = after.split()
        if kind in ("cgroup", "cgroup2"):
            mount_root, mount_point = before.split()[3:5]
            yield mount_root, PurePosixPath(mount_point), None if kind == "cgroup2" else options.split(",")


def _inactive_file(group: Path) -> int:
    stat = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat"))
    return int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    numbers = _numbers(path)
    return numbers[0] if numbers else None


def _numbers(path: Path) -> tuple[int, ...] | None:
    """The integers in a file, or ``None`` when it is missing or says ``max`` (no limit)."""
    words = " ".join(_lines(path)).split()
    return tuple(map(int, words)) if words and "max" not in words else None
