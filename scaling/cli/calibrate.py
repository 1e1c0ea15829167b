"""`scaling calibrate`: measure this machine and keep what was found."""

import os
import subprocess
import sys
from pathlib import Path

from scaling.cli.output_paths import check_outputs
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.calibrations import calibration_folder, calibration_path, host_calibration
from scaling.profiles.profile import Evidence, Profile

HOST_DEVICES = 8  # fake devices of a CPU, as in the tests, the demo and the host cluster
STDERR = 2  # the number that every process has it under


def calibrate_command(out: Path | None, quick: bool, devices: int | None) -> int:
    """Measure, write, say how well the fits hold; returns the exit code."""
    path, profile = calibrate_here(out, quick, devices)
    print(report(profile))
    print(f"calibration: {path}")
    print("next: scaling predict demo --cluster host, or train: predictions now use it")
    return 0


def calibrate_here(out: Path | None, quick: bool, devices: int | None) -> tuple[Path, Profile]:
    """Measure this machine and write the calibration file.

    Raises:
        InputError: the file cannot be written; found out before anything is measured.
    """
    from scaling.meshes.devices import use_host_devices
    from scaling.profiles.io import write_profile

    _check_writable(out or calibration_folder() / "new.json")
    use_host_devices(HOST_DEVICES if devices is None else devices)

    from scaling.calibrate.calibrate import calibrate

    profile = calibrate(quick, lambda text: print(text, file=sys.stderr, flush=True))
    path = out or calibration_path(profile.machine)
    write_profile(profile, path)
    return path, profile


def calibrate_first(cluster: Cluster, calibration: Path | None) -> None:
    """Measure this machine quickly if it is what is priced and has no figures of its own.

    Args:
        cluster: where.
        calibration: the file that was given to price with; then nothing is measured.

    Raises:
        InputError: it could not be measured.
    """
    devices = cluster.devices
    if calibration is None and cluster.virtual_devices and host_calibration(devices) is None:
        words = f"{devices} device{'s' * (devices > 1)}"
        print(f"this machine is measured first, quickly, with {words}", file=sys.stderr)
        calibrate_apart(devices)


def calibrate_apart(devices: int) -> None:
    """Measure this machine's CPU with so many fake devices, quickly, in a process of its own.

    A process cannot change how many devices jax has.

    Raises:
        InputError: it failed; why stands on stderr.
    """
    words = ["calibrate", "--quick", "--devices", str(devices)]
    command = [sys.executable, "-P", "-m", "scaling.cli.main", *words]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    if subprocess.run(command, stdout=STDERR, env=environment).returncode:
        raise InputError(f"this machine could not be measured: scaling {' '.join(words)} failed")


def report(profile: Profile) -> str:
    """One line per fit: how many points, how well it meets those that it was not fitted to."""
    from scaling.report.columns import columns

    named = [(f"matmul {fit.dtype}", fit.evidence) for fit in profile.matmul]
    named += [("memory", profile.memory.evidence), ("vector units", profile.vector.evidence)]
    named += [(f"attention {fit.direction}", fit.evidence) for fit in profile.attention]
    named += [
        (f"{fit.kind} x{fit.ranks} in {fit.groups}", fit.evidence) for fit in profile.collectives
    ]
    if profile.dispatch is not None:
        named.append(("calling a program", profile.dispatch.evidence))
    if profile.step is not None:
        named.append(("whole steps", profile.step.evidence))
    head = ("fit", "samples", "median error", "mean", "worst", "left out (mean)")
    lines = columns([head, *(_row(name, evidence) for name, evidence in named)])
    return "\n".join([f"{profile.machine}, {profile.date}", *lines])


def _row(name: str, evidence: Evidence) -> tuple[str, ...]:
    errors = (
        evidence.median_error,
        evidence.mean_error,
        evidence.max_error,
        evidence.held_out_error,
    )
    return (name, f"{evidence.samples}", *("-" if e is None else f"{e:.1%}" for e in errors))


def _check_writable(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --out") from None
    check_outputs({"--out": path})
