"""The lines that say what was chosen and why."""

import numpy as np

from scaling.meshes import catalog
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
