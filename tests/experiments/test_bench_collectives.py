"""What the benchmark of collectives prices, and that it says seconds; not how many."""

import math

import pytest

from experiments import bench_collectives
from experiments.bench_collectives import (
    BATCH,
    SHAPES,
    mixed_calls,
    price_at_once,
    price_seconds,
)
from scaling.meshes import catalog
from scaling.profiles.io import ideal
from scaling.program.ir import COLLECTIVE_KINDS

SMALL = catalog.load("dgx-h100", 2)


def test_calls_are_mixed_and_always_the_same():
    calls = mixed_calls(SMALL, 500)
    assert [(c.kind, c.bytes, c.groups) for c in mixed_calls(SMALL, 500)] == [
        (c.kind, c.bytes, c.groups) for c in calls
    ]
    assert {call.kind for call in calls} == set(COLLECTIVE_KINDS)
    assert len({call.bytes for call in calls}) == len(calls)
    assert bool((price_at_once(calls, SMALL, ideal()) > 0).all())


def test_the_batch_has_ten_thousand_calls_on_three_hundred_shapes():
    calls = mixed_calls(catalog.load("dgx-h100", 64), BATCH)
    assert len(calls) == 10_000 and len({call.groups for call in calls}) == SHAPES == 300


@pytest.mark.parametrize("which", ["data", "all"])
@pytest.mark.parametrize("before", [False, True])
def test_one_price_says_its_seconds(which, before):
    assert 0 <= price_seconds(which, 16, before) < math.inf


def test_a_process_of_its_own_prints_one_number(capsys):
    bench_collectives.main(["--only", "all", "--nodes", "2"])
    assert float(capsys.readouterr().out) >= 0


@pytest.mark.slow
def test_all_of_them_run_and_print_a_table(capsys):
    bench_collectives.main(["--rounds", "1"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split()[:2] == ["benchmark", "ratio"]
    assert len(rows) == 1 + 2 * 2 * 2 + 2
    assert all(row.startswith("collective ") for row in rows[1:])
