"""`sc.plan`: what it warns of, and what it refuses."""

import re

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.profiles.profile import CollectiveFit
from tests.scaling.host_profile import HERE, host_profile


def test_a_format_that_is_priced_is_planned_with_a_warning():
    """The trainer has no fp16, and V100 no bf16: `predict` prices that step, so `plan` does."""
    fp16 = {"precision.compute": "fp16"}
    found = sc.plan("gpt2-355m", cluster="dgx-station-v100", set=fp16, top=1)
    (warning,) = found.warnings
    assert "'fp16' is not yet trained" in warning and warning in str(found)
    alone = sc.predict(found.plans[0].run, cluster="dgx-station-v100", source="analytic")
    assert alone.step_time == found.plans[0].prediction.step_time
    assert not sc.plan("gpt2-355m", cluster="dgx-a100", top=1).warnings


def test_an_optimizer_that_is_not_there_is_an_error():
    with pytest.raises(InputError, match="did you mean 'adamw'"):
        sc.plan("gpt2-355m", cluster="dgx-a100", set={"optimizer": "adamwx"})


def test_what_only_a_mesh_hinders_leaves_the_other_meshes():
    dense = {"model.moe.first_dense_layers": 1}
    found = sc.plan("mixtral-8x7b", cluster="dgx-h100", nodes=8, set=dense, top=20)
    assert not found.warnings and {plan.run.mesh.stage for plan in found.plans} == {1}


def test_this_machine_is_planned_by_what_its_calibration_measured():
    """It has no links with figures, only lines of collectives; groups of one are free there too."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
    lines = tuple(CollectiveFit(k, n, 8 // n, 1e-5, 1e9, HERE) for k in kinds for n in (2, 4, 8))
    calibration = host_profile(8, collectives=lines)
    found = sc.plan("tiny", cluster="host", calibration=calibration, top=1)
    alone = sc.predict(
        found.plans[0].run, cluster="host", source="analytic", calibration=calibration
    )
    assert alone.step_time == pytest.approx(float(found.step_time))


@pytest.mark.slow  # two searches on 16 nodes
def test_what_a_sick_network_changes_in_the_choice():
    row = {"collective": "all-reduce", "ranks": 16, "nodes": 2, "bytes": 2**30}
    sick = [row | {"bus_bandwidth": 10e9}]
    run = {"name": "tiny", "model": {"preset": "llama3-1b"}, "software": "megatron"}
    run["batch"] = {"global_batch": 32, "seq_len": 2048}
    where = {"cluster": "dgx-h100", "nodes": 2}
    found = sc.plan(run, **where, top=1, measured=sick)
    first = found.plans[0]
    assert found.network and found.network in " ".join(str(found).split())
    assert re.search(r"network at \d% .* on 2 nodes: the first choice (was|is)", found.network)
    again = sc.predict(first.run, **where, measured=sick, source="analytic")
    assert again.step_time == pytest.approx(first.step_time)
    sound = sc.plan(run, **where, top=1)
    assert sound.network is None and sound.step_time < first.step_time
    carried = run | {"cluster": {"name": "dgx-h100", "nodes": 2, "measured": sick}}
    assert sc.plan(carried, top=1).step_time == first.step_time
    assert sc.load_run(carried).cluster.measured[0].bus_bandwidth == 10e9


def test_one_network_was_measured_not_two():
    row = {"collective": "all-reduce", "ranks": 8, "bytes": 2**30, "seconds": 0.01}
    with pytest.raises(InputError, match="measured is of one cluster"):
        sc.plan("gpt2-124m", cluster="dgx-h100,p5", measured=[row])
    sick, sound = (
        sc.scaling_curves("gpt2-124m", "p5", (1, 2), source="analytic", measured=calls)
        for calls in ([row], None)
    )
    assert sick.strong[0].step_time > sound.strong[0].step_time
    assert sick.strong[1].step_time == sound.strong[1].step_time  # between nodes, not measured


def test_what_is_better_beyond_the_risk_is_shown_apart():
    how = {"nodes": 2, "set": {"software": "deepspeed"}, "top": 1}
    found = sc.plan("llama3-8b", "dgx-a100-40g", risk=0.002, **how)
    assert found.best.prediction.memory.fit_probability >= 0.998
    for plan in found.beyond:
        assert 0.5 <= plan.prediction.memory.fit_probability < 0.998
        assert plan.step_time < found.step_time and "lacks" in plan.why
    assert found.beyond and "beyond the risk" in str(found)
    assert len(found.to_dict()["beyond"]) == len(found.beyond)


@pytest.mark.parametrize("risk", [0, 1, 2])
def test_a_risk_is_a_probability(risk):
    with pytest.raises(sc.InputError, match=f"--risk {risk}|risk={risk}"):
        sc.plan("tiny", "dgx-h100", risk=risk)
