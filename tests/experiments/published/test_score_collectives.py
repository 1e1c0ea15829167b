"""Scores of published collectives beside those of the baselines."""

from functools import lru_cache

import numpy as np
import pytest

from experiments.published import score_collectives
from experiments.published.baselines import spreads
from experiments.published.collectives import cases
from experiments.published.fit_links import series_of
from experiments.published.score_collectives import (
    against_nccl,
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


@pytest.mark.parametrize(("gpus", "error"), [(2, 0.346), (4, 0.214), (8, 0.198)])
def test_errors_of_nccls_model_on_eight_a100(gpus, error):
    """The points of vTrain out of place, of both parts together."""
    errors = [s.nccl for s in some() if s.machine == "vTrain A100 node" and s.ranks == gpus]
    assert np.abs(np.concatenate(errors)).mean() == pytest.approx(error, abs=0.0005)


def test_the_table_has_a_column_for_nccl_with_a_dash_where_it_does_not_rank():
    lines = table(some())
    assert lines[0].split()[-3:] == ["rule", "nccl", "spread"]
    last = {line.split()[0]: line.split()[-2] for line in lines[1:-2]}
    assert last["XLA"] == "-" and last["vTrain"].endswith("%")


@pytest.mark.parametrize("part", ["fit", "left"])
def test_fitted_figures_predict_better_than_the_model_by_which_nccl_chooses(part):
    ranked = [s for s in scores() if s.part == part and s.nccl is not None]
    ours, model = (
        np.median([np.abs(getattr(s, name)).mean() for s in ranked]) for name in ("errors", "nccl")
    )
    assert ours < model
    assert f"ours {ours:.1%}" in against_nccl(scores(), part)


def test_sources_that_measured_the_same_are_as_far_apart_as_counted_by_hand():
    """Two nodes of p5: three sources, of which two or three measured each size."""
    same = {}
    for c in cases():
        if (c.cluster, c.kind, c.nodes, c.ranks) == ("p5", "all-reduce", 2, 16):
            same.setdefault(c.bytes, []).append(c.time)
    distances = [
        abs(t * len(times) / sum(times) - 1)
        for times in same.values()
        if len(times) > 1
        for t in times
    ]
    assert spreads(cases())["p5", "all-reduce", 2, 16] == pytest.approx(np.mean(distances))


def test_figures_of_jax_are_nearer_to_its_own_tables_than_those_of_all_software():
    rows = [c for c in cases() if c.machine == "XLA table sm_90" and c.kind == "all-reduce"]
    mean = {
        software: np.mean(
            np.abs(np.concatenate([s.errors for s in scored(rows, software=software)]))
        )
        for software in ("any", "jax")
    }
    assert mean["jax"] < mean["any"]


def test_the_tables_are_written_to_a_folder(tmp_path, monkeypatch, capsys):
    few = tuple(c for c in cases() if c.machine in MACHINES)
    monkeypatch.setattr(score_collectives, "cases", lambda: few)
    score_collectives.main(["--out", str(tmp_path / "kept")])
    printed, kept = capsys.readouterr().out, (tmp_path / "kept" / "README.md").read_text()
    assert printed.strip() in kept and kept.startswith("# Published collectives")
