"""The profile to price a cluster with: a calibration of this machine on disk, or a shipped one.

~/.cache/scaling/calibrations/8-x-cpu--intel-xeon--2-cores-.json

Fake devices share the machine's cores, so the speed of one depends on their number: each number of
devices has a calibration of its own.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.reading import cache_path
from scaling.profiles.io import differences, host_links, profile_of, read_profile
from scaling.profiles.machine import host, versions
from scaling.profiles.profile import Profile

CPU = re.compile(r"(\d+) x cpu \(")  # how `scaling.profiles.machine.host` begins


def calibration_folder() -> Path:
    """Folder of calibrations, in $SCALING_CACHE or ~/.cache/scaling."""
    return cache_path("calibrations")


def calibration_path(machine: str) -> Path:
    """The calibration file of a machine, by `Profile.machine`."""
    stem = "".join(c if c.isalnum() else "-" for c in machine).strip("-").lower()
    return calibration_folder() / f"{stem}.json"


def calibration_of(machine: str) -> Profile | None:
    """The calibration of a machine by its name, GPUs too; None if none can be read."""
    return next(_readable([calibration_path(machine)]), None)


def host_calibration(devices: int) -> Profile | None:
    """The calibration of this machine's CPU with as many devices, or with the nearest number.

    None if there is none, or if several devices are asked for and none has collectives.
    """
    newest = sorted(calibration_folder().glob("*.json"), key=lambda p: -p.stat().st_mtime)
    of_cpus = [profile for profile in _readable(newest) if CPU.match(profile.machine)]
    usable = [profile for profile in of_cpus if devices == 1 or profile.collectives]
    return min(usable, key=lambda p: _distance(p, devices), default=None)


def _readable(paths: Iterable[Path]) -> Iterator[Profile]:
    """Those that can be read; a warning for what is of an older format or damaged."""
    for path in paths:
        try:
            yield read_profile(path)
        except InputError as error:
            if path.exists():
                warnings.warn(f"a calibration is not used: {error}", stacklevel=3)


def _distance(profile: Profile, devices: int) -> tuple[float, bool]:
    match = CPU.match(profile.machine)
    assert match is not None  # of a CPU
    measured = int(match[1])
    return abs(math.log(max(measured, 1) / devices)), profile.machine != host(measured)


def profile_for(cluster: Cluster, calibration: Path | None = None) -> tuple[Profile, list[str]]:
    """Return the efficiencies to price with, and warnings where they may not hold.

    Args:
        cluster: where the run is priced.
        calibration: a file of `scaling calibrate`; None: the nearest calibration of this machine's
            CPU, a calibration of the same node of GPUs, else the profile shipped for the chip.

    Raises:
        InputError: this machine has no calibration, or the file cannot be read.
    """
    if calibration is not None:
        profile = read_profile(calibration)
    elif not cluster.virtual_devices:
        kept = calibration_of(machine_of(cluster)) if cluster.nodes == 1 else None
        profile = kept or profile_of(cluster.accelerator)
        here = versions() if profile.versions else {}
        return profile, differences(profile, profile.machine, here)
    else:
        calibrated = host_calibration(cluster.devices)
        if calibrated is None:
            raise InputError(
                "this machine has not been measured yet: run `scaling calibrate --quick --devices "
                f"{cluster.devices}`"
            )
        profile = calibrated
    if cluster.virtual_devices and cluster.nodes > 1:
        profile = replace(profile, links=host_links())
    warnings = differences(profile, machine_of(cluster), versions())
    if warnings and cluster.virtual_devices:
        warnings[-1] += f"; `scaling calibrate --devices {cluster.devices}` measures it"
    return profile, warnings


def machine_of(cluster: Cluster) -> str:
    """Return the name that `scaling calibrate` gives to a node of the cluster, or to all hosts."""
    if cluster.virtual_devices:
        return host(cluster.devices)
    return f"{cluster.devices_per_node} x {cluster.accelerator.title}"
