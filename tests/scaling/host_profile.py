"""A small profile of this machine, for tests of what reads, keeps and prices with profiles."""

from dataclasses import replace
from typing import Any

from scaling.profiles.machine import host
from scaling.profiles.profile import Evidence, MatmulFit, MemoryFit, Profile, VectorFit

HERE = Evidence("scaling calibrate on a test", "2026-11-21", "calibrated", 9, 0.1, 0.1, 0.1, 0.1)


def host_profile(devices: int = 8, **changes: Any) -> Profile:
    """A calibration of as many CPU devices, without collectives; `changes` replace its fields."""
    profile = Profile(
        name="this machine",
        machine=host(devices),
        date="2026-11-21",
        matmul=(MatmulFit("fp32", 1.0, HERE, peak=1e10),),
        memory=MemoryFit(1.0, HERE, bandwidth=1e9),
        vector=VectorFit(1e10, 1e9, HERE),
        overlap=False,
    )
    return replace(profile, **changes)
