"""Constants of NCCL by version."""

import re

import pytest

from scaling.collectives.nccl.constants import CORRECTIONS, PROTOCOLS, capped, correction
from scaling.collectives.nccl.versions import NEWEST, VERSIONS, constants_of
from scaling.meshes.errors import InputError

CAPS = ("ll_most", "ring_ll128", "tree_ll128", "tree_most", "nvls_tree_most")


def test_the_newest_is_the_last_and_the_usual_one():
    assert list(VERSIONS)[-1] == NEWEST == constants_of().version == "2.30.7"


def test_versions_stand_in_their_order():
    numbers = [tuple(map(int, version.split("."))) for version in VERSIONS]
    assert numbers == sorted(numbers)


def test_every_version_names_the_commit_that_it_was_read_from():
    commits = [constants.commit for constants in VERSIONS.values()]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    assert len(set(commits)) == len(commits)


def test_the_cuda_version_behind_a_plus_does_not_matter():
    assert constants_of("2.26.2+cuda12.8") is constants_of("2.26.2")


@pytest.mark.parametrize("version", ["2.99", "", "2.30", "latest"])
def test_an_unknown_version_names_those_known(version):
    with pytest.raises(InputError, match=rf"NCCL {version} is not known.*2\.18\.5.*2\.30\.7"):
        constants_of(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_are_complete_and_positive(version):
    c = constants_of(version)
    for rows in (c.base, c.nvlink, c.pcie, c.network):
        assert {"tree", "ring", "nvls", "nvls-tree"} <= set(rows)
        assert all(len(row) == len(PROTOCOLS) and min(row) >= 0 for row in rows.values())
    for name in CAPS:
        assert all(len(row) == 3 for row in getattr(c, name))
    for speeds in (*c.search.inside, *c.search.outside):
        assert list(speeds[1]) == sorted(speeds[1], reverse=True)


@pytest.mark.parametrize(
    ("version", "steps"), [("2.18.5", 4.0), ("2.21.5", 28.0), ("2.23.4", 4.0), ("2.30.7", 4.0)]
)
def test_a_tree_under_simple_was_slow_for_some_years(version, steps):
    """28 us between 2.19 and 2.22: NVIDIA/nccl issue 1334."""
    assert constants_of(version).nvlink["tree"][PROTOCOLS.index("Simple")] == steps


def test_figures_of_the_newest_version():
    """Those of src/graph/tuning.cc, 2.30.7, that other versions have not."""
    c = constants_of("2.30.7")
    assert c.base["tree"] == (6.8, 14.0, 8.4) and c.base["pat"] == (8.0, 8.0, 8.0)
    assert c.network["nvls-tree"][2] == 20.9 and c.nvlink["nvls"][2] == 25
    assert capped(c.ring_ll128, generation=3, nodes=2) == 40.0
    assert capped(c.nvls_tree_most, generation=3, nodes=16) == 80.0
    assert c.nvls_efficiency == (0.0, 0.85, 0.74) and c.pat == 0.75


def test_gpus_newer_than_a_version_count_as_its_newest():
    c = constants_of("2.21.5")
    assert capped(c.tree_most, generation=3, nodes=1) == capped(c.tree_most, 2, 1) == 38.7


def test_three_nodes_and_more_share_a_column():
    c = constants_of()
    assert capped(c.tree_most, 1, 3) == capped(c.tree_most, 1, 512) == 17.8


def test_corrections_are_factors_up_to_one_and_end():
    assert all(
        len(row) == 24 and 0.4 <= min(row) <= max(row) == 1
        for row in list(CORRECTIONS.values())[:2]
    )
    assert correction("LL", 12, known=23) == 0.4
    assert correction("Simple", 23, known=23) == correction("Simple", -1, known=23) == 1.0
