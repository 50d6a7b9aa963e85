"""Fake `/proc` and `/sys` trees of machines at hand nowhere, and the one the tests run on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ultrafast.engine.topology import default_threads, detect

GIB = 1 << 30
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


class Machine:
    """Writes the files that the kernel of a machine would show.

    Hardware thread `t` of core `c` of socket `s` is cpu `s * cores + c + t * sockets * cores`, as on most servers.
    """

    def __init__(self, root: Path, *, sockets: int = 1, cores: int, threads: int = 1) -> None:
        self.root = root
        total = sockets * cores * threads
        self.write("proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {32 * GIB // 1024} kB\n")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU @ 3 GHz\n\nprocessor\t: 1\n")
        self.allow(f"0-{total - 1}")
        self.write("sys/devices/system/cpu/online", f"0-{total - 1}\n")
        for cpu in range(total):
            core = cpu % (sockets * cores)
            siblings = ",".join(str(core + t * sockets * cores) for t in range(threads))
            self.cpu(cpu, "topology/core_cpus_list", siblings)
            self.cpu(cpu, "topology/physical_package_id", str(core // cores))
            self.cache(cpu, 0, 1, "Data", "48K", siblings)
            self.cache(cpu, 1, 1, "Instruction", "64K", siblings)
            self.cache(cpu, 2, 2, "Unified", "2048K", siblings)
            self.cache(cpu, 3, 3, "Unified", "32M", f"socket-{core // cores}")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cpu(self, cpu: int, path: str, text: str) -> None:
        self.write(f"sys/devices/system/cpu/cpu{cpu}/{path}", text + "\n")

    def cache(self, cpu: int, index: int, level: int, type: str, size: str, shared: str) -> None:
        for name, text in {"level": str(level), "type": type, "size": size, "shared_cpu_list": shared}.items():
            self.cpu(cpu, f"cache/index{index}/{name}", text)

    def allow(self, cpus: str) -> None:
        self.write("proc/self/status", f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n")

    def cgroup(self, own: str, mounts: str, files: dict[str, str]) -> None:
        self.write("proc/self/cgroup", own)
        self.write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/root rw\n" + mounts)
        for path, text in files.items():
            self.write(f"sys/fs/cgroup/{path}", text + "\n")

    def threads(self) -> list[int]:
        return default_threads(detect(self.root))


def test_one_thread_per_physical_core(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=4, threads=2)
    assert machine.threads() == [0, 1, 2, 3]
    topology = detect(tmp_path)
    assert topology.cpu_model == "Test CPU @ 3 GHz"
    assert (topology.l1d_bytes, topology.l2_bytes, topology.l3_bytes) == (48 << 10, 2 << 20, 32 << 20)
    assert topology.memory_bytes == 32 * GIB
    assert topology.cpu_quota is None


def test_allowed_set_on_the_second_socket_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path, sockets=2, cores=4, threads=2)
    assert detect(tmp_path).l3_bytes == 64 << 20
    machine.allow("4-7,12-15")
    assert machine.threads() == [4, 5, 6, 7]
    assert {core.socket for core in detect(tmp_path).cores} == {1}
    assert detect(tmp_path).l3_bytes == 32 << 20


def test_only_the_second_hardware_thread_allowed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=4, threads=2)
    machine.allow("2,4-6")
    assert machine.threads() == [2, 4, 5]  # 6 shares its core with 2


def test_older_kernels_name_the_siblings_file_otherwise(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=2, threads=2)
    for cpu in range(4):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        (folder / "core_cpus_list").rename(folder / "thread_siblings_list")
    assert machine.threads() == [0, 1]


def test_offline_cpus_are_not_used(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=4)
    machine.write("sys/devices/system/cpu/online", "0,2-3\n")
    assert machine.threads() == [0, 2, 3]


@pytest.mark.parametrize(
    ("cpu_max", "workers"),
    [
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("150000 100000", 1),
        ("250000 100000", 2),
        ("800000 100000", 8),
        ("max 100000", 64),
    ],
)
def test_v2_quota_on_a_large_host(tmp_path: Path, cpu_max: str, workers: int) -> None:
    machine = Machine(tmp_path, cores=64, threads=2)
    machine.cgroup("0::/\n", V2_MOUNT, {"cpu.max": cpu_max})
    assert machine.threads() == list(range(workers))


def test_the_quota_of_an_ancestor_holds(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=16)
    files = {"pods/one/cpu.max": "max 100000", "pods/cpu.max": "300000 100000"}
    machine.cgroup("0::/pods/one\n", V2_MOUNT, files)
    assert machine.threads() == [0, 1, 2]
    machine.cgroup("0::/pods/one\n", V2_MOUNT, {"pods/one/cpu.max": "200000 100000"})
    assert machine.threads() == [0, 1]
    assert detect(tmp_path).cpu_quota == 2.0


def test_another_group_is_no_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=4)
    machine.cgroup("0::/pods/one\n", V2_MOUNT, {"pods/two/cpu.max": "100000 100000"})
    assert machine.threads() == [0, 1, 2, 3]


def test_v1_quota_and_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=8)
    files = {
        "cpu,cpuacct/box/cpu.cfs_quota_us": "200000",
        "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/box/memory.limit_in_bytes": str(2 * GIB),
        "memory/box/memory.usage_in_bytes": str(GIB),
        "memory/box/memory.stat": f"cache 5\ntotal_inactive_file {GIB // 2}",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/memory.usage_in_bytes": str(4 * GIB),
    }
    machine.cgroup("5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n", V1_MOUNTS, files)
    assert machine.threads() == [0, 1]
    assert detect(tmp_path).memory_bytes == GIB + GIB // 2


def test_a_container_sees_the_path_of_its_host(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=8)
    mount = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    machine.cgroup("0::/docker/abc\n", mount, {"cpu.max": "300000 100000"})
    assert machine.threads() == [0, 1, 2]
    machine.cgroup("0::/elsewhere\n", mount, {"cpu.max": "400000 100000"})
    assert machine.threads() == [0, 1, 2, 3]


def test_v2_memory_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=1)
    files = {"memory.max": str(GIB), "memory.current": str(GIB), "memory.stat": f"anon 1\ninactive_file {GIB // 4}"}
    machine.cgroup("0::/\n", V2_MOUNT, files)
    assert detect(tmp_path).memory_bytes == GIB // 4


def test_files_that_a_virtual_machine_hides(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "bare", cores=1)
    machine.allow("0-1")
    machine.write("sys/devices/system/cpu/online", "0-1\n")
    assert machine.threads() == [0, 1]  # cpu 1 shows neither siblings nor caches: a core of its own


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")
def test_this_machine() -> None:
    topology = detect()
    threads = default_threads(topology)
    assert threads
    assert set(threads) <= os.sched_getaffinity(0)
    assert topology.memory_bytes > 0
    assert topology.cpu_model
