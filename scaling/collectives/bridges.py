"""What goes straight from chip to chip over links between pairs: all-to-alls and permutes.

0 = 1     two to be sent from 0 to 3 go by way of 1 and of 2, one each (`scaling.meshes.detours`)
|   |
2 - 3     rings do not ask: each of them uses every one of its links (`scaling.meshes.rings`)
"""

from itertools import pairwise

import numpy as np

from scaling.meshes.detours import busiest_link, shortest_ways
from scaling.meshes.rings import Links


def permuted_share(groups: np.ndarray, paired: Links) -> tuple[float, float, int]:
    """Bytes over the busiest link per byte that a member sends: so routed, and at least; hops.

    Args:
        groups: rows of a permute [rows, members]: a pair, or a ring in which each sends to the
            next. What goes from node to node is left out.
        paired: links between the chips of a node.
    """
    node, chip = np.divmod(groups, len(paired))
    alike = np.unique(np.stack([node - node[:, :1], chip]), axis=1)
    rows = [_row_share(nodes, chips, paired) for nodes, chips in zip(*alike, strict=True)]
    share, hops = (max(found) for found in zip(*rows, strict=True))
    return share, float(share > 0) / max(map(sum, paired)), hops  # all links of a chip at once


def _row_share(node: np.ndarray, chip: np.ndarray, paired: Links) -> tuple[float, int]:
    """Of one row: each of its nodes by itself, with the row's chips there to go by."""
    places = list(zip(node.tolist(), chip.tolist(), strict=True))
    hops = list(pairwise(places if len(places) == 2 else [*places, places[0]]))
    most, longest = 0.0, 1
    for here in dict.fromkeys(node.tolist()):
        members = tuple(dict.fromkeys(c for n, c in places if n == here))
        pairs = [(a, b) for (m, a), (n, b) in hops if m == n == here and a != b]
        most = max(most, busiest_link(paired, members, pairs))
        ways = (way for pair in pairs for way in shortest_ways(paired, members, *pair))
        longest = max([longest, *(len(way) - 1 for way in ways)])
    return most, longest
