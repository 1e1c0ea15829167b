"""How far figures are off on rows that they were not fitted on, from the rows that may be fitted.

The part `fit` is dealt into folds by a hash; each is predicted from figures fitted on the others.
What is shipped as the range of a prediction is the 90 % quantile of these errors, by collective and
by where it runs: inside a node, where the links decide, or between nodes, where fabrics differ.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from experiments.published.collectives import Case
from experiments.published.families import Family, Where
from experiments.published.fit_links import errors_of, fitted, series_of
from scaling.profiles.profile import Evidence

FOLDS = 5
FEWEST = 20  # errors below which a quantile of nine tenths rests on two points: take all kinds'
UNKNOWN = Evidence("", "", "calibrated")  # while figures are searched

Errors = dict[tuple[str, Where], np.ndarray]  # (kind, where) -> predicted / measured - 1


def fold_of(case: Case) -> int:
    """0 to FOLDS - 1, from another byte than the split's."""
    return hashlib.sha256(case.key.encode()).digest()[1] % FOLDS


def cross_errors(family: Family, cases: Sequence[Case]) -> Errors:
    """Errors of every case, each by figures that were fitted without its fold."""
    found: dict[tuple[str, Where], list[np.ndarray]] = defaultdict(list)
    own = [case for case in cases if family.holds(case)]
    for fold in range(FOLDS):
        rest = [case for case in own if fold_of(case) != fold]
        figures, _ = fitted(family, rest, starts=1)
        links = family.links(figures, UNKNOWN)
        for series in series_of([case for case in own if fold_of(case) == fold]):
            found[series.kind, series.place(family)].append(errors_of([series], links))
    return {key: np.concatenate(errors) for key, errors in found.items()}


def quantile(errors: Errors, kind: str, where: Where, part: float = 0.9) -> float | None:
    """The factor, less one, within which that part of the points is, either way.

    Kinds with few points take those of all kinds there; None where those are few as well.
    """
    own = errors.get((kind, where), np.array([]))
    if len(own) < FEWEST:
        own = np.concatenate([np.array([]), *(e for key, e in errors.items() if key[1] == where)])
    if len(own) < FEWEST / 2:
        return None
    return float(np.quantile(np.exp(np.abs(np.log1p(own))) - 1, part))
