"""What the operating system did to this rank: CPU time, page faults, switches, foreign load.

Enters: nothing but the kernel's own counters. Leaves: values in the rows of the steps. A reading costs some
twenty microseconds, so it is made a few times a second and shared out among the steps since the last.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from paceline.step_file import StepFile

LOAD_READING_INTERVAL_S = 0.2  # /proc/stat counts in ticks of 10 ms: shorter intervals would be noise


class Host:
    """Counters of this process and of the cores that belong to it alone."""

    def __init__(self, own_cores: list[int]) -> None:
        self._own_cores = {f"cpu{core}" for core in own_cores}
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._load = _read_cores(self._own_cores)
        self._load_time_s = time.perf_counter()
        self._load_cpu_s = self._usage.ru_utime + self._usage.ru_stime
        self._num_rows_read = 0

    def read_into(self, steps: StepFile, now_s: float) -> None:
        """Share what happened since the last reading out evenly among the steps since then."""
        rows = range(self._num_rows_read, steps.num_rows)
        if not rows:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        before, self._usage, self._num_rows_read = self._usage, usage, steps.num_rows
        cpu_s = usage.ru_utime + usage.ru_stime
        happened = (  # in the order of STEP_METRICS, from cpu_s on
            cpu_s - before.ru_utime - before.ru_stime,
            usage.ru_minflt + usage.ru_majflt - before.ru_minflt - before.ru_majflt,
            usage.ru_nvcsw - before.ru_nvcsw,
            usage.ru_nivcsw - before.ru_nivcsw,
        )
        shares = [amount / len(rows) for amount in happened]
        for row in rows:
            steps.fill(row, "cpu_s", *shares)
        if self._own_cores and now_s - self._load_time_s >= LOAD_READING_INTERVAL_S:
            foreign_cores, steal_cores = self._read_load(now_s, cpu_s)
            steps.fill(rows[-1], "foreign_cores", foreign_cores, steal_cores)

    def _read_load(self, now_s: float, cpu_s: float) -> tuple[float, float]:
        """Cores' worth of this rank's cores that others used, and that the hypervisor took."""
        elapsed_s = now_s - self._load_time_s
        busy_s, steal_s = _read_cores(self._own_cores)
        foreign_s = (busy_s - self._load[0]) - (cpu_s - self._load_cpu_s)
        stolen_s = steal_s - self._load[1]
        self._load, self._load_time_s, self._load_cpu_s = (busy_s, steal_s), now_s, cpu_s
        return max(0.0, foreign_s / elapsed_s), max(0.0, stolen_s / elapsed_s)


def _read_cores(names: set[str]) -> tuple[float, float]:
    """Busy and stolen seconds of these cores since boot; zeros where the kernel does not tell."""
    if not names:
        return 0.0, 0.0
    busy = steal = 0
    try:
        with open("/proc/stat") as stat:
            for line in stat:
                if not line.startswith("cpu"):
                    break
                name, *ticks = line.split()
                if name in names:
                    user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, ticks[:8])
                    busy += user + nice + system + irq + softirq
                    steal += stolen
    except OSError:
        return 0.0, 0.0
    per_second = os.sysconf("SC_CLK_TCK")
    return busy / per_second, steal / per_second


def resident_bytes() -> tuple[int, int]:
    """This process's resident set now, and its high-water mark."""
    now = peak = 0
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    now = int(line.split()[1]) * 1024
                elif line.startswith("VmHWM:"):
                    peak = int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: getrusage knows the peak
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return now, peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
