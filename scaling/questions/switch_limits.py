"""Data parallelism where switches add up what passes: NVLink SHARP in a node, SHARP between nodes.

Every byte passes once, where a ring passes 2 (X - 1) / X of it: half the batch at most. That is the
textbook's number; the fitted one is of the best algorithm that libraries have.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.contention import place_groups
from scaling.collectives.explain import IDEAL, counted_link
from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Value
from scaling.questions.axis_answers import LimitsContext, tokens_over
from scaling.questions.block import UNSHARDED, WeightShards
from scaling.questions.exchanges import hidden_from, of_weights

IN_SWITCH = tuple(a.name for a in ALGORITHMS.values() if a.in_switch or a.in_network)
HALF = "half the bytes over that link per byte: one way of a sum, of which a ring has two"


def switch_limit(
    s: LimitsContext, groups: np.ndarray, cut: WeightShards = UNSHARDED
) -> Answer | None:
    """Return the tokens per device where switches add up what passes; None: no switch can.

    The textbook's number lets every byte pass once; the fitted one is of the best algorithm that
    the libraries have.
    """
    sums, rows = of_weights(s.mlp, cut, groups, s.cluster), list[dict[str, Value]]()
    for name in IN_SWITCH:
        with suppress(InputError):  # an algorithm that cannot run there
            tokens = [hidden_from(sums, profile, name) for profile in (IDEAL, s.profile)]
            row = {"textbook (tokens)": tokens[0], "fitted (tokens)": tokens[1]}
            rows.append({"algorithm": name, **row})
    if not rows:
        return None
    placement = place_groups(groups, s.cluster)
    both = zip(
        placement.loads("all-reduce")["hierarchical"],
        placement.loads("broadcast")["hierarchical"],
        strict=True,
    )
    least = [(level, (b if level.can_reduce else a).share) for (level, a), (_, b) in both]
    level, share = max(least, key=lambda pair: pair[1] / pair[0].bandwidth)
    links = counted_link(level, float(share) / 2, HALF)
    fitted = min(float(row["fitted (tokens)"]) for row in rows)  # type: ignore[arg-type]
    found = tokens_over(s, "sums in the switch", links, cut, fitted)
    return replace(found, rows=tuple(rows))
