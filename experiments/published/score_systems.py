"""Predicted against collectives of machines on which nothing was fitted, machine by machine.

    python -m experiments.published.score_systems [--out FOLDER]

Small messages, below 64 KiB, stand apart: their time is latency alone. Nothing of `systems.csv` is
fitted yet, so both parts of its split are unseen.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np

from experiments.published.baselines import rule_of_thumb
from experiments.published.collectives import part_of_system, system_cases
from experiments.published.fit_links import series_of
from experiments.published.score_collectives import in_range
from scaling.profiles.io import profile_of
from scaling.profiles.profile import ANY
from scaling.report.formatting import columns

SMALL = 64 * 1024  # bytes; `dev_collective_cases` and the goals begin there


def points() -> dict[tuple[str, str], np.ndarray]:
    """(machine, kind) -> float [points, 4]: bytes, error, rule of thumb, in range."""
    found = defaultdict(list)
    for series in series_of(system_cases()):
        profile = profile_of(series.cluster.accelerator, ANY)
        error = series.predicted(profile) / series.time - 1
        rule = rule_of_thumb(series) / series.time - 1
        inside = in_range(series, profile)
        found[series.machine, series.kind].append(
            np.stack([series.bytes, error, rule, inside], axis=1)
        )
    return {key: np.concatenate(rows) for key, rows in sorted(found.items())}


def report() -> Iterator[str]:
    """A line per machine and collective, then the medians over machines."""
    head = ("machine", "kind", "part", "n", "median", "bias", "worst", "in range", "small: median")
    rows: list[tuple[str, ...]] = [head]
    machines = defaultdict(list)
    for (machine, kind), every in points().items():
        large, small = every[every[:, 0] >= SMALL], every[every[:, 0] < SMALL]
        machines[machine].append(large)
        error = large[:, 1]
        shown = (
            *(str(len(error)), f"{np.median(np.abs(error)):.1%}", f"{np.median(error):+.1%}"),
            *(f"{np.abs(error).max():.0%}", f"{large[:, 3].mean():.0%}"),
            f"{np.median(np.abs(small[:, 1])):.0%}" if len(small) else "-",
        )
        rows.append((machine, kind, part_of_system(machine), *shown))
    yield from columns(rows, left=(0, 1, 2))
    of_machine = [np.concatenate(parts) for parts in machines.values()]
    for name, column in (("predicted", 1), ("rule of thumb", 2)):
        medians = [float(np.median(np.abs(points[:, column]))) for points in of_machine]
        yield f"{name}: median over {len(medians)} machines {np.median(medians):.1%}"
    inside = [points[:, 3].mean() for points in of_machine]
    yield f"in their range: mean over machines {np.mean(inside):.0%} of the points"


def main(arguments: list[str] | None = None) -> None:
    """Print the table and write it to a README.md where a folder is named."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_systems")
    parser.add_argument("--out", type=Path, help="folder for a README.md with the table")
    out = parser.parse_args(arguments).out
    lines = list(report())
    print("\n".join(lines))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        head = HEAD.format(date=date.today().isoformat())
        (out / "README.md").write_text("\n".join([head, "```", *lines, "```", ""]), "utf-8")


HEAD = """\
# Collectives of machines on which nothing was fitted

{date}. Made by `python -m experiments.published.score_systems --out`. Errors are predicted /
measured - 1 of points of 64 KiB and more; `small`: the median below. `part`: whether the machine
may be fitted from now on (`systems_split.json`); nothing of either part had been.
"""

if __name__ == "__main__":
    main()
