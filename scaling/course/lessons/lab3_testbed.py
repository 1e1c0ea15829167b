"""Training steps on a testbed: recorded ones, and those made here by the commands that one types.

The recorded ones are copied by hand from experiments/results/2026-11-23-testbed-steps and, meshes
with stages, from 2026-11-23-testbed-steps-stage, when other processes used half of the processor.
Nothing was fitted on them. The run of lab 3 is made like this:

sudo scaling testbed up --name slow-cable --hosts 4 --devices 1 --bandwidth 200Mbit
sudo scaling testbed run --name slow-cable -- scaling train run.json --mesh stage=4 ...
sudo scaling testbed down --name slow-cable
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.units import parse_quantity
from scaling.testbed.machine import present_machine
from scaling.testbed.state import state_folder

DATA = resources.files("scaling.course.lessons") / "data"
TERMS = ("compute", "optimizer", "exposed_communication", "bubble", "host")
NAME = "slow-cable"
DOWN = ("testbed", "down", "--name", NAME)
OURS = (sys.executable, "-m", "scaling")
# That of experiments/testbed_steps.py, which recorded it.
MODEL = {
    "vocab_size": 1024, "d_model": 256, "n_layers": 4, "n_heads": 8, "n_kv_heads": 8,
    "d_ff": 1024, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope",
}  # fmt: skip
BATCH = {"global_batch": 16, "seq_len": 64}
MICROBATCHES = 4  # of meshes with stages
STEPS, WARM_UP = 14, 4  # the first steps use buffers and connections for the first time
LIMIT = 300.0  # s that a command may take: on two busy cores a training of four hosts takes 60
RUN = {
    **{"name": "testbed", "model": MODEL, "batch": BATCH, "precision": {"compute": "fp32"}},
    "train": {"steps": STEPS},
}


@dataclass(frozen=True)
class RecordedStep:
    """One mesh at one rate of the cable; seconds."""

    hosts: int
    bandwidth: str  # "500Mbit"
    mesh: str
    predicted: float
    low: float
    high: float
    time: dict[str, float]  # predicted, by term
    measured: list[float]  # of several steps

    @property
    def rate(self) -> float:
        """Bytes/s of a host's link."""
        return parse_quantity(self.bandwidth.replace("bit", "bit/s"), "B/s")

    @property
    def median(self) -> float:
        return float(np.median(self.measured))

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, high = np.percentile(self.measured, (25, 75))
        return float((high - low) / self.median)


@cache
def recorded_steps(stages: bool = False) -> tuple[RecordedStep, ...]:
    """Return the recorded steps of meshes without stages, or with them, of 4 microbatches each."""
    return tuple(RecordedStep(**case) for case in _recording(stages)["cases"])


def recorded_on(stages: bool = False) -> str:
    """Return the date of these steps."""
    return str(_recording(stages)["date"])


def _recording(stages: bool) -> Any:
    file = DATA / ("testbed_pipelines.json" if stages else "testbed_steps.json")
    return json.loads(file.read_text("utf-8"))


def line_over_rates(seconds: list[float], rates: list[float]) -> tuple[float, float]:
    """Return what does not depend on the link (s), and the bytes that cross it one after another.

    A straight line through seconds over 1 / rate, by least squares: T = a + b / W.
    """
    slope, intercept = np.polyfit(1 / np.array(rates), np.array(seconds), 1)
    return float(intercept), float(slope)


def run_text() -> str:
    """Return run.json as one writes it."""
    return json.dumps(RUN, indent=1)


def why_not_here() -> str:
    """Return why this machine cannot make a testbed; "" if it can."""
    try:
        present_machine()
    except InputError as error:
        return str(error)
    if (state_folder() / f"{NAME}.json").exists():
        return f"a testbed {NAME} is there already: scaling testbed down --name {NAME}"
    return ""


def up_command(hosts: int, bandwidth: str) -> list[str]:
    """Return the words that make the testbed."""
    wanted = f"--hosts {hosts} --devices 1 --bandwidth {bandwidth}"
    return f"testbed up --name {NAME} {wanted}".split()


def train_command(
    mesh: str,
    file: str = "run.json",
    out: str = "runs/slow-cable",
    ours: tuple[str, ...] = ("scaling",),
) -> list[str]:
    """Return the words that train on it; `ours` starts this project in a host."""
    words = [*f"testbed run --name {NAME} --".split(), *ours, "train", file, "--mesh", mesh]
    cut = ["--set", f"batch.microbatches={MICROBATCHES}"] if mesh.startswith("stage") else []
    return [*words, "--run-dir", out, *cut]


def train_here(hosts: int, bandwidth: str, mesh: str) -> RecordedStep:
    """Train on a testbed that is there only meanwhile, and return what was predicted and measured.

    Raises:
        InputError: it cannot be made, or the training fails; with the last lines of its output.
    """
    if reason := why_not_here():
        raise InputError(reason)
    try:
        _scaling(up_command(hosts, bandwidth))
        with tempfile.TemporaryDirectory() as scratch:
            file, out = Path(scratch) / "run.json", Path(scratch) / "out"
            file.write_text(json.dumps(RUN), encoding="utf-8")
            _scaling(train_command(mesh, str(file), str(out), OURS))
            return recorded(hosts, bandwidth, mesh, out)
    finally:
        subprocess.run([*OURS, *DOWN], check=False, capture_output=True)


def recorded(hosts: int, bandwidth: str, mesh: str, out: Path) -> RecordedStep:
    """Return the steps of a run folder behind its warm-up."""
    predicted: dict[str, Any] = json.loads((out / "predicted.json").read_text(encoding="utf-8"))
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seconds = [entry["step_time"] for entry in map(json.loads, lines) if "loss" in entry]
    ranges = (predicted["step_time"], predicted["step_time_low"], predicted["step_time_high"])
    return RecordedStep(hosts, bandwidth, mesh, *ranges, predicted["time"], seconds[WARM_UP:])


def _scaling(words: list[str]) -> None:
    """Run a command of ours; InputError with the end of what it printed if it fails."""
    command = [*OURS, *words]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise InputError(f"scaling {' '.join(words)} took more than {LIMIT:.0f} s") from None
    if done.returncode:
        raise InputError(f"scaling {' '.join(words)}: {done.stderr[-600:] or done.stdout[-600:]}")
