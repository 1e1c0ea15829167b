"""What one half of a cluster can send to the other."""

import pytest

from scaling.meshes import catalog
from scaling.meshes.bisection import bisection_bandwidth


@pytest.mark.parametrize(
    ("name", "nodes", "rate"),
    [
        ("dgx-h100", 1, 4 * 450e9),  # gpus.md, quiz 2 question 2, one direction
        ("dgx-h100", 2, 400e9),
        ("dgx-h100", 128, 64 * 400e9),
        ("gb200-nvl72", 36, 18 * 4 * 50e9),
        ("tpu-v5e", 1, 2 * 45e9),  # a slice of 2x4
        ("tpu-v5e", 32, 2 * 16 * 45e9),  # rings of 16
        ("tpu-v4", 16, 2 * 4 * 4 * 45e9),  # a cube of 4
        ("mi300x-8", 1, 4 * 4 * 64e9),  # a link from each to each
    ],
)
def test_half_of_a_cluster_sends_to_the_other(name, nodes, rate):
    assert bisection_bandwidth(catalog.load(name, nodes)) == pytest.approx(rate)


@pytest.mark.parametrize(("name", "nodes"), [("dgx-h100", 3), ("dgx-v100", 1)])
def test_an_odd_number_of_nodes_and_links_between_pairs_have_none(name, nodes):
    assert bisection_bandwidth(catalog.load(name, nodes)) is None
