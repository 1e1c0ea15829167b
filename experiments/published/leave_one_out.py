"""How well machines are predicted that nothing was fitted on.

    python -m experiments.published.leave_one_out [FAMILY ...]

One machine after another is left out with all of its points; the figures of its family are fitted
on the rows of the others that may be fitted, and all points of the machine are scored. A family
with one machine cannot be scored so.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from experiments.published.collectives import Case, cases, chosen
from experiments.published.families import FAMILIES, Family
from experiments.published.fit_links import errors_of, fitted, series_of
from experiments.published.score_collectives import LEAST, MOST, spreads
from scaling.cost.profile import Evidence
from scaling.report.columns import columns


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
    if len(machines) < 2:
        return
    for machine in machines:
        others = [case for case in chosen("fit") if case.machine != machine]
        figures, _ = fitted(family, others)
        own = [c for c in every if c.machine == machine and LEAST <= c.bytes <= MOST]
        if own:
            links = family.links(figures, Evidence("", "", "calibrated"))
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
