"""What is asked of a cluster in another unit, or of racks that do not split evenly, is named."""

import pytest

from scaling.meshes import catalog


def found(name, nodes=1, **overrides):
    return catalog.doubts(name, catalog.load(name, nodes, overrides))


@pytest.mark.parametrize("name", catalog.names())
def test_the_catalogue_itself_raises_no_doubts(name):
    assert found(name) == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"node_network_bandwidth": 400}, "50 bytes/s per link looks like GB/s; write 50e9"),
        ({"node_network_bandwidth": 3.2e12}, "looks like bits"),
        ({"memory": 80}, "memory=80 is no chip's: bytes are meant"),
        ({"memory_bandwidth": 3.35}, "memory_bandwidth=3.35 is no chip's: bytes/s are meant"),
        ({"memory_bandwidth": 5e20}, "twelve times GB300's"),
    ],
)
def test_an_override_in_another_unit_is_named(override, words):
    [doubt] = found("dgx-h100", 2, **override)
    assert words in doubt


@pytest.mark.parametrize(
    "override", [{"node_network_bandwidth": 100e9}, {"memory": 40e9}, {"memory_bandwidth": 2e12}]
)
def test_an_override_that_can_be_right_is_taken(override):
    assert found("dgx-h100", 2, **override) == []


@pytest.mark.parametrize(
    ("nodes", "priced"), [(18, ""), (36, ""), (32, ""), (19, "19 of 1"), (37, "37 of 1")]
)
def test_nodes_that_make_no_equal_domains_are_named(nodes, priced):
    doubts = found("gb200-nvl72", nodes)
    assert bool(doubts) == bool(priced)
    assert all(f"priced as {priced}" in words for words in doubts)


def test_a_domain_that_was_asked_for_raises_no_doubt():
    assert found("gb200-nvl72", 36, nvlink_domain_nodes=9) == []
