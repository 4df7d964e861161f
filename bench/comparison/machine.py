"""Description of the machine and its load by other processes. Linux only."""
import os
import platform
import resource


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def processor():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def flags():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            return line.split(":", 1)[1].split()
    return []


def is_amd():
    return "AuthenticAMD" in read("/proc/cpuinfo")


def groups(own, root):
    """Folders below `root` of the control groups of /proc/self/cgroup (`own`) and of those around them: version 2 and version 1."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for top in (root, f"{root}/unified") if not controllers else (f"{root}/{controllers}",):
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield "/".join([top, *parts[:depth]])


def cores_of_quota(text):
    """Cores that cpu.max allows, from "QUOTA PERIOD" in microseconds; None without a limit."""
    words = text.split()
    if len(words) != 2 or words[0] in ("max", "-1") or float(words[1]) <= 0:
        return None
    return float(words[0]) / float(words[1])


def core_limit(own=None, root="/sys/fs/cgroup"):
    """The tightest limit of cores of any control group around this process; None without one."""
    limits = []
    for group in groups(read("/proc/self/cgroup") if own is None else own, root):
        limits.append(cores_of_quota(read(group + "/cpu.max")))
        limits.append(cores_of_quota(read(group + "/cpu.cfs_quota_us").strip() + " " + read(group + "/cpu.cfs_period_us").strip()))
    return min((limit for limit in limits if limit is not None), default=None)


def thread_notes(threads, cores, limit):
    """Notes for the reader about threads and cores, with both numbers."""
    notes = []
    if cores < threads:
        notes.append(f"{threads} threads were asked for and the process may use {cores} core(s): threads wait for each other")
    if limit is not None and limit < threads:
        notes.append(f"{threads} threads were asked for and the control group allows {limit:g} core(s): they are stopped for part of the time")
    return notes


class Busyness:
    """Cores that other processes took between the beginning and now: all that was busy, less our children and ourselves."""

    def __init__(self):
        self.begin = self.reading()

    @staticmethod
    def reading():
        words = read("/proc/stat").split("\n", 1)[0].split()[1:]
        ticks = os.sysconf("SC_CLK_TCK")
        # user nice system idle iowait irq softirq steal: what a host takes from a virtual machine counts as others' work
        busy = sum(int(words[i]) for i in (0, 1, 2, 5, 6, 7)) / ticks if len(words) > 7 else None
        own = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        return busy, sum(use.ru_utime + use.ru_stime for use in own), os.times().elapsed

    def others_cores(self):
        busy, own, clock = self.reading()
        if busy is None or clock <= self.begin[2]:
            return None
        return max(0.0, ((busy - self.begin[0]) - (own - self.begin[1])) / (clock - self.begin[2]))


def load():
    return os.getloadavg()[0]


# By the flags that a processor must have, best first. Rows of different classes say little about each other.
CLASSES = {"AMX": {"amx_tile", "amx_bf16", "avx512f"}, "AVX-512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, "AVX2": {"avx2", "fma"}}
OTHER = "other"


def processor_class(present):
    return next((name for name, needed in CLASSES.items() if needed <= set(present)), OTHER)


def vector_flags(present):
    """The flags that decide about kernels, sorted."""
    return sorted(flag for flag in set(present) if flag.startswith(("avx", "amx", "fma", "f16c", "sse4")))


def description(threads):
    cores = len(os.sched_getaffinity(0))
    known = {"avx512f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX"}
    present = flags()
    return {
        "processor": processor(), "class": processor_class(present), "flags": vector_flags(present),
        "features": [name for flag, name in known.items() if flag in present] or ["no AVX-512"],
        "cores": cores, "core_limit": core_limit(), "threads": threads,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "notes": thread_notes(threads, cores, core_limit()),
    }
