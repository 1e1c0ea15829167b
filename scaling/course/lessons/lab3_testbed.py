"""The run of lab 3, and training it on a testbed of this machine by the commands that one types.

sudo scaling testbed up --name slow-cable --hosts 4 --devices 1 --bandwidth 200Mbit
sudo scaling testbed run --name slow-cable -- scaling train run.json --mesh stage=4 ...
sudo scaling testbed down --name slow-cable
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scaling.course.lessons.lab3_data import RecordedStep
from scaling.meshes.errors import InputError
from scaling.testbed.machine import present_machine
from scaling.testbed.state import state_folder

NAME = "slow-cable"
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
    return ["testbed", "up", "--name", NAME, "--hosts", str(hosts), "--devices", "1",
            "--bandwidth", bandwidth]  # fmt: skip


def train_command(
    mesh: str,
    file: str = "run.json",
    out: str = "runs/slow-cable",
    ours: tuple[str, ...] = ("scaling",),
) -> list[str]:
    """Return the words that train on it; `ours` starts this project in a host."""
    words = ["testbed", "run", "--name", NAME, "--", *ours, "train"]
    words += [file, "--mesh", mesh, "--run-dir", out]
    return words + (
        ["--set", f"batch.microbatches={MICROBATCHES}"] if mesh.startswith("stage") else []
    )


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
            _scaling(train_command(mesh, str(file), str(out), (sys.executable, "-m", "scaling")))
            return recorded(hosts, bandwidth, mesh, out)
    finally:
        subprocess.run(
            [sys.executable, "-m", "scaling", "testbed", "down", "--name", NAME],
            check=False,
            capture_output=True,
        )


def recorded(hosts: int, bandwidth: str, mesh: str, out: Path) -> RecordedStep:
    """Return the steps of a run folder behind its warm-up."""
    predicted: dict[str, Any] = json.loads((out / "predicted.json").read_text(encoding="utf-8"))
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seconds = [entry["step_time"] for entry in map(json.loads, lines) if "loss" in entry]
    ranges = (predicted["step_time"], predicted["step_time_low"], predicted["step_time_high"])
    return RecordedStep(hosts, bandwidth, mesh, *ranges, predicted["time"], seconds[WARM_UP:])


def _scaling(words: list[str]) -> None:
    """Run a command of ours; InputError with the end of what it printed if it fails."""
    command = [sys.executable, "-m", "scaling", *words]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise InputError(f"scaling {' '.join(words)} took more than {LIMIT:.0f} s") from None
    if done.returncode:
        raise InputError(f"scaling {' '.join(words)}: {done.stderr[-600:] or done.stdout[-600:]}")
