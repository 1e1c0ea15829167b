"""How well machines are predicted that nothing was fitted on.

    python -m experiments.published.leave_one_out [FAMILY ...]

One machine after another is left out with all of its points; the figures of its family are fitted
on the rows of the others that may be fitted, and all points of the machine are scored. A family
with one machine cannot be scored so. Figures of places where the machine was not measured (inside
nodes, between them) are those shipped, which its rows had no part in.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from experiments.published.baselines import spreads
from experiments.published.collectives import Case, cases, chosen
from experiments.published.cross_validation import UNKNOWN
from experiments.published.families import FAMILIES, Family
from experiments.published.fit_links import errors_of, fitted, series_of
from experiments.published.score_collectives import LEAST, MOST
from experiments.published.ship_links import FOLDER
from scaling.report.columns import columns

STARTS = 1  # searches for each machine


@dataclass(frozen=True)
class LeftOut:
    """One machine, predicted from the others of its family."""

    family: str
    machine: str
    errors: np.ndarray  # predicted / measured - 1
    spread: float | None  # of the sources that measured the same


def left_out(name: str, family: Family) -> Iterator[LeftOut]:
    """Every machine of a family that has several."""
    every = [case for case in cases() if family.holds(case)]
    machines = sorted({case.machine for case in every})
    shipped = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["figures"]
    for machine in machines if len(machines) > 1 else []:
        own = [c for c in every if c.machine == machine and LEAST <= c.bytes <= MOST]
        if own:
            others = [case for case in chosen("fit") if case.machine != machine]
            places = {
                s.place(family) for s in series_of([c for c in every if c.machine == machine])
            }
            figures, _ = fitted(family, others, STARTS, shipped, places)
            links = family.links(figures, UNKNOWN)
            yield LeftOut(name, machine, errors_of(series_of(own), links), _spread(own))


def _spread(own: list[Case]) -> float | None:
    """Mean over what this machine shares with others."""
    known = spreads(cases())
    found = {known.get((c.cluster, c.kind, c.nodes, c.ranks)) for c in own} - {None}
    return float(np.mean([value for value in found if value is not None])) if found else None


def main(arguments: list[str] | None = None) -> None:
    """Print a line per machine, and the median over machines."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.leave_one_out")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    rows: list[tuple[str, ...]] = [("family", "machine", "n", "mean", "median", "bias", "spread")]
    means = []
    for name in parser.parse_args(arguments).families:
        for found in left_out(name, FAMILIES[name]):
            size = np.abs(found.errors)
            shown = (f"{size.mean():.1%}", f"{np.median(size):.1%}", f"{found.errors.mean():+.1%}")
            spread = "-" if found.spread is None else f"{found.spread:.1%}"
            rows.append((name, found.machine, str(len(size)), *shown, spread))
            means.append(float(size.mean()))
            print("  ".join(rows[-1]), flush=True)
    print("\n".join(columns(rows, left=(0, 1))))
    print(f"median over {len(means)} machines of their mean errors: {median(means):.1%}")


if __name__ == "__main__":
    main()
