"""An all-to-all on a ring that sends one way, against pieces that are passed on one by one."""

import pytest

import scaling as sc


def busiest_link(members: int) -> float:
    """Pieces over the busiest link of a one-way ring in which everyone sends to everyone."""
    crossed = [0] * members
    for source in range(members):
        for distance in range(1, members):
            for hop in range(distance):
                crossed[(source + hop) % members] += 1
    return max(crossed)


@pytest.mark.parametrize(("nodes", "members"), [(1, 8), (4, 32)])
def test_a_link_carries_what_a_walk_of_all_pieces_puts_on_it(nodes, members):
    size = 2**20
    found = sc.price_collective(
        "all-to-all", size, "dgx-h100", nodes, algorithm="one-way-ring", ideal=True
    )
    links = found.to_dict()["levels"][nodes > 1]  # of a chip, or of a node
    assert links["bytes"] == pytest.approx(busiest_link(members) * size / members)


def test_nobody_is_given_it_unasked():
    for ideal in (True, False):
        assert sc.price_collective("all-to-all", 2**20, "dgx-h100", ideal=ideal).algorithm != (
            "one-way-ring"
        )


def test_its_fitted_time_has_the_figures_of_sends_to_each_peer():
    times = [
        sc.price_collective("all-to-all", 2**30, "dgx-h100", algorithm=name).time
        for name in ("pairwise", "one-way-ring")
    ]
    assert 2 < times[1] / times[0] < 5  # of the bytes: (N - 1)/2 over (N - 1)/N, 4
