"""What one collective takes: definitions of nccl-tests, ranges, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import bus_factor
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal, profile_of
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.simulate.collective import collective_groups, collective_prices

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)
KEYS = {
    *("kind", "bytes", "ranks", "groups", "time", "time_low", "time_high", "algorithm_bandwidth"),
    *("bus_bandwidth", "algorithm", "protocol", "bottleneck", "lower_bound", "grade"),
    *("choice", "switches", "levels"),
}


def one(kind, size=2**30, cluster=H100, profile=PROFILE, mesh=None, axes=(), **options):
    groups = collective_groups(cluster, parse_mesh(mesh) if mesh else None, axes)
    return collective_prices(kind, [size], groups, cluster, profile, **options)[0]


def test_the_answer_has_the_keys_of_the_contract():
    assert set(one("all-reduce").to_dict()) == KEYS


def test_a_skew_is_in_the_answer_only_where_it_was_asked_for():
    asked = one("all-to-all", skew=1.0).to_dict()
    assert set(asked) == {*KEYS, "skew"}
    dense = one("all-to-all").to_dict()
    assert set(dense) == KEYS and dense == {key: asked[key] for key in KEYS}


@given(st.sampled_from(COLLECTIVE_KINDS), st.integers(1, 2**34), st.sampled_from([1, 2, 16]))
def test_bandwidths_follow_from_bytes_and_time(kind, size, nodes):
    answer = one(kind, size, catalog.load("dgx-h100", nodes))
    assert answer.algorithm_bandwidth == pytest.approx(size / answer.time)
    factor = bus_factor(kind, 8 * nodes)
    assert answer.bus_bandwidth == pytest.approx(answer.algorithm_bandwidth * factor)
    assert answer.lower_bound <= answer.time_low <= answer.time <= answer.time_high


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all-reduce", 8) == 14 / 8
    assert bus_factor("all-gather", 8) == bus_factor("all-to-all", 8) == 7 / 8
    assert bus_factor("broadcast", 8) == bus_factor("permute", 8) == 1


def test_without_latency_and_losses_the_time_is_the_bound():
    answer = one("all-gather", profile=ideal())
    assert answer.time == answer.lower_bound == pytest.approx(2**30 * 7 / 8 / 450e9)


def test_groups_come_from_the_mesh():
    cluster = catalog.load("dgx-h100", 4)
    answer = one("all-gather", cluster=cluster, mesh="data=4,tensor=8", axes=("data",))
    assert (answer.groups, answer.ranks) == (8, 4)
    assert answer.bottleneck.startswith("NICs of a node: 8 groups")
    first = collective_groups(cluster, parse_mesh("data=4"), ())
    np.testing.assert_array_equal(first, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(collective_groups(H100), np.arange(8)[None])


def test_a_group_of_one_is_free():
    answer = one("all-reduce", mesh="data=1", axes=("data",))
    assert (answer.time, answer.algorithm_bandwidth, answer.algorithm) == (0, 0, "none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "all-shuffle"}, "all-shuffle"),
        ({"kind": "all-gather", "algorithm": "tree"}, "tree does not do all-gather"),
        ({"kind": "all-reduce", "algorithm": "rings"}, "ring"),
        ({"kind": "broadcast", "skew": 1.0}, "broadcast gives every member the same"),
        ({"kind": "all-reduce", "mesh": "data=16"}, "needs 16 devices"),
        ({"kind": "all-reduce", "axes": ("data",)}, "--axis data needs --mesh"),
        ({"kind": "all-reduce", "mesh": "data=8", "axes": ("dat",)}, "data"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(options, words):
    with pytest.raises(InputError, match=words):
        one(**options)


def test_the_choice_says_what_else_could_run_and_what_nccl_would_take():
    answer = one("all-reduce")
    others = [a.algorithm for a in answer.choice.alternatives]
    assert answer.choice.by == "fastest" and answer.algorithm not in others
    assert len(others) == len(set(others)) > 0
    times = [a.time for a in answer.choice.alternatives]
    assert times == sorted(times) and times[0] >= answer.time
    document = answer.to_dict()["choice"]
    assert set(document) == {"by", "why", "alternatives", "nccl"}
    assert set(document["alternatives"][0]) == {"algorithm", "time"}
    assert set(document["nccl"]) == {"version", "algorithm", "protocol", "estimate"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tpu-v4", "all-reduce"), ("mi300x-8", "all-reduce"), ("dgx-h100", "all-to-all")],
)
def test_where_nccl_has_no_say_nothing_is_said_of_it(name, kind):
    cluster = catalog.load(name)
    answer = one(kind, cluster=cluster, profile=profile_of(cluster.accelerator))
    assert answer.choice.nccl is None and set(answer.to_dict()["choice"]) == {
        *("by", "why", "alternatives"),
    }
