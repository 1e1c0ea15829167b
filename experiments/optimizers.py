"""Loss curves of the optimisers, schedules and number formats on the demo's data.

    python -m experiments.optimizers FOLDER        writes FOLDER/results.json, prints the table

The same two-layer model of bytes, the same batches, 100 steps each. The learning rates are round
numbers from the papers' advice (Lion: a tenth of AdamW's), none was searched: this shows that each
optimiser learns, not which is best.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import optax

from scaling.models.config import ModelConfig
from scaling.run import Batch, Precision, Run, Train
from scaling.training.loop import train
from scaling.training.prepare import compile_programs, plan
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.transformer import training_of

STEPS, MEAN = 100, 10  # steps of a run; losses averaged in the table
MODEL = ModelConfig(256, d_model=64, n_layers=2, n_heads=4, d_ff=192)
BASE = Run(
    "optimizers",
    MODEL,
    Batch(16, 64),
    precision=Precision("fp32"),
    train=Train(steps=STEPS, learning_rate=3e-3, warmup_steps=10, weight_decay=0.1),
)


def cases() -> dict[str, Run]:
    """Each optimiser with every format of its state; with AdamW also the other schedules and
    formats of matrix products (parameters stay float32)."""
    found = {
        "adamw": BASE,
        "lion": _with(BASE, "lion", learning_rate=3e-4),
        "adafactor": _with(BASE, "adafactor"),
        "muon": _with(BASE, "muon"),
    }
    for schedule in ("linear", "constant", "wsd"):
        found[f"adamw, {schedule}"] = _with(BASE, "adamw", schedule=schedule)
    for compute in ("bf16", "fp8"):
        found[f"adamw, products {compute}"] = replace(BASE, precision=Precision(compute))
    for name in ("adamw", "lion", "adafactor", "muon"):
        for stochastic in (False, True):
            precision = Precision("fp32", optimizer_state="bf16", stochastic_rounding=stochastic)
            rounding = "stochastic" if stochastic else "nearest"
            found[f"{name}, state bf16 {rounding}"] = replace(found[name], precision=precision)
    return found


def losses(run: Run) -> list[float]:
    """The loss of every step, in nats per byte."""
    with tempfile.TemporaryDirectory() as folder:
        made = plan(run)
        train(made, training_of(made, compile_programs(made)), Options(Path(folder)))
        return [line["loss"] for line in read_metrics(Path(folder)) if "loss" in line]


def table(document: dict) -> str:
    """A line per case: the rate, the first loss, means of steps 41 to 50 and of the last ten."""
    lines = [f"{'case':34}{'rate':9}step 1  steps 41-50  steps 91-100"]
    for name, case in document["cases"].items():
        curve = case["losses"]
        middle, end = (sum(part) / MEAN for part in (curve[50 - MEAN : 50], curve[-MEAN:]))
        lines.append(
            f"{name:34}{case['learning_rate']:<9g}{curve[0]:.3f}   {middle:.3f}        {end:.3f}"
        )
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Run every case; results are written after each."""
    versions = {"jax": jax.__version__, "optax": optax.__version__}
    document: dict = {"steps": STEPS, "versions": versions, "cases": {}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, run in cases().items():
        rate = run.train.learning_rate
        document["cases"][name] = {"learning_rate": rate, "losses": losses(run)}
        (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))


def _with(run: Run, optimizer: str, **changes: Any) -> Run:
    return replace(run, optimizer=optimizer, train=replace(run.train, **changes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
