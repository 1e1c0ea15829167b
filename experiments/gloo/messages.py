"""Messages of the collectives of JAX's CPU backend (gloo), and the bytes on each host's link.

    all-reduce      ring, 2 (n - 1) rounds of size / n to the rank before
    all-gather      ring, n - 1 rounds of size / n to the rank after
    reduce-scatter  halving among blocks of 1, 2, 4 ... ranks, then shares put in order
    all-to-all      one round, size / n to everybody
    permute         one round, size to the rank after

`experiments.gloo.time` predicts their seconds.

Read in openxla/xla, xla/backends/cpu/collectives/gloo_communicator.cc at 3e1a45f9a740 (it asks for
the ring by name and does all-to-all and permute itself) and pytorch/gloo at 70dc360272df:
gloo/allreduce.cc, gloo/allgather.cc, gloo/reduce_scatter.h.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from scaling.meshes.errors import InputError, nearest


@dataclass(frozen=True)
class Message:
    """Bytes that one rank of a group sends to another."""

    source: int
    target: int
    bytes: float


Round = tuple[Message, ...]  # messages that may be in flight at once; the next round needs them


def rounds(kind: str, ranks: int, size: float) -> list[Round]:
    """The rounds of messages of one collective.

    Args:
        kind: all-reduce, all-gather, reduce-scatter, all-to-all or permute (next in ring).
        ranks: of the group.
        size: bytes as nccl-tests counts them: the full buffer for all-reduce, the unsharded total
            for all-gather and reduce-scatter, what one rank sends for the others.

    Raises:
        InputError: gloo has no such kind here.
    """
    if kind not in KINDS:
        raise InputError(f"unknown collective {kind!r}; {nearest(kind, KINDS)}")
    if ranks == 1:
        return []
    if kind == "all-reduce":
        return 2 * (ranks - 1) * [_ring(ranks, -1, size / ranks)]
    if kind == "all-gather":
        return (ranks - 1) * [_ring(ranks, 1, size / ranks)]
    if kind == "permute":
        return [_ring(ranks, 1, size)]
    if kind == "all-to-all":
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        return [tuple(Message(a, b, size / ranks) for a, b in pairs)]
    return _reduce_scatter(ranks, size)


KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")


def groups_over(axis: str, hosts: int, devices: int) -> list[list[int]]:
    """Groups of device numbers; host h has devices h x `devices` to (h + 1) x `devices` - 1.

    Args:
        axis: "all": one group of all devices; "hosts": for each place in a host, one group.
    """
    if axis == "all":
        return [list(range(hosts * devices))]
    return [list(range(place, hosts * devices, devices)) for place in range(devices)]


def link_bytes(
    kind: str, groups: Sequence[Sequence[int]], devices: int, size: float
) -> list[float]:
    """Bytes of payload on the busiest direction of a host's link, for each round.

    Args:
        groups: device numbers; all groups run at once.
        devices: of each host; messages between two of them use no link.
        size: as in `rounds`, for each group.
    """
    per_group = [rounds(kind, len(group), size) for group in groups]
    busiest = []
    for rounds_now in zip(*per_group, strict=True):
        load: defaultdict[tuple[str, int], float] = defaultdict(float)
        for group, messages in zip(groups, rounds_now, strict=True):
            for message in messages:
                source, target = (group[r] // devices for r in (message.source, message.target))
                if source != target:
                    load["out", source] += message.bytes
                    load["in", target] += message.bytes
        busiest.append(max(load.values(), default=0.0))
    return busiest


def payload_bound(link: Sequence[float], bandwidth: float) -> float:
    """Lower bound in seconds: the bytes of `link_bytes` without headers or latency."""
    return sum(link) / bandwidth


def _ring(ranks: int, step: int, size: float) -> Round:
    return tuple(Message(rank, (rank + step) % ranks, size) for rank in range(ranks))


def _reduce_scatter(ranks: int, size: float) -> list[Round]:
    """Recursive halving in each block, then smaller blocks into larger ones, then reordering.

    13 ranks are blocks of 8, 4 and 1. After its own halvings a block of b ranks holds the sum of
    its inputs in b parts; it hands them to the next larger block, which does the same. Parts of
    the largest block lie in bit-reversed order and are of size / b, not size / ranks: each rank
    at last sends its part to those whose share it is.
    """
    blocks = _binary_blocks(ranks)
    by_block = [_halvings(start, count, size) for start, count in blocks]
    for i in range(1, len(blocks)):
        by_block[i].append(_into_larger(blocks[i], blocks[i - 1], size))
    merged = zip_longest(*by_block, fillvalue=())
    largest = blocks[0][1]
    steps = [tuple(m for messages in parts for m in messages) for parts in merged]
    shares = _into_order(largest, ranks, size)
    return [*steps, shares] if shares else steps


def _binary_blocks(ranks: int) -> list[tuple[int, int]]:
    """(first rank, number) of each block, the largest first: (0, 8), (8, 4), (12, 1) of 13."""
    blocks, start = [], 0
    for bit in reversed(range(ranks.bit_length())):
        if ranks >> bit & 1:
            blocks.append((start, 1 << bit))
            start += 1 << bit
    return blocks


def _halvings(start: int, count: int, size: float) -> list[Round]:
    """Each rank swaps with the one 1, 2, 4 ... away: half of the buffer, a quarter, an eighth."""
    steps = count.bit_length() - 1
    return [
        tuple(
            Message(start + rank, start + (rank ^ 1 << step), size / 2 ** (step + 1))
            for rank in range(count)
        )
        for step in range(steps)
    ]


def _into_larger(block: tuple[int, int], larger: tuple[int, int], size: float) -> Round:
    """Each rank's part, split to the part size of the larger block and sent to its owners."""
    (start, count), (first, number) = block, larger
    messages = []
    for rank in range(count):
        part = _reversed_bits(rank, count) * (number // count)
        for piece in range(part, part + number // count):
            target = first + _reversed_bits(piece, number)
            messages.append(Message(start + rank, target, size / number))
    return tuple(messages)


def _into_order(largest: int, ranks: int, size: float) -> Round:
    """From the parts of the largest block to the equal shares of all ranks."""
    messages = []
    for part in range(largest):
        source = _reversed_bits(part, largest)
        for target in range(ranks):
            start = max(part / largest, target / ranks)
            end = min((part + 1) / largest, (target + 1) / ranks)
            if end - start > 0.5 / (largest * ranks) and source != target:
                messages.append(Message(source, target, (end - start) * size))
    return tuple(messages)


def _reversed_bits(number: int, count: int) -> int:
    """3 of 8 is 6: binary 011 read backwards."""
    bits = count.bit_length() - 1
    return sum((number >> i & 1) << (bits - 1 - i) for i in range(bits))
