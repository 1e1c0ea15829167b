"""Pictures of finished runs: what is drawn of one whose prediction has no upper bound."""

import math
from types import SimpleNamespace

import pytest

import scaling as sc
from scaling.comparing.compare import Pair


def test_a_step_without_an_upper_bound_is_drawn_without_its_range(tmp_path):
    step = SimpleNamespace(seconds=Pair(1.0, 1.2))
    run = SimpleNamespace(
        name="run", folder=tmp_path, step_time=step, step_range=(0.8, math.inf),
        shares_cores=False, collectives=(), kernels=(),
    )  # fmt: skip
    sc.plot_comparisons([run], tmp_path / "scatter.svg")
    assert "<svg" in (tmp_path / "scatter.svg").read_text(encoding="utf-8")


def test_a_scatter_of_nothing_measured_is_refused(tmp_path):
    with pytest.raises(sc.InputError, match="nothing was both predicted"):
        sc.plot_comparisons([], tmp_path / "scatter.svg")
    assert not list(tmp_path.iterdir())
