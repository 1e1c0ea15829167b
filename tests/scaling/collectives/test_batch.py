"""Many collectives at once: the seconds of one by one, and no question priced twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives import batch
from scaling.collectives.batch import Axes, Call, collective_times
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import CollectiveFit, Evidence
from scaling.program.ir import COLLECTIVE_KINDS

H100 = catalog.load("dgx-h100", 8)
PROFILE = profile_of(H100.accelerator)
NAMES = ("dgx-h100", "dgx-v100", "rtx3090-10", "mi300x-8", "tpu-v5e", "gb200-nvl72")
SIZES = st.sampled_from([0.0, 1.0, 1e4, 3e6, 1e9])


@st.composite
def meshes(draw, devices):
    """Any mesh of at most so many devices."""
    sizes, left = {}, devices
    for axis in draw(st.permutations(AXES)):
        sizes[axis] = draw(st.integers(1, min(left, 8)))
        left //= sizes[axis]
    return MeshShape(**sizes)


@st.composite
def calls_on(draw, cluster):
    """A few calls, of which some ask the same but for the bytes."""
    groups = [
        Axes(mesh, tuple(draw(st.sets(st.sampled_from(AXES), min_size=1).map(sorted))))
        for mesh in draw(st.lists(meshes(cluster.devices), min_size=1, max_size=3))
    ]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups.append(rng.permutation(cluster.devices)[: cluster.devices // 2 * 2].reshape(2, -1))
    call = st.builds(Call, st.sampled_from(COLLECTIVE_KINDS), SIZES, st.sampled_from(groups))
    return draw(st.lists(call, max_size=12))


def alone(call, cluster, profile):
    groups = call.groups
    if isinstance(groups, Axes):
        groups = groups.mesh.groups(groups.names)
    where = groups, cluster, profile
    return collective_time(call.kind, call.bytes, *where, call.algorithm, skew=call.skew)


@given(st.sampled_from(NAMES), st.sampled_from([1, 4]), st.data())
def test_every_call_takes_as_long_as_by_itself(name, nodes, data):
    cluster = catalog.load(name, nodes)
    profile = data.draw(st.sampled_from([ideal(), profile_of(cluster.accelerator)]))
    calls = data.draw(calls_on(cluster))
    found, costs = (
        collective_times(calls, cluster, profile),
        [alone(c, cluster, profile) for c in calls],
    )
    assert found.time.tolist() == [cost.time for cost in costs]
    assert found.lower_bound.tolist() == [cost.lower_bound for cost in costs]


@given(calls_on(H100), st.randoms(use_true_random=False))
def test_the_order_of_the_calls_is_that_of_the_answers(calls, random):
    order = list(range(len(calls)))
    random.shuffle(order)
    found = collective_times(calls, H100, PROFILE)
    mixed = collective_times([calls[k] for k in order], H100, PROFILE)
    assert mixed.time.tolist() == found.time[order].tolist()


def test_skews_and_algorithms_are_questions_of_their_own():
    groups = Axes(parse_mesh("data=8,tensor=8"), ("tensor",))
    calls = [
        *[Call("all-to-all", 1e8, groups, skew=skew) for skew in (1.0, 1.5, 8.0)],
        *[Call("all-reduce", 1e8, groups, algorithm=name) for name in ("auto", "ring", "nvls")],
    ]
    found = collective_times(calls, H100, PROFILE).time.tolist()
    assert found == [alone(call, H100, PROFILE).time for call in calls]
    assert len(set(found)) == 5  # of these the fastest is NVLS


def test_the_same_groups_of_other_meshes_are_priced_once(monkeypatch):
    priced = []

    def counted(kind, bytes, *others, **more):
        priced.append((kind, np.size(bytes)))
        return collective_time(kind, bytes, *others, **more)

    monkeypatch.setattr(batch, "collective_time", counted)
    meshes = [
        parse_mesh(text) for text in ("data=8,tensor=8", "fsdp=8,tensor=8", "stage=8,tensor=8")
    ]
    calls = [Call("all-gather", 1e6 * n, Axes(mesh, ("tensor",))) for n, mesh in enumerate(meshes)]
    calls += [Call("all-reduce", 1e6, np.arange(64).reshape(8, 8)), *calls]
    collective_times(calls, H100, PROFILE)
    assert priced == [("all-gather", 6), ("all-reduce", 1)]


def test_lines_that_were_measured_are_taken_as_ever():
    host = catalog.load("host", overrides={"gpus_per_node": 4})
    evidence = Evidence("a test", "2026-11", "measured")
    line = CollectiveFit("all-reduce", 4, 1, 1e-4, 1e9, evidence, 1e5, 5e9)
    profile, everyone = replace(ideal(), collectives=(line,)), np.arange(4)[None]
    calls = [Call("all-reduce", size, everyone) for size in (1e3, 1e7)]
    found = collective_times(calls, host, profile)
    assert found.time.tolist() == [alone(call, host, profile).time for call in calls]


def test_no_calls_take_no_time():
    assert collective_times([], H100, PROFILE).time.size == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("all-gather", 1.0, np.array([[0, 64]])), "call 1, all-gather: groups name device 64"),
        (
            Call("all-gather", 1.0, np.arange(8)[None], "tree"),
            "call 1, all-gather: .* tree does not",
        ),
        (
            Call("all-gather", 1.0, np.arange(8)[None], skew=2.0),
            "call 1, all-gather: skew 2 is for",
        ),
        (Call("permute", 1.0, Axes(MeshShape(data=65), ("data",))), "data=65 needs 65 devices"),
    ],
)
def test_a_call_that_cannot_be_is_named(call, words):
    with pytest.raises(InputError, match=words):
        collective_times([Call("all-reduce", 1.0, np.arange(8)[None]), call], H100, PROFILE)
