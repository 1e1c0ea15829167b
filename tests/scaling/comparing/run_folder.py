"""The folder of a finished run, as the trainer leaves it."""

import json
from pathlib import Path
from typing import Any

from scaling.comparing.folder import write_prediction
from scaling.run import Run, save_run
from scaling.simulate.step import Priced
from scaling.simulate.summary import summarize

MEASURED = {
    "name": "hand",
    "machine": "8 x NVIDIA H100 80GB HBM3, x86_64",
    "versions": {"jax": "0.10.2"},
    "step_time": {"measured": 2e-3, "spread": 0.02, "steps": 9},
    "memory": {"measured": 11_000_000_000, "compiled": 12_000_000_000},
    "recorded_steps": None,
}


def write_folder(place: Path, run: Run, priced: Priced, **measured: Any) -> Path:
    """Write the files of a run and its prediction; `measured` changes what was measured."""
    write_prediction(place, run, priced, summarize(priced))
    save_run(run, place / "run.json")
    (place / "measured.json").write_text(json.dumps(MEASURED | measured))
    return place
