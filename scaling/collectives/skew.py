"""An all-to-all in which one member of each group receives more than the others.

Each of N members sends B bytes; the busiest receiver gets s B of all that, s times the mean, and
the others share the rest equally. Of what one member sends,

    to the busiest receiver   s / N          to each of the others   (N - s) / (N (N - 1))

so that, with S of a group in a unit and R in the region that its uplink serves,

    into the unit             (R - S) x the sum of these fractions over its S members
    out of it                 S x the sum over the R - S others

and the busier direction counts. The busiest receivers, one in each group, sit where it takes
longest: behind one and the same link, as when one expert of every replica is the favourite. As no
placement of them takes longer than the price, it does not depend on who is listed first.
"""

import numpy as np

from scaling.collectives.contention import Parts, changes
from scaling.meshes.errors import InputError
from scaling.program.ir import CollectiveKind


def check_skew(kind: CollectiveKind, skew: float, members: int) -> None:
    """Raise InputError unless an all-to-all of so many members can be skewed like that."""
    if kind != "all-to-all":
        raise InputError(
            f"skew {skew:g} is for all-to-all, where some may receive more than others; "
            f"{kind} gives every member the same: leave it out"
        )
    if not 1 <= skew <= members:
        raise InputError(
            f"skew {skew:g}: the busiest of {members} members receives from 1 (as much as the "
            f"others) to {members} times (everything) the mean; use a skew between them"
        )


def fractions(skew: float, members: int) -> tuple[float, float]:
    """Of what one member sends: to the busiest receiver, and to each of the others."""
    if members == 1:
        return 1.0, 0.0
    return skew / members, (members - skew) / (members * (members - 1))


def skewed_share(parts: Parts, members: int, skew: float, peers: int = 0) -> tuple[float, int]:
    """Bytes over the busiest pool, in its busier direction, and the groups that use it.

    Args:
        parts: of the groups, at one uplink.
        members: of a group.
        skew: 1 to `members`.
        peers: chips that a link each leads to; 0: a switch leads to all.

    Returns:
        Bytes over the pool per byte that one member sends, and a number of groups.
    """
    crosses = np.flatnonzero(parts.crosses)
    if not crosses.size:
        return 0.0, 0
    group, pool, count, inside, within = (
        labels[crosses]
        for labels in (parts.group, parts.pool, parts.count, parts.inside, parts.within)
    )
    away = within - inside
    links = parts.rings[crosses] * (away / peers if peers else 1)  # that share what a member sends
    busiest, others = fractions(skew, members)
    starts = np.flatnonzero(changes(group, pool))  # of what one group has in one pool
    all_here = np.add.reduceat(count, starts) == within[starts]
    sent = np.add.reduceat(count / links, starts)
    sent = sent - np.where(all_here, np.minimum.reduceat(inside / links, starts), 0.0)
    received = np.maximum.reduceat(away / links, starts)
    place = pool[starts]
    more = np.maximum(np.bincount(place, sent), np.bincount(place, received))
    totals = others * np.bincount(pool, count * away / links) + (busiest - others) * more
    most = int(np.argmax(totals))
    return float(totals[most]), int(np.count_nonzero(place == most))
