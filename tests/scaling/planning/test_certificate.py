"""A search leaves out nothing better: whole spaces are priced, and bounds hold for software."""

from dataclasses import replace

import numpy as np
import pytest

import scaling as sc
from scaling.collectives.cost import with_timed_calls
from scaling.meshes import catalog
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.errors import InputError
from scaling.planning import search as module
from scaling.planning.certificate import certificate
from scaling.planning.search import search
from scaling.planning.space import ChoicesBatch, all_choices
from scaling.planning.target import PlanTarget
from scaling.profiles.io import profile_of
from scaling.run import Run
from scaling.run.recipes import recipe
from scaling.simulate.batch import calls_of

EVERY = 10**6  # more meshes than there are: no bound leaves one out
SAME = 1e-9  # relative, of sums of float64
SICK = "p5, sick"  # with what a job measured there
SPACES = [
    ("tiny-moe", "jax", "dgx-v100", 2),
    pytest.param("tiny-moe", "megatron", SICK, 2, marks=pytest.mark.slow),
    pytest.param("gpt2-124m", "jax", "dgx-v100", 2, marks=pytest.mark.slow),
    pytest.param("tiny-moe", "megatron", "dgx-h100", 2, marks=pytest.mark.slow),
    pytest.param("llama3-8b", "jax", "dgx-h100", 2, marks=pytest.mark.slow),
    pytest.param("llama3-8b", "pytorch-fsdp", "dgx-a100", 2, marks=pytest.mark.slow),
    pytest.param("llama3-8b", "jax", "tpu-v5p", 4, marks=pytest.mark.slow),
    pytest.param("llama3-405b", "jax", "gb200-nvl72", 16, marks=pytest.mark.slow),
    pytest.param("mixtral-8x7b", "megatron", "dgx-h100", 4, marks=pytest.mark.slow),
    pytest.param("mixtral-8x7b", "jax", "dgx-h100", 8, marks=pytest.mark.slow),
    pytest.param("deepseek-v3", "nemo", "dgx-b200", 16, marks=pytest.mark.slow),
]


def placed(name: str, software: str, cluster: str, nodes: int) -> PlanTarget:
    run: Run = replace(recipe(name), mesh=None, software=software)
    place = catalog.load(cluster.removesuffix(", sick"), nodes)
    value = lambda seconds, devices: seconds
    profile = profile_of(place.accelerator)
    if cluster == SICK:
        calls = [
            MeasuredCall("all-reduce", 8, 2.0**20, seconds=1e-5),  # faster than the fits
            MeasuredCall("all-gather", 16, 2.0**30, nodes=2, bus_bandwidth=30e9),
        ]
        profile = with_timed_calls(profile, place, calls)
    return PlanTarget(run, place, profile, value)


@pytest.mark.parametrize(("name", "software", "cluster", "nodes"), SPACES)
def test_the_best_are_those_of_pricing_the_whole_space(name, software, cluster, nodes):
    target = placed(name, software, cluster, nodes)
    found, whole = (search([(target, _space(target))], top) for top in (3, EVERY))
    assert (whole.pruned, whole.left, certificate([found]).gap) == (0, 0, 0.0)
    assert found.space == whole.space == whole.priced + whole.infeasible
    assert found.space == found.priced + found.pruned + found.infeasible and found.pruned
    assert whole.infeasible == sum(whole.refusals.values())
    for hit, best in zip(found.best[:3], whole.best[:3], strict=True):
        assert hit.value == pytest.approx(best.value, rel=SAME) and hit.run == best.run
    for axis in best.choices.mesh.sizes:  # nor is a better mesh left out that cuts this axis
        pair = [_first(state.best, axis) for state in (found, whole)]
        assert pair[0] == pytest.approx(pair[1], rel=SAME), axis


@pytest.mark.parametrize(("name", "software", "cluster", "nodes"), SPACES)
def test_no_bound_is_above_a_price(name, software, cluster, nodes):
    """The loose and the tight one, of the settings of each seventh mesh."""
    target = placed(name, software, cluster, nodes)
    for choices in list(_space(target))[::7]:
        least = choices.mesh.batch_shards * np.asarray(choices.grid.microbatches)
        enough = least <= target.run.batch.global_batch
        if choices.refusal or not enough.any():
            continue
        batch = ChoicesBatch((choices.only(enough),))
        program = target.program(batch)
        if target.misplaced(choices.mesh, program):
            continue
        calls = calls_of(program, target.prices)
        tight, seconds = calls.least(), calls.timeline().total
        for bound in (target.bound(batch), tight):
            assert np.all((0 < bound) & (bound <= seconds * (1 + SAME))), choices.mesh


def test_a_search_that_is_stopped_says_how_far_it_may_be_from_the_best(monkeypatch):
    target = placed("gpt2-124m", "jax", "dgx-h100", 1)
    monkeypatch.setattr(module, "FIRST_BOUNDED", 1)
    whole, stopped = (search([(target, _space(target))], 1, seconds=s) for s in (None, 0.0))
    assert stopped.left and stopped.space == (
        stopped.priced + stopped.pruned + stopped.infeasible + stopped.left
    )
    best, least, gap = stopped.best[0].value, whole.best[0].value, certificate([stopped]).gap
    assert gap is not None and best * (1 - gap) <= least * (1 + SAME) and least <= best


def test_the_page_and_the_document_certify():
    found = sc.plan("gpt2-124m", cluster="dgx-h100", mesh="fsdp=8", top=1, seconds=60)
    made = found.to_dict()["certificate"]
    refused, cut = sum(made["refused"].values()), made["cut"]
    parts = made["evaluated"] + cut["time"] + cut["calls"] + refused + made["left"]
    assert made["space"] == parts and made["gap"] == 0 and found.optimal
    assert "certificate: gap 0.00%: " in str(found)
    with pytest.raises(InputError, match="seconds -1: a search takes 0 or more"):
        sc.plan("gpt2-124m", cluster="dgx-h100", seconds=-1)


def _space(target: PlanTarget):
    """Of four devices where a test is quick."""
    return all_choices(target.run, 4 if target.cluster.nodes == 1 else target.cluster.devices)


def _first(hits, axis: str) -> float:
    return next((hit.value for hit in hits if getattr(hit.choices.mesh, axis) > 1), 0.0)
