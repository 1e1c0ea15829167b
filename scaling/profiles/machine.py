"""What machine this is, in words that tell one from another."""

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("jax", "jaxlib")
CPU_INFO = Path("/proc/cpuinfo")  # of Linux
STATISTICS = Path("/proc/stat")  # of Linux
LISTEN = 0.5  # s, fifty ticks of each processor
MUCH = 0.2  # of the processor, from which on others disturb a measurement


def machine() -> str:
    """The devices present: `4 x NVIDIA H100 80GB HBM3`, or `host(8)`."""
    import jax

    devices = jax.devices()
    if devices[0].platform == "cpu":
        return host(len(devices))
    return f"{len(devices)} x {devices[0].device_kind}"


def host(devices: int) -> str:
    """This computer with so many fake devices: `8 x cpu (Intel Xeon @ 2.60GHz, 2 cores)`."""
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
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of the packages that decide how a program runs."""
    return {name: version(name) for name in PACKAGES}


def busy() -> str:
    """What else the processor does, if it does much; "" if it does not, or cannot say.

    Asked before a measurement: it listens for `LISTEN` seconds.
    """
    if not STATISTICS.exists():
        return ""
    before = _ticks()
    time.sleep(LISTEN)
    used, every = (late - early for late, early in zip(_ticks(), before, strict=True))
    if used <= MUCH * every:
        return ""
    return f"other processes use {used / every:.0%} of the processor"


def _ticks() -> tuple[int, int]:
    """Time that all processors together have been used, and have had, since they started."""
    fields = STATISTICS.read_text().splitlines()[0].split()[1:]
    ticks = [int(field) for field in fields[:8]]  # user nice system idle iowait irq softirq steal
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
