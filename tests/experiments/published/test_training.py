"""The published training runs and their split."""

import pytest

from experiments.published.split import split, write_split
from experiments.published.training import (
    DENSE_RULE,
    DENSE_SPLIT,
    RULE,
    SPLIT,
    dense_runs,
    groups,
    jax_runs,
    measured_runs,
    memory_runs,
)
from scaling.run import read_run


def test_every_row_is_a_run_with_a_measured_time_and_a_source():
    rows = measured_runs()
    assert len(rows) == len({row.id for row in rows}) == 1187
    for row in rows:
        run = read_run(row.run, row.id)
        assert run.name == row.id and run.mesh and run.cluster and run.software != "jax"
        assert 0.01 < row.step_time < 1000 and row.source and row.reference
        assert (row.memory is None) == (row.memory_kind is None)


def test_runs_that_score_memory_are_others():
    rows = memory_runs()
    assert len(rows) == 15 and not {row.id for row in rows} & {row.id for row in measured_runs()}
    for row in rows:
        assert read_run(row.run, row.id).mesh and row.memory and row.reference and row.notes


@pytest.mark.parametrize(
    ("path", "rows", "rule"),
    [(SPLIT, measured_runs, RULE), (DENSE_SPLIT, dense_runs, DENSE_RULE)],
)
def test_the_parts_are_those_of_the_rule_and_hold_every_group_once(tmp_path, path, rows, rule):
    assert not split(path)["fit"] & split(path)["left"]
    write_split(tmp_path / "split.json", groups(rows()), rule)
    assert (tmp_path / "split.json").read_bytes() == path.read_bytes()


def test_dense_programs_have_a_recipe():
    rows = dense_runs()
    assert len(rows) == len({row.group for row in rows}) == 18
    for row in rows:
        run = read_run(row.run, row.id)
        assert run.name == row.id and run.software == "jax" and "configure.sh" in row.reference
        assert run.mesh is not None and run.mesh.devices == 8 * run.cluster.nodes
        assert row.options["xla_gpu_enable_pipelined_all_gather"]


def test_rows_of_compiled_programs_have_an_address():
    assert len(jax_runs()) == 150
    assert all(row["source_url"].startswith("https://") for row in jax_runs())
