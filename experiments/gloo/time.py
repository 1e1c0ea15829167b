"""Predicted seconds of the collectives of JAX's CPU backend (gloo) on a testbed.

    ring            each round takes the longer of: its bytes; one latency for every two segments
                    plus half of its bytes (two segments are in flight at any time)
    two-way pairs   A and B send first and then request to receive; the later one's request waits in
                    the TCP stream behind its data, so the messages run one after the other
    reduce-scatter  rounds x latency + bytes on the busiest link of every round

Two-way pairs are those of all-to-all, of permute between two ranks, and of all-gather between two
ranks, whose message is in two halves. The order is random: the mean over orders is taken.
All-reduce requests first and then sends, so its pairs do both at once.

Read in pytorch/gloo at 70dc360272df: gloo/transport/tcp/pair.cc (send, recv and their
notifications), gloo/allreduce.h (segments of at most 1 MiB), gloo/allgather.cc; and in openxla/xla
at 3e1a45f9a740, xla/backends/cpu/collectives/gloo_communicator.cc. Work of the hosts (copies, sums,
allocation of memory) is not included.
"""

import itertools
import math
import random
from collections.abc import Sequence

from experiments.gloo.messages import Message, link_bytes, rounds
from experiments.gloo.sharing import Transfer, finish_time

MTU = 1500  # bytes of an IP packet, the default of an Ethernet device (RFC 894)
ETHERNET = 14  # bytes of header, which tc's token bucket counts too (RFC 894)
IP, TCP = 20, 20 + 12  # bytes of headers (RFC 791; RFC 9293 with the timestamps of RFC 7323)
PAYLOAD_SHARE = (MTU - IP - TCP) / (MTU + ETHERNET)  # 0.956 of what a link carries
SEGMENT = 2**20  # bytes at most, of an all-reduce (kMaxSegmentSize of gloo/allreduce.h)
IN_FLIGHT = 2  # segments of a ring at any time (gloo/allreduce.cc, gloo/allgather.cc)
ORDERS = 128  # at most; drawn at random where there are more, 2 to the number of pairs


def predicted_time(
    kind: str,
    groups: Sequence[Sequence[int]],
    devices: int,
    size: float,
    bandwidth: float,
    latency: float,
) -> float:
    """Seconds of a collective in all `groups` at once.

    Args:
        kind, groups, devices, size: as in `messages.link_bytes`.
        bandwidth: bytes/s of a link, headers included.
        latency: s of a round, measured with a small message.
    """
    rate = PAYLOAD_SHARE * bandwidth
    ranks = len(groups[0])
    link = link_bytes(kind, groups, devices, size)
    if kind == "all-reduce" or (kind == "all-gather" and ranks > 2):
        largest = SEGMENT if kind == "all-reduce" else size
        segments = max(IN_FLIGHT, math.ceil(size / ranks / largest))
        return sum(_ring_round(carried / rate, segments, latency) for carried in link)
    if kind == "reduce-scatter" or (kind == "permute" and ranks > 2):
        return len(link) * latency + sum(link) / rate
    pairs = len(groups) * ranks * (ranks - 1) // 2
    times = [
        finish_time(_in_order(kind, groups, devices, size, swaps), rate) for swaps in _orders(pairs)
    ]
    return latency + sum(times) / len(times)


def _ring_round(transfer: float, segments: int, latency: float) -> float:
    """`transfer`: s that the bytes of the round take on the busiest link."""
    return max(transfer, segments / IN_FLIGHT * latency + transfer / IN_FLIGHT)


def _orders(pairs: int) -> list[tuple[bool, ...]]:
    """For every pair, whether the higher rank is first: all orders, or a fixed sample."""
    if 2**pairs <= ORDERS:
        return list(itertools.product((False, True), repeat=pairs))
    draw = random.Random(0)
    return [tuple(draw.random() < 0.5 for _ in range(pairs)) for _ in range(ORDERS)]


def _in_order(
    kind: str,
    groups: Sequence[Sequence[int]],
    devices: int,
    size: float,
    swaps: Sequence[bool],
) -> list[Transfer]:
    """All transfers; those of a two-way pair run one after the other."""
    swap = iter(swaps)
    transfers: list[Transfer] = []
    for group in groups:
        (messages,) = rounds(kind, len(group), size)
        back = {(m.target, m.source): m for m in messages if m.source > m.target}
        for message in (m for m in messages if m.source < m.target):
            pair = [message, back[message.source, message.target]]
            if next(swap):
                pair.reverse()
            transfers += _pair(pair, group, devices, len(transfers), halves=kind == "all-gather")
    return transfers


def _pair(
    pair: list[Message], group: Sequence[int], devices: int, start: int, halves: bool
) -> list[Transfer]:
    """The transfers of one pair; `start` is the position of the first among all."""
    hosts = [(group[m.source] // devices, group[m.target] // devices) for m in pair]
    first, second = (m.bytes for m in pair)
    if not halves:
        return [Transfer(*hosts[0], first), Transfer(*hosts[1], second, (start,))]
    return [
        Transfer(*hosts[0], first / 2),
        Transfer(*hosts[0], first / 2, (start,)),
        Transfer(*hosts[1], second / 2, (start,)),
        Transfer(*hosts[1], second / 2, (start + 1, start + 2)),
    ]
