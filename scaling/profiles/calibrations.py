"""Finds calibrations of this machine on disk: the one nearest to what is priced.

~/.cache/scaling/calibrations/8-x-cpu--intel-xeon--2-cores-.json

Fake devices share the machine's cores, so the speed of one depends on their number: each number of
devices has a calibration of its own.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.reading import cache_path
from scaling.profiles.io import read_profile
from scaling.profiles.machine import host
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
