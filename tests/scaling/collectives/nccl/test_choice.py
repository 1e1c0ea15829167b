"""What NCCL would choose, and what that takes by fitted figures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.candidates import ways
from scaling.collectives.cost import collective_time
from scaling.collectives.nccl.choice import as_nccl, check_has_nccl, ranking
from scaling.collectives.nccl.tuning import KINDS
from scaling.collectives.nccl.versions import VERSIONS
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of

IDEAL = ideal()
NAMES = ("dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72", "dgx-v100", "h100-pcie-8", "rtx4090-8")
SIZES = 2.0 ** np.arange(4, 34)


@st.composite
def calls(draw):
    """A kind, groups of the devices of a cluster, and the cluster."""
    cluster = catalog.load(draw(st.sampled_from(NAMES)), draw(st.sampled_from([1, 2, 4])))
    members = draw(st.sampled_from([n for n in (2, 4, 8, 16) if cluster.devices % n == 0]))
    ids = np.arange(cluster.devices)
    groups = ids.reshape(members, -1).T if draw(st.booleans()) else ids.reshape(-1, members)
    return draw(st.sampled_from(KINDS)), groups, cluster


def together(name, nodes=1):
    """All devices of a cluster as one group, and what its links achieve."""
    cluster = catalog.load(name, nodes)
    return np.arange(cluster.devices)[None], cluster, profile_of(cluster.accelerator)


@given(calls(), st.sampled_from(list(VERSIONS)))
def test_the_choice_is_the_least_of_the_estimates(call, version):
    found = ranking(call[0], SIZES, call[1], call[2], version)
    assert found.version == version
    least = np.take_along_axis(found.seconds, found.chosen()[None], axis=0)[0]
    assert (least == found.seconds.min(axis=0)).all()


@given(calls(), st.sampled_from(list(VERSIONS)))
def test_nothing_is_ranked_that_cannot_run(call, version):
    """`ways` refuses what an algorithm cannot do there."""
    kind, groups, cluster = call
    for algorithm, _ in ranking(kind, SIZES, groups, cluster, version).pairs:
        assert ways(kind, groups, cluster, IDEAL, algorithm)


@given(calls(), st.integers(1, 2**33))
def test_following_nccl_is_never_faster_than_the_fastest(call, size):
    """But where NCCL takes a tree inside one node, which is not considered there by itself."""
    kind, groups, cluster = call
    profile = profile_of(cluster.accelerator)
    try:
        fastest = collective_time(kind, float(size), groups, cluster, profile)
    except InputError:  # links that nothing was fitted on
        return
    followed = collective_time(kind, float(size), groups, cluster, profile, choice="nccl")
    if followed.algorithm in {way.algorithm for way in fastest.ways}:
        assert followed.time >= fastest.time * (1 - 1e-12)
    assert followed.time >= followed.lower_bound


def test_sizes_at_once_are_followed_one_by_one():
    groups, cluster, profile = together("dgx-h100", 4)
    at_once = collective_time("all-reduce", SIZES, groups, cluster, profile, choice="nccl").time
    single = [
        collective_time("all-reduce", float(n), groups, cluster, profile, choice="nccl").time
        for n in SIZES
    ]
    np.testing.assert_allclose(at_once, single)


def test_the_time_is_the_fitted_one_of_the_way_that_nccl_ranks_first():
    groups, cluster, profile = together("dgx-h100")
    cost = collective_time("all-reduce", 2.0**22, groups, cluster, profile, choice="nccl")
    pair = ranking("all-reduce", 2.0**22, groups, cluster)
    assert (cost.algorithm, cost.protocol) == pair.pairs[pair.chosen()[0]] == ("nvls", "Simple")
    (way,) = [w for w in cost.ways if w.algorithm == "nvls"]
    assert (
        cost.time == way.seconds(2.0**22) and cost.why == "as NCCL 2.30.7 chooses by its own table"
    )


def test_a_tree_that_is_never_the_fastest_is_followed_too():
    groups, cluster, profile = together("dgx-a100")
    slow_rings = replace(
        profile, links=tuple(fit for fit in profile.links if fit.algorithm in ("ring", "tree"))
    )
    usable = [w for w in ways("all-reduce", groups, cluster, profile, "auto")]
    assert "tree" not in {w.algorithm for w in usable}
    followed = as_nccl("all-reduce", 64.0, groups, cluster, slow_rings, usable, asked="tree")
    assert followed.way.algorithm == "tree"


def test_what_the_profile_has_no_figures_of_is_replaced_by_the_fastest_and_said():
    groups, cluster, profile = together("dgx-h100")
    rings = replace(profile, links=tuple(f for f in profile.links if f.algorithm == "ring"))
    cost = collective_time("all-reduce", 2.0**30, groups, cluster, rings, choice="nccl")
    assert cost.why == (
        f"NCCL 2.30.7 takes nvls Simple, which profile {profile.name} has no fit of: the fastest"
    )
    fastest = collective_time("all-reduce", 2.0**30, groups, cluster, rings)
    assert (cost.time, cost.algorithm, cost.protocol) == (
        *(fastest.time, fastest.algorithm, fastest.protocol),
    )


def test_figures_that_hold_for_any_algorithm_are_no_figures_of_nvls():
    """Gathers in the switch of a rack: nobody fitted them, and rings are no guide to them."""
    groups, cluster, profile = together("gb200-nvl72", 18)
    cost = collective_time("all-gather", 2.0**23, groups, cluster, profile, choice="nccl")
    assert "takes nvls Simple, which profile gb200 has no fit of" in cost.why
    assert cost.algorithm == "ring"


@pytest.mark.parametrize(
    ("kind", "asked", "why"),
    [
        ("all-to-all", "auto", "NCCL does not rank all-to-all: the fastest"),
        ("all-reduce", "hierarchical", "NCCL has no hierarchical here: the fastest"),
    ],
)
def test_what_nccl_does_not_rank_is_the_fastest(kind, asked, why):
    groups, cluster, _ = together("dgx-h100")
    usable = ways(kind, groups, cluster, IDEAL, asked)
    assert as_nccl(kind, 1e6, groups, cluster, IDEAL, usable, asked=asked).why == why


def test_an_algorithm_that_was_asked_for_is_kept_and_nccl_chooses_its_protocol():
    groups, cluster, profile = together("dgx-a100", 2)
    for size, protocol in ((2.0**10, "LL"), (2.0**30, "Simple")):
        cost = collective_time("all-reduce", size, groups, cluster, profile, "ring", "nccl")
        assert (cost.algorithm, cost.protocol) == ("ring", protocol)


@pytest.mark.parametrize("name", ["tpu-v4", "mi300x-8", "host"])
def test_nccl_chooses_nothing_where_there_is_none(name):
    cluster = catalog.load(name)
    with pytest.raises(InputError, match=f"{name} has no NVIDIA GPUs.*leave out --choice nccl"):
        check_has_nccl(cluster)
    with pytest.raises(InputError, match="leave out --choice nccl"):
        collective_time("all-reduce", 1e6, np.arange(2)[None], cluster, IDEAL, choice="nccl")


def test_versions_choose_differently():
    """A step of an NVLS tree over the network grew from 14 to 20.9 us in 2.28.9."""
    groups, cluster, _ = together("a3-mega", 2)
    taken = {}
    for version in ("2.27.7", "2.30.7"):
        found = ranking("all-reduce", 2.0**22, groups, cluster, version)
        taken[version] = found.pairs[found.chosen()[0]]
    assert taken == {"2.27.7": ("nvls-tree", "Simple"), "2.30.7": ("tree", "LL128")}
