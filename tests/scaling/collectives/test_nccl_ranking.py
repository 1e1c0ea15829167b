"""NCCL's own choice: the lowest of its estimates, among what can run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.candidates import candidates
from scaling.collectives.contention import place_groups
from scaling.collectives.nccl import KINDS, communicator, estimates, nccl_choices
from scaling.meshes import catalog
from scaling.profiles.io import ideal

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


def group_of(name, nodes=1):
    """All devices of a cluster as one group."""
    cluster = catalog.load(name, nodes)
    return np.arange(cluster.devices)[None], cluster


@given(calls())
def test_the_choice_has_the_lowest_estimate(call):
    kind, groups, cluster = call
    ranked = estimates(kind, SIZES, communicator(groups, cluster))
    for i, choice in enumerate(nccl_choices(kind, SIZES, groups, cluster)):
        lowest = min(seconds[i] for seconds in ranked.values())
        assert choice.estimate == lowest == ranked[choice.algorithm, choice.protocol][i]


@given(calls())
def test_only_algorithms_that_can_run_are_ranked(call):
    """`candidates` refuses an algorithm that the cluster does not support."""
    kind, groups, cluster = call
    for algorithm, _ in estimates(kind, SIZES, communicator(groups, cluster)):
        assert candidates(kind, place_groups(groups, cluster), IDEAL, algorithm)


def test_a_forced_algorithm_is_kept_and_nccl_chooses_its_protocol():
    groups, cluster = group_of("dgx-a100", 2)
    small, large = nccl_choices("all-reduce", [2.0**10, 2.0**30], groups, cluster, "ring")
    assert (small.algorithm, small.protocol) == ("ring", "LL")
    assert (large.algorithm, large.protocol) == ("ring", "Simple")
    assert nccl_choices("all-reduce", [1e6], groups, cluster, "hierarchical") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "all-reduce") for name in ("tpu-v4", "mi300x-8", "host")),
        *(("dgx-h100", kind) for kind in ("all-to-all", "permute", "broadcast")),
    ],
)
def test_nothing_is_ranked_without_nvidia_gpus_or_for_sends_and_broadcasts(name, kind):
    groups, cluster = group_of(name)
    assert nccl_choices(kind, [1e6], groups, cluster) is None
