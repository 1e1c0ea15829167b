"""The search: as good as pricing every configuration by itself, and it says what it left out."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import scaling as sc
import scaling.api.plan as planning
from scaling.analytic.program import closed_form
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.models.accounting.remat import SavedTensors
from scaling.models.lora import Lora
from scaling.planning import search as module
from scaling.planning.bounds import least_memory
from scaling.planning.search import PlanTarget, Search, search
from scaling.planning.space import ChoicesBatch, all_choices, batched
from scaling.profiles.io import profile_of
from scaling.run.recipes import recipe
from scaling.simulate.batch import timeline_of
from scaling.simulate.capacity import capacity_of
from scaling.simulate.memory import memory_use
from scaling.simulate.prediction import TERMS
from scaling.simulate.step import price
from tests.scaling.cli.running import run as run_command

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)
RUN = replace(recipe("gpt2-124m"), mesh=None)
RUN = replace(RUN, batch=replace(RUN.batch, global_batch=8))
FEW_DEVICES = pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])


def target(run=RUN, cluster=H100) -> PlanTarget:
    return PlanTarget(run, cluster, PROFILE, lambda seconds, devices: seconds)


@cache
def everything(devices: int):
    """Step time and peak memory of every configuration that can run, each priced alone."""
    found = {}
    for choice in all_choices(RUN, devices):
        for i in range(0 if choice.refusal else choice.count):
            one = choice.run(RUN, i)
            priced = price(closed_form(one, one.mesh, H100), H100, PROFILE)
            found[one] = float(priced.timeline.total), float(priced.memory.peak)
    return found


@FEW_DEVICES
def test_the_best_is_that_of_pricing_every_configuration_alone(devices: int):
    state = search([(target(), all_choices(RUN, devices))], top=5)
    times: dict[str, float] = {}
    for one, (seconds, peak) in everything(devices).items():
        if peak <= 78e9:
            times[str(one.mesh)] = min(seconds, times.get(str(one.mesh), seconds))
    assert [f.step_time for f in state.best[:5]] == pytest.approx(sorted(times.values())[:5])
    best = state.best[0]
    seconds, _ = everything(devices)[best.choices.run(RUN, best.index)]
    assert best.step_time == pytest.approx(seconds)
    assert sum(best.time.values()) - best.time["hidden_communication"] == pytest.approx(seconds)
    assert state.space == state.priced + state.pruned + state.infeasible


@FEW_DEVICES
def test_no_price_is_below_the_bound(devices: int):
    times: dict[str, float] = {}
    for one, (seconds, _) in everything(devices).items():
        times[str(one.mesh)] = min(seconds, times.get(str(one.mesh), seconds))
    for choice in all_choices(RUN, devices):
        if not choice.refusal:
            bound = target().bound(ChoicesBatch((choice,)))
            assert np.min(bound) <= times[str(choice.mesh)]


@pytest.mark.parametrize("mesh", ["fsdp=4", "data=2,tensor=2"])
def test_neither_is_that_of_adapters(mesh):
    """Whose step has no gradients of matrices."""
    run = replace(RUN, train=replace(RUN.train, lora=Lora(8, targets=("query", "down"))))
    for choice in all_choices(run, 4):
        if str(choice.mesh) == mesh and not choice.refusal:
            bound = target(run).bound(ChoicesBatch((choice,)))
            program = closed_form(choice.run(run, 0), choice.mesh, H100, choice.grid)
            assert np.all(bound <= price(program, H100, PROFILE).timeline.total)
            assert np.all(least_memory(run, choice) <= memory_use(program).peak * (1 + 1e-9))


def test_a_better_bound_leaves_meshes_out_and_finds_the_same(monkeypatch):
    whole = search([(target(), all_choices(RUN, 4))], top=1000)
    exact = {str(f.choices.mesh): f.value for f in whole.best}
    of = lambda each: np.full(each.count, exact.get(str(each.mesh), 0.0))
    bound = lambda _, choices: np.concatenate([of(each) for each in choices.every])
    monkeypatch.setattr(PlanTarget, "bound", bound)
    monkeypatch.setattr(module, "FIRST_BOUNDED", 1)
    found = search([(target(), all_choices(RUN, 4))], top=1)
    assert found.cut["time"] > 0 and found.best[0].value == whole.best[0].value
    assert found.space == found.priced + found.pruned + found.infeasible


def test_plans_are_predictions_in_order_that_fit():
    found = sc.plan(RUN, cluster="dgx-h100", top=3, tokens=1e9)
    times = [float(plan.prediction.step_time) for plan in found.plans]
    assert times == sorted(times) and len(times) == 3 and found.optimal
    first = found.plans[0]
    assert first.prediction.memory.fits and first.prediction.source == "analytic"
    assert first.prediction == sc.predict(first.run, "dgx-h100", source="analytic")
    steps = 1e9 / first.prediction.tokens_per_second
    assert first.total_time == pytest.approx(steps / first.goodput) and 0.99 < first.goodput < 1
    assert first.device_hours == pytest.approx(8 * first.total_time / 3600)
    board, limit = first.prediction.power.total, 8 * 700 * first.total_time
    assert 0.2 * 700 < board < 0.9 * 700 and 0.5 * limit < first.energy < 2 * limit
    for name in ("total_time", "energy", "money"):
        low, high = getattr(first, f"{name}_range")
        assert low < getattr(first, name) < high
    assert [plan.why for plan in found.plans][1].startswith("+")
    assert "why others lose" in str(found) and "next: sc.predict(" in str(found)


def test_cost_may_take_fewer_nodes():
    found = sc.plan(RUN, cluster="dgx-h100", nodes=2, objective="cost", top=1)
    assert found.plans[0].prediction.devices == 8


def test_the_document_of_the_command(capsys):
    options = ["tiny", "--cluster", "dgx-h100", "--top", "2", "--mesh", "fsdp=8", "--json"]
    code, out, _ = run_command(capsys, "plan", *options)
    found = json.loads(out)
    assert code == 0 and {"plans", "space", "priced", "pruned", "infeasible"} <= set(found)
    assert found["optimal"] is True and found["seconds"] > 0
    (only,) = found["plans"]
    assert only["rank"] == 1 and only["run"]["mesh"]["fsdp"] == 8 and only["why"]
    assert only["prediction"]["memory"]["fits"] and only["prediction"]["step_time"] > 0


def test_that_nothing_fits_is_an_answer(capsys):
    options = ["llama3-405b", "--cluster", "dgx-h100", "--mesh", "fsdp=8", "--json"]
    code, out, _ = run_command(capsys, "plan", *options)
    found = json.loads(out)
    assert code == 0 and found["plans"] == []
    assert "nothing fits: mesh fsdp=8" in found["error"] and "lacks" in found["error"]


def test_that_no_verified_plan_fits_is_said(monkeypatch):
    """Closed forms fit; what is compiled in their place here does not."""
    real = planning.predict

    def predicted(run, cluster, source, **options):
        found = real(run, cluster, source="analytic", **options)
        if source == "analytic":
            return found
        memory = replace(found.memory, peak=found.memory.capacity + 2**30, fits=False)
        return replace(found, source=source, memory=memory)

    monkeypatch.setattr(planning, "predict", predicted)
    found = sc.plan(RUN, cluster="dgx-h100", top=2, verify=2)
    assert found.plans == () and found.verified == 0 and found.error is not None
    assert found.error.startswith("2 plan(s) fit by their closed forms, and none by its compiled")
    assert "lacks 1 GiB" in found.error and "mesh fsdp=8" in found.error


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="objective: "):
        sc.plan(RUN, cluster="dgx-h100", objective="speed")
    with pytest.raises(InputError, match="has no figure 'power'"):
        sc.plan(RUN, cluster="tpu-v4", objective="energy")
    with pytest.raises(InputError, match="top=0 must be a whole number"):
        sc.plan(RUN, cluster="dgx-h100", top=0)


@pytest.mark.slow
@pytest.mark.deviceless
def test_verified_plans_are_priced_from_their_compiled_programs():
    found = sc.plan("tiny", cluster="dgx-h100", top=3, verify=2)
    assert [plan.prediction.source for plan in found.plans] == ["compiled", "compiled", "analytic"]
    times = [float(plan.prediction.step_time) for plan in found.plans[:2]]
    assert times == sorted(times) and found.verified == 2


def test_configurations_that_do_not_fit_never_need_less_than_their_bound():
    experts = replace(recipe("tiny-moe"), mesh=None)
    for run in (RUN, experts):
        for choice in all_choices(run, 4):
            if not choice.refusal:
                program = closed_form(choice.run(run, 0), choice.mesh, H100, choice.grid)
                peak = memory_use(program).peak
                assert np.all(least_memory(run, choice) <= peak * (1 + 1e-9)), choice.mesh


def test_priced_at_once_is_priced_one_by_one():
    """Kernels and collectives in rows of arrays, as each by itself."""
    for choice in list(all_choices(RUN, 4))[::3]:
        if not choice.refusal:
            program = closed_form(choice.run(RUN, 0), choice.mesh, H100, choice.grid)
            single, batch = price(program, H100, PROFILE), timeline_of(program, target().prices)
            for part in ("total", *TERMS):
                expected = getattr(single.timeline, part)
                assert np.allclose(getattr(batch, part), expected, rtol=1e-12, atol=1e-15)


def test_a_policy_that_the_run_names_is_priced_as_by_itself():
    run = replace(RUN, remat=SavedTensors(("query", "key", "value", "attention"), ("mlp_up",)))
    where = target(run)
    for choice in list(all_choices(run, 4))[::4]:
        if not choice.refusal:
            program = where.program(ChoicesBatch((choice,)))
            figures = timeline_of(program, where.prices).total, memory_use(program).peak
            for i in range(choice.count):
                one = choice.run(run, i)
                priced = price(closed_form(one, one.mesh, H100), H100, PROFILE)
                alone = priced.timeline.total, priced.memory.peak
                got = [np.broadcast_to(figure, choice.count)[i] for figure in figures]
                assert np.allclose(got, alone, rtol=1e-12), one
            assert np.all(least_memory(run, choice) <= memory_use(program).peak * (1 + 1e-9))


RECIPES = [
    ("gpt2-124m", "nanotron"),
    ("mixtral-8x7b", "megatron"),
]
MORE = [
    ("deepseek-v3", "jax"),
    ("gpt2-124m", "jax"),
    ("qwen3-0.6b", "megatron"),
    ("mixtral-8x7b", "jax"),
    ("llama3-8b", "jax"),
]
RECIPES += [pytest.param(*recipe, marks=pytest.mark.slow) for recipe in MORE]


@pytest.mark.parametrize(("name", "software"), RECIPES)
def test_meshes_side_by_side_are_each_by_itself(name: str, software: str):
    """Seconds of every term, bytes at the peak and capacity, two settings of each mesh of a sample,
    on 16 chips of which all-to-alls take memory."""
    run = replace(recipe(name), mesh=None, software=software)
    place = catalog.load("dgx-v100" if name == "gpt2-124m" else "dgx-h100", 2)
    where = PlanTarget(run, place, profile_of(place.accelerator), lambda seconds, devices: seconds)
    runnable = [choice for choice in all_choices(run, 16) if not choice.refusal]
    generator = np.random.default_rng(0)
    for choices in batched(run, runnable):
        program = where.program(choices)
        line, memory = timeline_of(program, where.prices), memory_use(program).peak
        capacity = capacity_of(place, program, software).bytes
        figures = [getattr(line, part) for part in ("total", *TERMS)]
        columns = [choices.parts(f) for f in (*figures, memory, capacity)]
        sampled = generator.choice(len(choices.every), min(3, len(choices.every)), replace=False)
        for number in sampled:
            choice = choices.every[number]
            for i in {0, int(generator.integers(choice.count))}:
                one = choice.run(run, i)
                alone = closed_form(one, choice.mesh, place)
                priced = price(alone, place, where.profile)
                expected = [getattr(priced.timeline, part) for part in ("total", *TERMS)]
                expected += [priced.memory.peak, capacity_of(place, alone, software).bytes]
                got = [column[number][i] for column in columns]
                slack = 1e-12 * float(priced.timeline.total)
                assert np.allclose(got, expected, rtol=1e-12, atol=slack), (choice.mesh, i)


def test_a_search_of_too_many_devices_is_refused_before_any_mesh_is_priced(monkeypatch):
    """Without it llama3-8b on 65,536 nodes of gb200-nvl72 takes minutes: 1,098 meshes may fit."""
    monkeypatch.setattr(Search, "tight", None)
    monkeypatch.setattr(module, "MOST_DEVICES", 20)
    with pytest.raises(InputError, match="meshes of up to 4 devices may fit, .*: use fewer nodes"):
        search([(target(), all_choices(RUN, 4))], top=1)
