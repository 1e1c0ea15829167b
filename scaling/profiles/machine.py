"""Identifies this machine and measures the load of other processes on it."""

import os
import platform
import time
from pathlib import Path

import numpy as np

from scaling.program.versions import installed_versions

PACKAGES = ("jax", "jaxlib")
CPU_INFO = Path("/proc/cpuinfo")  # of Linux
STATISTICS = Path("/proc/stat")  # of Linux
LISTEN = 0.5  # s, fifty ticks of each processor
# Fraction of the processors from which on others disturb a measurement; assumed by this project.
MUCH = 0.2


def machine() -> str:
    """Name of the devices present: `4 x NVIDIA H100 80GB HBM3`, or `host(8)`."""
    import jax

    devices = jax.devices()
    if devices[0].platform == "cpu":
        return host(len(devices))
    return f"{len(devices)} x {devices[0].device_kind}"


def host(devices: int) -> str:
    """Name of this computer with fake devices: `8 x cpu (Intel Xeon @ 2.60GHz, 2 cores)`."""
    return f"{devices} x cpu ({cpu_model()}, {cores()} cores)"


def cpu_model() -> str:
    """The processor's name for itself, or its architecture where it has none."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def cores() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Versions of the packages that decide how a program runs, of those that are installed."""
    return installed_versions(PACKAGES)


def busy() -> str:
    """A warning if other processes use much of the processor, else ""; takes `LISTEN` seconds."""
    load = OtherLoad()
    time.sleep(LISTEN)
    share = load.share()
    return f"other processes use {share:.0%} of the processor" if share > MUCH else ""


class OtherLoad:
    """Measures what other processes use of all processors, from its creation on."""

    def __init__(self) -> None:
        self.start = _processor_times()

    def share(self) -> float:
        """Fraction of the processors' time that others have used so far; 0 where not known."""
        used, available, own = np.subtract(_processor_times(), self.start)
        return float(max(0.0, used - own) / available) if available > 0 else 0.0


def _processor_times() -> tuple[float, float, float]:
    """Processor seconds since boot: used by all, available, and used by this process."""
    if not STATISTICS.exists():
        return 0.0, 0.0, 0.0
    fields = STATISTICS.read_text().splitlines()[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]  # user nice system idle iowait irq softirq steal
    tick, own = 1 / os.sysconf("SC_CLK_TCK"), os.times()
    used = sum(ticks) - ticks[3] - ticks[4]
    return used * tick, sum(ticks) * tick, own.user + own.system
