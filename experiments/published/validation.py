"""Errors on points that were not fitted: by folds, and by whole machines.

    python -m experiments.published.validation [FAMILY ...]     leave one machine out

Folds: the part `fit` is dealt into folds by a hash; each fold is predicted with parameters fitted
on the others. The range of a prediction is the 90 % quantile of these errors, by collective and by
scope: inside a node, where the links decide, or between nodes, where fabrics differ.

Machines: one machine after another is left out with all of its points; the parameters of its family
are fitted on the rows of the others that may be fitted, and all points of the machine are scored.
A family with one machine cannot be scored so. Parameters of scopes in which the machine was not
measured are those shipped, to which its rows contributed nothing.
"""

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from experiments.published.baselines import spreads
from experiments.published.collectives import Case, cases, cases_of
from experiments.published.families import FAMILIES, FOLDER, Family, Scope
from experiments.published.fit_links import errors_of, fitted, series_of
from experiments.published.score_collectives import LEAST, MOST
from scaling.profiles.profile import Evidence
from scaling.report.formatting import columns

FOLDS = 5
FEWEST = 20  # errors; a 90 % quantile of fewer rests on two points
UNKNOWN = Evidence("", "", "calibrated")  # while parameters are searched

Errors = dict[tuple[str, Scope], np.ndarray]  # (kind, scope) -> predicted / measured - 1


def fold_of(case: Case) -> int:
    """0 to FOLDS - 1, from another byte of the hash than the split's."""
    return hashlib.sha256(case.key.encode()).digest()[1] % FOLDS


def cross_errors(family: Family, cases: Sequence[Case]) -> Errors:
    """Errors of every case, with parameters that were fitted without its fold."""
    errors: dict[tuple[str, Scope], list[np.ndarray]] = defaultdict(list)
    own = [case for case in cases if family.includes(case)]
    for fold in range(FOLDS):
        rest = [case for case in own if fold_of(case) != fold]
        parameters, _ = fitted(family, rest, starts=1)
        links = family.links(parameters, UNKNOWN)
        for series in series_of([case for case in own if fold_of(case) == fold]):
            errors[series.kind, series.scope(family)].append(errors_of([series], links))
    return {key: np.concatenate(some) for key, some in errors.items()}


def error_quantile(errors: Errors, kind: str, scope: Scope, part: float = 0.9) -> float | None:
    """The factor, less one, within which that part of the points lies, either way.

    A kind with few points takes those of all kinds in its scope; None where those are few as well.
    """
    own = errors.get((kind, scope), np.array([]))
    if len(own) < FEWEST:
        own = np.concatenate([np.array([]), *(e for key, e in errors.items() if key[1] == scope)])
    if len(own) < FEWEST / 2:
        return None
    return float(np.quantile(np.exp(np.abs(np.log1p(own))) - 1, part))


@dataclass(frozen=True)
class LeftOut:
    """One machine, predicted from the others of its family."""

    family: str
    machine: str
    errors: np.ndarray  # predicted / measured - 1
    spread: float | None  # of the sources that measured the same


def left_out(name: str, family: Family) -> Iterator[LeftOut]:
    """Every machine of a family of several."""
    every = [case for case in cases() if family.includes(case)]
    machines = sorted({case.machine for case in every})
    shipped = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["figures"]
    for machine in machines if len(machines) > 1 else []:
        rows = [case for case in every if case.machine == machine]
        own = [case for case in rows if LEAST <= case.bytes <= MOST]
        if own:
            others = [case for case in cases_of("fit") if case.machine != machine]
            scopes = {series.scope(family) for series in series_of(rows)}
            parameters, _ = fitted(family, others, 1, shipped, scopes)
            links = family.links(parameters, UNKNOWN)
            yield LeftOut(name, machine, errors_of(series_of(own), links), _spread(own))


def _spread(own: Sequence[Case]) -> float | None:
    """Mean spread of the sources over the rows that this machine shares with others."""
    known = spreads(cases())
    shared = {known.get((c.cluster, c.kind, c.nodes, c.ranks)) for c in own}
    values = [value for value in shared if value is not None]
    return float(np.mean(values)) if values else None


def main(arguments: list[str] | None = None) -> None:
    """Print a line per machine, and the median over machines."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.validation")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    rows: list[tuple[str, ...]] = [("family", "machine", "n", "mean", "median", "bias", "spread")]
    means = []
    for name in parser.parse_args(arguments).families:
        for machine in left_out(name, FAMILIES[name]):
            size = np.abs(machine.errors)
            bias = f"{machine.errors.mean():+.1%}"
            spread = "-" if machine.spread is None else f"{machine.spread:.1%}"
            shown = (str(len(size)), f"{size.mean():.1%}", f"{np.median(size):.1%}", bias, spread)
            rows.append((name, machine.machine, *shown))
            means.append(float(size.mean()))
            print("  ".join(rows[-1]), flush=True)
    print("\n".join(columns(rows, left=(0, 1))))
    print(f"median over {len(means)} machines of their mean errors: {median(means):.1%}")


if __name__ == "__main__":
    main()
