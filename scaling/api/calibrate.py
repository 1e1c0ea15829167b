"""Measuring this machine, and measuring it first where a prediction needs that."""

import json
import os
import sys
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scaling.api.output_paths import check_new_file
from scaling.api.public_api import entrance
from scaling.collectives.cost import with_timed_calls
from scaling.compile.quiet import quiet
from scaling.meshes.bandwidths import Measured, MeasuredCall, measured_calls
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.reading import writing
from scaling.meshes.result import Result
from scaling.profiles.calibrations import (
    calibration_folder,
    calibration_path,
    host_calibration,
    profile_for,
)
from scaling.profiles.io import ideal as ideal_profile
from scaling.profiles.io import profile_document, write_profile
from scaling.profiles.profile import Profile

HOST_DEVICES = 8  # fake devices of a CPU, as in the tests, the demo and the host cluster
STDERR = 2  # file descriptor


@dataclass(frozen=True, repr=False)
class CalibrationResult(Result, Profile):
    """A profile that was measured here; prints as the table of `scaling calibrate`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the calibration file."""
        return profile_document(self)

    def __str__(self) -> str:
        from scaling.report.fits import table

        return table(self)

    def line(self) -> str:
        return f"calibration of {self.machine}, {self.date}"


@dataclass(frozen=True, repr=False)
class NetworkResult(Result):
    """Collectives that were timed here; prints as the table of `scaling calibrate --network`."""

    machine: str
    date: str
    measured: tuple[MeasuredCall, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the file, which `--measured` reads."""
        stated = lambda call: {k: v for k, v in vars(call).items() if v is not None}
        return vars(self) | {"measured": [stated(call) for call in self.measured]}

    def __str__(self) -> str:
        from scaling.report.fits import bandwidth_table

        return "\n".join([f"{self.machine}, {self.date}", *bandwidth_table(self.measured)])

    def line(self) -> str:
        return f"{len(self.measured)} calls timed on {self.machine}, {self.date}"


@entrance
def calibrate(
    out: Path | str | None = None,
    quick: bool = False,
    devices: int | None = None,
    network: bool = False,
) -> CalibrationResult | NetworkResult:
    """Measure this machine, write the calibration file and return the profile.

    Predictions for `host`, and for one node of the same GPUs, use the file from then on. With
    `network`, time the collectives of all devices of this job instead, one process of several
    (Slurm, Open MPI): `--measured` of predictions takes that file.

    >>> import scaling as sc
    >>> profile = sc.calibrate(quick=True, devices=2)    # doctest: +SKIP
    >>> profile.matmul[0].dtype                          # doctest: +SKIP
    'fp32'

    Args:
        out: file to write; None: in ~/.cache/scaling/calibrations.
        quick: fewer sizes, under a minute.
        devices: number of fake host devices, where no accelerator is present; None: 8.
        network: time each collective inside a node and between more and more nodes, up to all of
            this job, and write bandwidth.json (or `out`).

    Raises:
        InputError: the file cannot be written; found before anything is measured.
    """
    if network:
        return _timed_network(Path(out or "bandwidth.json"), quick, devices)
    check_new_file(Path(out) if out else calibration_folder() / "new.json")
    with quiet():  # imports jax
        from scaling.meshes.devices import use_host_devices

        use_host_devices(HOST_DEVICES if devices is None else devices)

        from scaling.calibration.calibrate import calibrate as measure

        profile = measure(quick, lambda text: print(text, file=sys.stderr, flush=True))
    path = Path(out) if out else calibration_path(profile.machine)
    with writing(path, "choose another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_profile(profile, path)
    return CalibrationResult(**{f.name: getattr(profile, f.name) for f in fields(profile)})


def _timed_network(path: Path, quick: bool, devices: int | None) -> NetworkResult:
    """Times of the collectives of this job's devices, which its first process writes."""
    check_new_file(path)
    with quiet():  # imports jax
        from scaling.meshes.devices import use_host_devices
        from scaling.training.launch.distributed import start_distributed

        use_host_devices(devices or HOST_DEVICES)
        start_distributed()
        import jax

        from scaling.calibration.network import timed_calls
        from scaling.profiles.machine import machine

        is_first = jax.process_index() == 0
        tell = lambda text: print(text, file=sys.stderr, flush=True) if is_first else None
        calls = timed_calls(quick, tell)
        if not calls:
            raise InputError("--network: this job has one device; start it on several")
        result = NetworkResult(machine(), datetime.now(UTC).date().isoformat(), calls)
        if is_first:
            with writing(path, "choose another --out"):
                path.write_text(json.dumps(result.to_dict(), indent=1) + "\n", encoding="utf-8")
    return result


def load_profile(
    cluster: Cluster,
    calibration: Path | str | Profile | None = None,
    ideal: bool = False,
    hops: bool = False,
    measured: Measured | None = None,
) -> tuple[Profile, list[str]]:
    """Return the efficiencies to price with, and warnings about them.

    Measures this machine first, quickly, if it is what is priced and has no figures of its own.

    Args:
        calibration: a Profile, or a file of `scaling calibrate`; used as it is.
        hops: with `ideal`, count the latencies of the catalogue.
        measured: calls that were timed on the cluster, or their file, which correct the fits of its
            links.
    """
    if ideal:
        return ideal_profile(hops), []
    calls = () if measured is None else measured_calls(measured)
    if isinstance(calibration, Profile):
        return with_timed_calls(calibration, cluster, calls), []
    devices = cluster.devices
    if calibration is None and cluster.virtual_devices and host_calibration(devices) is None:
        count = f"{devices} device{'s' * (devices > 1)}"
        print(f"this machine is measured first, quickly, with {count}", file=sys.stderr)
        calibrate_in_subprocess(devices)
    profile, warnings = profile_for(cluster, None if calibration is None else Path(calibration))
    return with_timed_calls(profile, cluster, calls), warnings


def calibrate_in_subprocess(devices: int) -> None:
    """Measure this machine's CPU with that many fake devices, quickly, in another process.

    A process cannot change how many devices jax has.

    Raises:
        InputError: it failed; the reason is on stderr.
    """
    import subprocess

    arguments = ["calibrate", "--quick", "--devices", str(devices)]
    command = [sys.executable, "-P", "-m", "scaling", *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if subprocess.run(command, stdout=STDERR, env=environment).returncode:
        raise InputError(
            f"this machine could not be measured: scaling {' '.join(arguments)} failed"
        )
