"""What gloo sends: conservation, known small cases, and sums that come out right."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.gloo import messages as gloo
from experiments.gloo.messages import (
    KINDS,
    groups_over,
    link_bytes,
    rounds,
)

SIZE = 2.0**20
kinds, ranks = st.sampled_from(KINDS), st.integers(2, 17)


def received(kind, number, size=SIZE):
    """Bytes that each rank receives in all rounds."""
    total = Counter({rank: 0.0 for rank in range(number)})
    for messages in rounds(kind, number, size):
        for message in messages:
            total[message.target] += message.bytes
    return total


@given(kinds, ranks, st.floats(1.5, 1000))
def test_bytes_grow_with_the_size_and_rounds_do_not(kind, number, factor):
    small, large = received(kind, number), received(kind, number, factor * SIZE)
    assert large == pytest.approx({rank: factor * small[rank] for rank in small})
    assert len(rounds(kind, number, SIZE)) == len(rounds(kind, number, factor * SIZE))


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("all-reduce", lambda n: 2 * (n - 1) / n),
        ("all-gather", lambda n: (n - 1) / n),
        ("all-to-all", lambda n: (n - 1) / n),
        ("permute", lambda n: 1),
    ],
)
@given(number=ranks)
def test_every_rank_receives_what_the_textbook_says(kind, share, number):
    assert received(kind, number) == pytest.approx(
        dict.fromkeys(range(number), share(number) * SIZE)
    )


@given(ranks)
def test_a_reduce_scatter_moves_no_less_than_it_must(number):
    """Who ends with a part needs at least (n - 1) / n; in all, n ranks give n - 1 buffers away."""
    total = sum(received("reduce-scatter", number).values())
    assert total >= (number - 1) * SIZE * (1 - 1e-9)


def test_three_ranks_as_the_code_does_it():
    """Blocks of 2 and 1. Ranks 0 and 1 swap halves while 2 gives each of them one; then thirds."""
    first, second = rounds("reduce-scatter", 3, 6.0)
    assert {(m.source, m.target): m.bytes for m in first} == {
        (0, 1): 3, (1, 0): 3, (2, 0): 3, (2, 1): 3
    }  # fmt: skip
    found = {(m.source, m.target): m.bytes for m in second}
    assert found == pytest.approx({(0, 1): 1, (1, 2): 2})


@given(ranks)
def test_in_the_end_every_rank_has_its_share(number):
    largest = gloo._binary_blocks(number)[0][1]
    moved = Counter()
    for m in gloo._into_order(largest, number, 1.0):
        moved[m.target] += m.bytes
    for rank in range(number):
        part = gloo._reversed_bits(rank, largest) if rank < largest else None
        own = 0.0
        if part is not None:
            low, high = max(part / largest, rank / number), (rank + 1) / number
            own = max(0.0, min((part + 1) / largest, high) - low)
        assert moved[rank] + own == pytest.approx(1 / number)


# Links


def test_a_ring_over_all_crosses_each_link_once_each_way():
    flat = groups_over("all", 3, 2)
    assert flat == [[0, 1, 2, 3, 4, 5]]
    assert link_bytes("all-gather", flat, 2, 6.0) == [1.0] * 5


def test_groups_across_hosts_share_the_links():
    groups = groups_over("hosts", 3, 2)
    assert groups == [[0, 2, 4], [1, 3, 5]]
    assert link_bytes("permute", groups, 2, 5.0) == [10.0]


def test_inside_a_host_no_link_carries_anything():
    assert sum(link_bytes("all-reduce", [[0, 1], [2, 3]], 2, SIZE)) == 0
