"""Ticks of a pipeline: every microbatch meets every part of the layers, in order, once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.pipeline.schedule import Ticks, layer_order

TICKS = st.builds(
    lambda stages, rounds, groups, rest: Ticks(
        stages, rounds, groups * stages if rounds > 1 else groups + rest
    ),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
)


def replayed(ticks: Ticks) -> dict[int, list[tuple[int, int, int]]]:
    """microbatch -> (tick, stage, round) of all that is done for it, by handing on only."""
    done: dict[int, list[tuple[int, int, int]]] = {m: [] for m in range(ticks.microbatches)}
    entering = {int(tick): m for m, tick in enumerate(ticks.entries)}
    made: list[int | None] = [None] * ticks.stages
    for tick in range(ticks.total):
        arrived = [made[-1] if ticks.rounds > 1 else None, *made[:-1]]
        made = [entering[tick] if ticks.enters[tick] else arrived[0], *arrived[1:]]
        for stage, microbatch in enumerate(made):
            if microbatch is not None and (
                len(done[microbatch]) < ticks.rounds * ticks.stages
            ):  # afterwards it goes around unseen
                done[microbatch].append((tick, stage, int(ticks.round_of(tick, stage))))
    return done


@given(TICKS)
def test_every_microbatch_passes_all_parts_in_order_in_consecutive_ticks(ticks: Ticks) -> None:
    parts = [(r, s) for r in range(ticks.rounds) for s in range(ticks.stages)]
    for microbatch, done in replayed(ticks).items():
        assert [(round_, stage) for _, stage, round_ in done] == parts
        times = [tick for tick, _, _ in done]
        assert times == list(range(times[0], times[0] + len(parts)))
        assert times[0] == ticks.entries[microbatch] and times[-1] == ticks.exits[microbatch]


@given(TICKS)
def test_a_stage_is_idle_in_stages_minus_one_ticks(ticks: Ticks) -> None:
    busy = [(tick, stage) for done in replayed(ticks).values() for tick, stage, _ in done]
    every = [(t, s) for t in range(ticks.total) for s in range(ticks.stages)]
    assert sorted(busy) == [(t, s) for t, s in every if ticks.works(t, s)]
    assert len(set(busy)) == len(busy)
    for stage in range(ticks.stages):
        assert sum(s == stage for _, s in busy) == ticks.total - (ticks.stages - 1)
    assert ticks.overhead == pytest.approx(ticks.total / (ticks.total - ticks.stages + 1))
    assert ticks.exits.max() == ticks.total - 1


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_part_r_of_stage_s_is_the_r_times_stages_plus_s_th(stages, rounds, layers) -> None:
    order = layer_order(stages * rounds * layers, stages, rounds)
    rows = order.reshape(stages, rounds, layers)
    for s in range(stages):
        for r in range(rounds):
            first = (r * stages + s) * layers
            assert rows[s, r].tolist() == list(range(first, first + layers))
    assert sorted(order) == list(range(len(order)))


def test_one_round_keeps_the_order_of_the_layers() -> None:
    assert np.array_equal(layer_order(12, 4, 1), np.arange(12))
    assert layer_order(8, 2, 2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_the_tables_of_the_docstring() -> None:
    gpipe, circular = Ticks(3, 1, 4), Ticks(2, 2, 4)
    assert (gpipe.total, gpipe.entries.tolist()) == (6, [0, 1, 2, 3])
    assert (circular.total, circular.entries.tolist()) == (9, [0, 1, 4, 5])
    assert circular.exits.tolist() == [3, 4, 7, 8]
    assert circular.round_of(np.arange(1, 9), 1).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
