"""Scores of published collectives beside those of the baselines."""

from functools import lru_cache

import numpy as np
import pytest

from experiments.published.collectives import cases
from experiments.published.fit_links import series_of
from experiments.published.score_collectives import (
    LEAST,
    MOST,
    against_nccl,
    by_nccl,
    scored,
    table,
)

MACHINES = ("vTrain A100 node", "XLA table gfx942", "Azure ND_A100_v4")


@lru_cache(maxsize=1)
def scores():
    """Of all points."""
    return scored(cases())


@lru_cache(maxsize=1)
def some():
    """Of three machines."""
    return scored([c for c in cases() if c.machine in MACHINES])


def series(machine, kind="all-reduce"):
    return series_of([c for c in cases() if c.machine == machine and c.kind == kind])


def test_nccl_estimates_what_it_ranks_and_nothing_else():
    assert by_nccl(series("vTrain A100 node")[0]) is not None
    assert by_nccl(series("XLA table gfx942")[0]) is None  # AMD's
    assert by_nccl(series("XLA table sm_90", "all-to-all")[0]) is None


def test_the_version_is_the_one_that_the_source_states():
    (azure,) = series("Azure ND_A100_v4")
    assert azure.nccl == "2.18.5" and series("vTrain A100 node")[0].nccl == ""
    assert all(s.nccl is None or len(s.nccl) == len(s.errors) for s in some())


@pytest.mark.parametrize(("gpus", "error"), [(2, 0.346), (4, 0.214), (8, 0.198)])
def test_errors_of_nccls_model_on_eight_a100(gpus, error):
    """The points of vTrain out of place, of both parts together."""
    found = [s.nccl for s in some() if s.machine == "vTrain A100 node" and s.ranks == gpus]
    assert np.abs(np.concatenate(found)).mean() == pytest.approx(error, abs=0.0005)


def test_the_table_has_a_column_for_nccl_with_a_dash_where_it_does_not_rank():
    lines = table(some())
    assert lines[0].split()[-2:] == ["rule", "nccl"]
    last = {line.split()[0]: line.split()[-1] for line in lines[1:-2]}
    assert last["XLA"] == "-" and last["vTrain"].endswith("%")


@pytest.mark.parametrize("part", ["fit", "left"])
def test_the_fastest_way_predicts_better_than_the_way_that_nccl_would_choose(part):
    """Which is why the fastest is taken unless --choice says otherwise."""
    ranked = [s for s in scores() if s.part == part and s.nccl is not None]
    fastest, chosen, model = (
        np.median([np.abs(getattr(s, name)).mean() for s in ranked])
        for name in ("errors", "chosen", "nccl")
    )
    assert fastest < chosen < model
    assert f"{fastest:.1%}" in against_nccl(scores(), part)


def test_points_are_those_that_the_goals_speak_of():
    assert (LEAST, MOST > 2**30) == (2**20, True)
    assert sum(len(s.errors) for s in scores()) > 1200
