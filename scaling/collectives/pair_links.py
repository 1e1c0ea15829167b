"""Collectives over links between pairs of chips of a node.

    0 = 1     rings through all chips of a group share its bytes (`scaling.meshes.rings`);
    |   |     messages from 0 to 3, which have no link, go round them in the shorter direction
    2 - 3

An all-to-all over n chips of R rings, and a permute without links of its own, load each link with

    all-to-all   floor(n^2/4) / R of a message      permute   n / R of a message

The distances of n chips from one of them sum to floor(n^2/4), over the links in both directions.
Where n chips each send to one other, at most n/2 pass one link in one direction, and half of the
rings go that way. Both can be reached; no measurement tells how libraries route such messages.
"""

import numpy as np

from scaling.collectives.run_lengths import column_classes, run_starts
from scaling.meshes.rings import Links, ring_count


def have_rings(groups: np.ndarray, links: Links) -> bool:
    """True if the links of a node hold a ring of every group's members in each node.

    `groups` are device ids [groups, ranks], those of a group in the order of the devices.
    """
    flat = groups.ravel()
    new = run_starts(flat // len(links))
    new[:: groups.shape[1]] = True
    sets, _ = chip_sets(flat % len(links), np.flatnonzero(new))
    counts = [ring_count(links, chips) for chips in sets if len(chips) > 1]
    return bool(counts) and all(counts)


def ring_counts(chips: np.ndarray, starts: np.ndarray, links: Links) -> np.ndarray:
    """Rings through each run of chips of a node, or 1 where there are none; int [runs].

    The runs begin at `starts`.
    """
    sets, number = chip_sets(chips, starts)
    counts = [ring_count(links, members) if len(members) > 1 else 1 for members in sets]
    return np.maximum(1, np.array(counts))[number]


def chip_sets(chips: np.ndarray, starts: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Distinct sets of chips (0 to 61) among runs of `chips`, and the number of each run's set."""
    masks = np.bitwise_or.reduceat(np.left_shift(1, chips), starts)
    number, examples = column_classes(masks[None])
    sets = [tuple(i for i in range(62) if mask >> i & 1) for mask in masks[examples].tolist()]
    return sets, number


def own_links_share(source: np.ndarray, target: np.ndarray, links: Links) -> float | None:
    """Bytes over the busiest link per byte of a message if every pair uses its own links.

    None if some pair (devices of one node) has no link.
    """
    chips = len(links)
    count_of_pair = np.array(links)[source % chips, target % chips]
    if not count_of_pair.all():
        return None
    keys = source * (int(target.max()) + 1) + target
    _, first, count = np.unique(keys, return_index=True, return_counts=True)
    return float((count / count_of_pair[first]).max())
