"""The lines that say what was chosen and why."""

from contextlib import suppress

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.collectives.nccl import KINDS
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of
from scaling.report.collective import choice_lines
from scaling.simulate.collective import collective_prices


def told(name, sizes, kind="all-reduce", profile=None, **options):
    cluster = catalog.load(name)
    groups = np.arange(cluster.devices)[None]
    profile = profile or profile_of(cluster.accelerator)
    return choice_lines(collective_prices(kind, sizes, groups, cluster, profile, **options))


def test_sizes_that_agree_are_told_together():
    found = told("dgx-h100", [2**16, 2**17, 2**29, 2**30])
    assert found[0].startswith("64 KiB to 128 KiB: selected: ring, ")
    assert found[1].startswith("512 MiB to 1 GiB: selected: nvls, ")
    assert [line.split(": ")[0] for line in found[2:]] == ["64 KiB to 128 KiB", "512 MiB to 1 GiB"]


def test_only_the_nearest_alternatives_are_named():
    (line, _) = told("dgx-b200", [2**30])
    assert line.count(" ms") <= 3
    wide = told("dgx-a100", [2**30], profile=ideal())[0]
    assert "by datasheet time" in wide


def test_without_nccl_there_is_one_line():
    (line,) = told("tpu-v4", [2**30])
    assert line.startswith("selected: ring, the only candidate that there are figures of")


def test_the_only_way_is_said_to_be_the_only_one():
    (line,) = told("dgx-h100", [2**30], kind="all-to-all")
    assert line == "selected: pairwise, the only candidate that there are figures of"


NVIDIA = [n for n in catalog.names() if n != "host" and catalog.one_host(n).torus is None]


@settings(max_examples=400 if not settings().derandomize else 40)
@given(st.sampled_from(NVIDIA), st.sampled_from([1, 2, 3]), st.sampled_from(KINDS), st.data())
def test_no_time_of_nccls_table_is_told_below_what_the_links_need(name, nodes, kind, data):
    """Groups of any devices: NCCL counts every channel, also where several share a NIC."""
    cluster = catalog.load(name, nodes)
    devices = st.lists(st.integers(0, cluster.devices - 1), min_size=2, max_size=16, unique=True)
    groups = np.array([sorted(data.draw(devices))])
    with suppress(InputError):  # no way between these devices that has figures
        profile = profile_of(cluster.accelerator)
        for price in collective_prices(kind, [2**10, 2**20, 2**30], groups, cluster, profile):
            lines = [line for line in choice_lines([price]) if line.startswith("NCCL")]
            assert len(lines) == (price.choice.nccl is not None)
            for line in lines:
                is_below = price.choice.nccl.estimate < price.lower_bound
                assert line.endswith(", impossible here)") == is_below


def test_seven_chips_and_one_behind_a_single_nic_are_slower_than_nccl_counts():
    cluster, groups = catalog.load("dgx-h100", 2), np.array([[0, 1, 2, 3, 4, 5, 6, 8]])
    profile = profile_of(cluster.accelerator)
    (price,) = collective_prices("all-reduce", [2**30], groups, cluster, profile)
    assert price.choice.nccl.estimate < price.lower_bound == 2**30 / 50e9
    assert choice_lines([price])[-1].endswith("(est. 4.72 ms, impossible here)")
