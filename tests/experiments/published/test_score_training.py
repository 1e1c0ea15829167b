"""The tables of training runs: errors are as defined, and no row is lost."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from experiments.published.fit_software import (
    FITS,
    SEARCHED,
    central,
    priced,
    software_of,
)
from experiments.published.jax_programs import file_of, group_of, rows
from experiments.published.score_training import (
    Scored,
    memory_table,
    mfu_of,
    naive_error,
    scored,
    table,
    typical_mfu,
    worst,
)
from experiments.published.training import measured_runs
from scaling.analytic.software import traits_of
from scaling.meshes.errors import InputError
from scaling.run import read_run

ROW = measured_runs()[0]


def test_errors_refusals_and_ranges_are_counted_by_source():
    right = Scored(ROW, ROW.step_time, 0.9 * ROW.step_time, 1.1 * ROW.step_time)
    late = replace(right, time=1.5 * ROW.step_time, low=1.2 * ROW.step_time)
    refused = Scored(ROW, None, refusal="no such model")
    assert (right.error, late.error) == (pytest.approx(0), pytest.approx(0.5))
    assert right.in_range and not late.in_range
    head, line, medians = table([right, late, refused])
    assert line[1:8] == ["2", "25.0%", "25.0%", "+25.0%", "+50%", "50%", "1"]
    assert len(head) == len(line) == len(medians)
    assert worst([right, late, refused], 1)[1][-1] == "+50%"


def test_a_refusal_is_kept_with_its_words():
    def refuse(run):
        raise InputError("cannot")

    assert scored(ROW, refuse).refusal == "cannot"


def test_memory_is_scored_where_it_was_measured():
    row = replace(ROW, memory=2e9, memory_kind="allocated")
    lines = memory_table([Scored(row, 1.0, memory=1e9), Scored(ROW, 1.0, memory=1e9)])
    assert lines[1][2:4] == ["1", "50.0%"]


def test_the_naive_time_is_that_of_the_typical_mfu():
    assert 0.2 < typical_mfu() < 0.6
    assert 1 + naive_error(ROW) == pytest.approx(mfu_of(ROW) / typical_mfu())


def test_every_source_has_constants_that_were_fitted_without_it():
    fits = json.loads(FITS.read_text())
    for row in measured_runs():
        assert row.source in fits[software_of(row)]["without"]
    assert set(fits) == set(SEARCHED)


def test_the_shipped_constants_are_the_fitted_ones():
    for software, found in json.loads(FITS.read_text()).items():
        traits = traits_of(software)
        for name, value in found["constants"].items():
            assert getattr(traits, name) == value
        assert list(traits.range) == found["range"]


def test_the_range_holds_the_central_part_of_the_errors_of_left_out_sources():
    """Predictions of one source from 20 % too fast to 20 % too slow, each as often."""
    spread = np.log(np.linspace(0.8, 1.2, 401))
    least, most = central([spread])
    assert np.mean((spread < -np.log(least)) & (spread > -np.log(most))) == pytest.approx(0.9, 0.01)
    assert central([np.log([0.5, 0.5])]) == (1.0, 2.0)  # never without the prediction itself
    many, few = np.zeros(400), np.log([0.5] * 4)
    assert central([many, few]) == (1.0, 2.0)  # 4 of 404 rows have a twelfth of the weight


def test_a_slower_software_takes_longer():
    fast = priced(ROW, {"launch": 0.0, "traffic": 1.0, "products": 1.0})
    slow = priced(ROW, {"launch": 0.0, "traffic": 2.0, "products": 0.5})
    assert slow.timeline.total > 1.3 * fast.timeline.total


def test_the_program_of_every_compiled_step_is_kept():
    assert Counter(map(group_of, rows())).total() == 40
    for row in rows():
        run = read_run(row.run, row.id)
        assert file_of(row).exists() and run.mesh is not None
        assert np.isfinite(run.batch.tokens)
