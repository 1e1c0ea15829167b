"""Everything that is predicted against what others measured, offline (`make validate`).

    python -m experiments.published.validate [--out FOLDER]

Tables: training steps on rows that no constant was fitted on, also as a picture; the same with the
constants of `software_fits.json` that were fitted without the source that is scored; memory; steps
that XLA compiled for GPUs; and collectives (`score_systems`). The naive baseline stands beside.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from experiments.published import jax_programs, score_systems
from experiments.published.fit_software import FITS, placed, published, sample, software_of
from experiments.published.score_training import (
    Scored,
    fits_table,
    memory_table,
    scored,
    table,
    worst,
)
from experiments.published.training import FOLDER, Measured, memory_runs, part_of
from scaling.api.pricing import Pricing, with_step_error
from scaling.api.result import priced_results
from scaling.meshes.errors import InputError
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.files import write_picture
from scaling.report.formatting import columns
from scaling.run import Run, read_run
from scaling.simulate.prediction import Prediction

RESULTS = FOLDER.parent / "results"


def held_out() -> list[Scored]:
    """Rows that no constant was fitted on, with the shipped constants."""
    rows = [row for row in published() if part_of(row) == "left"]
    return _scores(rows)


def scatter_points(scores: Iterable[Scored]) -> list[ScatterPoint]:
    """The priced rows, by source."""
    return [
        ScatterPoint(s.row.source, s.row.step_time, s.time, s.low, s.high)
        for s in scores
        if s.time is not None
    ]


def _scores(
    rows: Iterable[Measured], constants: Callable[[Measured], Any] = lambda row: None
) -> list[Scored]:
    """The rows beside their predictions, which are priced side by side."""
    rows = list(rows)
    found = priced_results([_pricing(row, constants(row)) for row in rows])
    return [scored(row, partial(_told, each)) for row, each in zip(rows, found, strict=True)]


def _pricing(row: Measured, constants: Any) -> Pricing | Exception:
    try:
        run = read_run(row.run, row.id)
        program, cluster, profile = placed(row, constants)
    except InputError as error:
        return error
    return Pricing(program, cluster, with_step_error(profile, run.software), run)


def _told(found: Prediction | Exception, run: Run) -> Prediction:
    if isinstance(found, Exception):
        raise found
    return found


def report(left: list[Scored]) -> Iterator[str]:
    """All tables as lines; `left` is of `held_out`."""
    # At most `MOST` rows of each source, with constants that were fitted without it.
    fits = json.loads(FITS.read_text(encoding="utf-8"))
    constants = lambda row: fits[software_of(row)]["without"][row.source]
    without = _scores(sample(published()), constants)
    left_cells = (0,)
    yield "## Training steps that no constant was fitted on"
    yield from _block(table(left), left_cells)
    yield "## Rows of each source, with constants fitted without that source"
    yield from _block(table(without), left_cells)
    yield "## Memory"
    yield from _block(memory_table(left), (0, 1))
    yield "Runs of `memory_runs.jsonl`, added when all factors were fixed:"
    more = _scores(memory_runs())
    yield from _block(memory_table(more), (0, 1))
    yield "All of these ran, so they fit; most that are said not to do not state recomputation."
    yield from _block(fits_table(left), (0,))
    yield "## The worst rows of the first table"
    yield from _block(worst(left), (0, 1, 2, 3))
    yield "## Steps that XLA compiled for GPUs"
    yield from jax_programs.table()
    yield "## Collectives of machines that nothing was fitted on"
    yield from ["", "```", *score_systems.table(), "```", ""]


def _block(cells: list[list[str]], left: tuple[int, ...]) -> Iterator[str]:
    yield from ["", "```", *columns(cells, left), "```", ""]


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, write them to a README.md, and draw the first one."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.validate")
    default = RESULTS / f"{date.today().isoformat()}-validate"
    parser.add_argument("--out", type=Path, default=default, help="folder of the README.md")
    out = parser.parse_args(arguments).out
    lines, left = [], held_out()
    for line in report(left):
        print(line, flush=True)
        lines.append(line)
    out.mkdir(parents=True, exist_ok=True)
    title = "Training steps that nothing was fitted on"
    write_picture(scatter(scatter_points(left), title), out / "training.svg")
    head = HEAD.format(date=date.today().isoformat())
    (out / "README.md").write_text("\n".join([head, *lines]), encoding="utf-8")


HEAD = """\
# Predicted against published measurements

{date}. Made by `make validate`. Errors are predicted / measured - 1; `bias` is their median;
`naive` is that of model FLOPs over the peak at one typical MFU. The line of medians gives every
source the same weight. `training.svg` shows the rows of the first table.
"""

if __name__ == "__main__":
    main()
