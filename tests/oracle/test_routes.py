"""Routes through catalogue clusters: rails, changes of rail, and host memory."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.oracle.routes import Router


def walk(name, source, target, nodes=2, **changes):
    """Names of the nodes on the path from `source` to `target`."""
    routes = Router(replace(catalog.load(name, nodes), **changes))
    links = [routes.graph.links[k] for k in routes.path((source, target))]
    for first, second in zip(links, links[1:], strict=False):
        assert first.target == second.source
    return [link.source for link in links] + [links[-1].target]


def test_chips_of_one_rail_meet_at_its_leaf():
    assert walk("dgx-h100", "node0/chip3", "node1/chip3") == [
        *("node0/chip3", "node0/pcie_switch3", "node0/nic3", "leaf0.3"),
        *("node1/nic3", "node1/pcie_switch3", "node1/chip3"),
    ]


def test_without_peer_access_bytes_are_written_and_read_again():
    routes = Router(catalog.load("rtx3090-10", 2))
    assert routes.legs("node0/chip0", "node0/chip7") == [
        ("node0/chip0", "node0/memory0"),
        ("node0/memory0", "node0/memory1"),
        ("node0/memory1", "node0/chip7"),
    ]
    near, far = (routes.legs("node0/chip0", end) for end in ("node0/chip4", "node1/chip0"))
    assert len(near) == 2
    assert far[1] == ("node0/memory0", "node1/memory0")


def test_two_chips_without_links_between_them_are_an_error():
    cluster = catalog.load("dgx-h100", 2)
    apart = replace(cluster, links=cluster.links[:1], fabric=None)
    with pytest.raises(InputError, match="no links lead from node0/chip0 to node1/chip0"):
        Router(apart).path(("node0/chip0", "node1/chip0"))
