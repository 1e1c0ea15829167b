"""The space: every mesh once, every setting of it, and a reason for what cannot run."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.planning.refusals import Refusals
from scaling.planning.space import all_choices, choices, meshes
from scaling.run import Loss, Pipeline
from scaling.run.parallelism.checks import check_trainable_mesh
from scaling.run.parallelism.rules import rules_for
from scaling.run.recipes import recipe
from scaling.run.run import ClusterChoice

DENSE, EXPERTS = recipe("tiny"), recipe("tiny-moe")


@given(st.integers(1, 96), st.booleans())
def test_every_product_of_axis_sizes_is_there_once(devices, moe):
    run = EXPERTS if moe else DENSE
    found = [str(mesh.sizes) for mesh in meshes(run, devices)]
    axes, expected = 6 if moe else 5, 1
    for prime in range(2, devices + 1):
        power = 0
        while devices % prime == 0:
            devices, power = devices // prime, power + 1
        expected *= math.comb(power + axes - 1, axes - 1)
    assert len(set(found)) == len(found) == expected


def test_settings_are_those_that_the_mesh_has_room_for():
    found = choices(DENSE, parse_mesh("data=2,fsdp=2"))  # 8 sequences, 2 on each shard
    runs = {found.run(DENSE, i) for i in range(found.count)}
    assert {run.batch.microbatches for run in runs} == {1, 2}
    assert {run.sharding.zero_stage for run in runs} == {1, 3}
    assert {run.remat for run in runs} == {"none", "selective", "full"}
    assert len(runs) == found.count == 2 * 2 * 3 and not found.refusal
    other = choices(replace(DENSE, software="megatron"), parse_mesh("fsdp=4"))
    assert set(np.asarray(other.grid.zero_stage)) == {1, 2, 3}
    pairs = replace(DENSE, train=replace(DENSE.train, loss=Loss("dpo")))  # no microbatch parts one
    assert {*np.asarray(choices(pairs, parse_mesh("data=2,fsdp=2")).grid.microbatches)} == {1}


def test_the_policy_that_a_run_names_is_one_more():
    named = replace(DENSE, remat="minimal")
    found = choices(named, parse_mesh("data=2,fsdp=2"))
    assert found.count == 2 * 2 * 4
    runs = {found.run(named, i).remat for i in range(found.count)}
    assert runs == {"none", "selective", "full", "minimal"}
    offloaded = replace(DENSE, remat="minimal_offloaded")  # not in stages
    assert choices(offloaded, parse_mesh("stage=2")).count == 4 * 3


@given(st.sampled_from(["jax", "megatron"]), st.integers(1, 64), st.booleans(), st.data())
def test_a_refusal_is_that_of_the_whole_mesh(software, devices, moe, data):
    """Though its parts are found once for all meshes."""
    run = replace(EXPERTS if moe else DENSE, software=software)
    refusals = Refusals(run)
    for mesh in data.draw(st.lists(st.sampled_from([*meshes(run, devices)]), max_size=6)):
        count, expected = data.draw(st.sampled_from([1, 2, 4])), ""
        tried = replace(run, mesh=mesh, batch=replace(run.batch, microbatches=count))
        try:
            if software == "jax":
                check_trainable_mesh(tried, mesh, "plan")
            rules_for(tried, mesh)
        except InputError as error:
            expected = str(error)
        assert refusals.of(mesh, count) == expected


def test_what_cannot_run_says_why():
    assert "model.n_heads=4 is not divisible by tensor=8" in next(
        c.refusal for c in all_choices(DENSE, 8) if c.mesh.tensor == 8
    )
    interleaved = replace(DENSE, pipeline=Pipeline("interleaved", 2))
    refusal = choices(interleaved, parse_mesh("stage=2")).refusal
    assert "n_layers=2 is not divisible by stage=2 x pipeline.virtual_stages=2" in refusal
    theirs = replace(interleaved, software="megatron")
    theirs = replace(theirs, model=replace(theirs.model, n_layers=8))
    found = choices(theirs, parse_mesh("stage=2"))
    assert not found.refusal and set(np.asarray(found.grid.microbatches)) == {2, 4, 8}


def test_a_run_with_tables_of_its_own_has_a_space():
    choice = ClusterChoice(name="dgx-h100", overrides={"memory": 40e9})
    run = replace(DENSE, cluster=choice, train=replace(DENSE.train, data={"stdlib": 1.0}))
    assert [c.mesh for c in all_choices(run, 4)] == [c.mesh for c in all_choices(DENSE, 4)]


def test_a_mesh_that_is_given_is_the_only_one():
    run = replace(DENSE, mesh=parse_mesh("fsdp=4,tensor=2"))
    assert [str(c.mesh) for c in all_choices(run, 8)] == ["fsdp=4,tensor=2"]
