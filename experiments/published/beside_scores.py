"""Errors of what is no kernel alone: products beside other work, and collectives over PCIe.

    overlap.csv.gz        pairs and mixtures of a product, an all-gather and host copies; each
                          machine is left out of the fit in turn (`fit_overlap`)
    intranode_pcie.csv    cards that reach each other; the box is left out of the fit (`left_out`)

`roofline` of a mixture is its longest part; of a collective, the bytes of a device over its link.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments.published import fit_overlap
from experiments.published.fit_overlap import Mixtures, predicted
from experiments.published.kernel_scores import Score
from scaling.profiles.io import INTERFERENCE


def overlap_scores() -> list[Score]:
    """The scores of each machine, of pairs with an all-gather and of mixtures with copies."""
    found = fit_overlap.mixtures()
    pairs = fit_overlap.pairs_of(found)
    scores = []
    for machine in dict.fromkeys(found.machine):
        others = pairs[pairs.machine != machine]
        borrowed = replace(INTERFERENCE, cores=fit_overlap.fitted(others).cores)
        own = found[found.machine == machine]
        for kind, mixed in _kinds(own):
            scores.append(_overlap(kind, str(machine), mixed, borrowed))
    return scores


def _kinds(own: Mixtures) -> Iterator[tuple[str, Mixtures]]:
    """Mixtures of a machine by what is in them."""
    product, gather, *copies = own.alone > 0
    with_copies = np.logical_or(*copies)
    where = "between nodes" if own.crosses[0] else "inside a node"
    for kind, which in (
        (f"product beside an all-gather, {where}", product & gather & ~with_copies),
        (f"mixtures with host copies, {where}", with_copies),
    ):
        if np.any(which):
            yield kind, own[which]


def _overlap(
    kind: str, machine: str, own: Mixtures, borrowed: fit_overlap.InterferenceFit
) -> Score:
    chip, _, groups = machine.partition(", ")
    worst = replace(INTERFERENCE, cores=INTERFERENCE.most)
    low, high = predicted(own, None), predicted(own, worst, worst.held_up)
    inside = (low <= own.seconds) & (own.seconds <= high)
    errors = (predicted(own, fit) / own.seconds - 1 for fit in (INTERFERENCE, borrowed))
    now, left = errors
    longest = own.alone.max(axis=0) / own.seconds - 1
    return Score(kind, chip, groups, own.seconds, now, inside, left, inside, longest)
