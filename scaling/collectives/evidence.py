"""The evidence of one call: the range of its time, from that of the links it uses.

    half range = latency's share x latency_p90 + bytes' share x error_p90,  then x growth

Each share counts with the widest range among the levels that the call loads, so that no call
between nodes is surer than the network is. Beyond the ranks, nodes or bytes that were measured the
range grows with every doubling, and never shrinks.
"""

from dataclasses import replace
from math import log2

from scaling.collectives.candidates import Candidate
from scaling.profiles.profile import Evidence, Span

# Growth of 1 + the half range with each doubling beyond what was measured. Figures that were fitted
# on one and two nodes only are off by a factor of 1.33 on 248 H200 nodes, seven doublings away, and
# by 1.0 to 1.5 on eight systems of 3 to 12 nodes, as on two (experiments/published, "two_nodes").
GROWTH = 1.05


def call_evidence(
    candidate: Candidate, bytes: float, ranks: int, nodes: int
) -> tuple[Evidence, bool]:
    """The evidence of one call with the range of its time, and whether it lies beyond the data.

    Figures whose evidence states no range (a datasheet's) stay as they are.
    """
    known = [one.figures.evidence for one in candidate.loaded]
    wire = max(candidate.per_byte * bytes, candidate.torus_latency)
    share = candidate.latency / (candidate.latency + wire) if candidate.latency else 0.0
    decides = candidate.waits if candidate.is_late(bytes) else candidate.busiest.figures
    if any(each.error_p90 is None for each in known):
        return decides.evidence, False
    late = max(each.latency_p90 or each.error_p90 or 0.0 for each in known)
    wide = max(each.error_p90 or 0.0 for each in known)
    beyond = max(doublings(each.measured, bytes, ranks, nodes) for each in known)
    half = (1 + share * late + (1 - share) * wide) * GROWTH**beyond - 1
    return replace(decides.evidence, error_p90=half), beyond > 0


def doublings(span: Span | None, bytes: float, ranks: int, nodes: int) -> float:
    """Doublings from the nearest measurement: the most of those in ranks, nodes and bytes."""
    if span is None:
        return 0.0
    pairs = ((ranks, span.ranks), (nodes, span.nodes), (max(bytes, 1.0), span.bytes))
    return max(max(0.0, log2(value / most), log2(least / value)) for value, (least, most) in pairs)
