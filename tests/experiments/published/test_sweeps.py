"""The published sweeps, as runs."""

from collections import Counter

import pytest

from experiments.published.sweeps import MODELS, buses_of, is_ill, playbook, problems
from scaling.run import read_run


def test_every_configuration_is_a_run_on_all_devices_of_its_problem():
    rows = playbook()
    assert len(rows) == len({row.id for row in rows}) == 2172
    assert Counter(row.status for row in rows) == {"oom": 1098, "ok": 909, "failed": 165}
    assert {row.model for row in rows} == set(MODELS)
    for row in rows[::20]:
        run = read_run(row.run, row.id)
        assert run.mesh is not None and run.mesh.devices == row.gpus == 8 * run.cluster.nodes
        sequences = run.batch.global_batch / (run.mesh.data * run.mesh.fsdp)
        assert sequences % run.batch.microbatches == 0


def test_what_ran_was_measured_and_only_that():
    for row in playbook():
        ran = row.status == "ok"
        assert ran == bool(row.step_time) == bool(row.reserved) == bool(row.fabric)
        assert not row.ranks or ran
        assert row.evidence or row.status == "failed" or row.mesh["stage"] > 1
        if ran and row.reserved and row.allocated:
            assert row.allocated < row.reserved < 80 * 2**30 and len(row.buses) in (3, 6)


def test_a_slow_network_is_a_quarter_of_a_good_one():
    ran = [row for row in playbook() if row.gpus == 128 and row.ranks]
    of = lambda fabric: {
        (bus.collective, bus.ranks): bus.bandwidth
        for bus in buses_of(row for row in ran if row.fabric == fabric)
    }
    good, slow = of("good"), of("slow")
    assert slow["all-reduce", 128] / good["all-reduce", 128] == pytest.approx(0.25, abs=0.1)
    assert slow["all-reduce", 8] / good["all-reduce", 8] == pytest.approx(1, abs=0.1)


def test_an_ill_job_of_the_sound_network_is_in_no_problem():
    ill = [row for row in playbook() if row.ranks and is_ill(row)]
    assert [row.id.partition("-")[0] for row in ill] == ["14098567"]
    assert not [row for problem in problems() for row in problem.rows if row in ill]
