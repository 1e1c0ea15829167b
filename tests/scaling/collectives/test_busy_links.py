"""How busy a call keeps each pool of links, and what two calls at once take longer for it."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.collectives.cost import collective_figures, collective_time
from scaling.collectives.shared_links import count, pools
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal, profile_of
from scaling.program.ir import COLLECTIVE_KINDS, Collective, Program, Wait
from scaling.simulate.batch import Prices, timeline_of
from scaling.simulate.step import price
from tests.scaling.collectives.machines import random_case

EACH = settings(max_examples=600 if not settings().derandomize else 60)


@EACH
@given(st.integers(0, 2**63 - 1), st.sampled_from(COLLECTIVE_KINDS))
def test_no_links_are_busy_for_longer_than_a_call_lasts(seed, kind):
    case = random_case(seed)
    with suppress(InputError):
        place = case.groups, case.cluster, case.profile
        sizes = np.array([8.0, 1e6, 1e12])
        found = collective_time(kind, sizes, *place)
        figures = collective_figures(kind, *place)
        if found.busy is not None:
            assert found.busy.shape == (count(case.cluster), 3) and len(figures) == 5 + len(
                found.busy
            )
            assert (found.busy >= 0).all() and (found.busy <= 1 + 1e-9).all()
            assert found.busy[:, 2].max() > 0.3 or found.time[2] > 1e12 / 1e15


def two(cluster, mesh, permute, gather, profile, bytes=2**28):
    """A permute and an all-gather at once: priced alone each, together, and in a search."""
    calls = (
        Collective("p", kind="permute", axes=(permute,), bytes=bytes),
        Collective("g", kind="all-gather", axes=(gather,), bytes=bytes),
    )
    program = Program("p", "analytic", parse_mesh(mesh).sizes, (*calls, Wait("p"), Wait("g")))
    priced = price(program, cluster, profile)
    planned = float(timeline_of(program, Prices(cluster, profile)).total)
    assert planned == pytest.approx(priced.timeline.total, rel=1e-9)
    alone = [priced.collectives[name].time for name in "pg"]
    return alone, priced.timeline.total


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "gb200-nvl72", "h100-pcie-8", "a3-mega"])
def test_what_goes_over_the_same_nics_takes_as_long_as_one_after_the_other(name):
    nodes = 4 * catalog.load(name, 1).domain_nodes or 4
    cluster = catalog.load(name, 72 if name == "gb200-nvl72" else nodes)
    n = cluster.devices // 4
    mesh = f"fsdp=2,context=2,tensor={n}"
    alone, both = two(cluster, mesh, "context", "fsdp", ideal())
    assert both == pytest.approx(sum(alone), rel=1e-6)
    fitted, longer = two(cluster, mesh, "context", "fsdp", profile_of(cluster.accelerator))
    assert max(fitted) * 1.2 < longer <= sum(fitted) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "nodes", "mesh", "permute", "gather"),
    [
        ("dgx-h100", 2, "stage=2,fsdp=8", "stage", "fsdp"),  # NICs, NVLink
        ("tpu-v5p", 16, "data=4,fsdp=4,context=4", "context", "fsdp"),  # two dimensions of a torus
        ("mi300x-8", 1, "fsdp=4,context=2", "context", "fsdp"),  # links from chip to chip
        ("dgx-station-v100", 1, "fsdp=2,context=2", "context", "fsdp"),
    ],
)
def test_what_goes_over_other_links_runs_at_once(name, nodes, mesh, permute, gather):
    alone, both = two(catalog.load(name, nodes), mesh, permute, gather, ideal())
    assert both == pytest.approx(max(alone), rel=1e-9)


def test_axes_that_lie_along_one_dimension_of_a_torus_share_its_links():
    cluster = catalog.load("tpu-v5e", 32)  # 16 x 16: both cut a dimension of 16
    mesh = parse_mesh("fsdp=32,context=4,tensor=2")
    busy = [
        collective_time(kind, 1e9, groups_on(mesh, [axis], cluster), cluster, ideal()).busy
        for kind, axis in (("permute", "context"), ("all-gather", "tensor"))
    ]
    assert busy[0] + busy[1] == pytest.approx([0.0, 2.0])
    assert pools(cluster) == {"ICI link of a chip": (0, 2)}
