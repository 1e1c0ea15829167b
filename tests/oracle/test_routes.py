"""Routes through catalogue clusters: rails, changes of rail, and host memory."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.oracle.routes import Router, router


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
    routes = router(catalog.load("rtx3090-10", 2))
    assert routes.routes(("node0/chip0", "node0/chip7")) == [
        [
            ("node0/chip0", "node0/memory0"),
            ("node0/memory0", "node0/memory1"),
            ("node0/memory1", "node0/chip7"),
        ]
    ]
    [near], [far] = (routes.routes(("node0/chip0", end)) for end in ("node0/chip4", "node1/chip0"))
    assert len(near) == 2
    assert far[1] == ("node0/memory0", "node1/memory0")


def test_a_bridge_needs_no_host_memory():
    routes = router(catalog.load("rtx3090-10-nvlink", 1))
    bridged = next(k for k in routes.graph.links if k.kind == "nvlink")
    ends = (bridged.source, bridged.target)
    assert routes.routes(ends) == [[ends]]


def test_a_chip_with_four_nics_sends_by_all_of_them_to_those_of_the_other():
    routes = router(catalog.load("p5", 2))
    assert routes.routes(("node0/chip1", "node1/chip3")) == [
        [("node0/chip1", f"node0/nic{4 + i}", f"node1/nic{12 + i}", "node1/chip3")]
        for i in range(4)
    ]
    assert len(routes.routes(("node0/chip1", "node0/chip3"))) == 1


def test_inside_a_node_a_chip_forwards_only_what_a_schedule_sends_by_it():
    assert "nvlink" not in kinds("dgx-v100", ("node0/chip0", "node0/chip7"))
    assert kinds("dgx-v100", ("node0/chip0", "node0/chip3")) == ["nvlink"]
    assert kinds("dgx-v100", ("node0/chip0", "node0/chip4", "node0/chip7")) == ["nvlink"] * 2


def kinds(name, stops):
    """Kinds of the links on a path."""
    routes = router(catalog.load(name, 1))
    return [routes.graph.links[k].kind for k in routes.path(stops)]


def test_two_chips_without_links_between_them_are_an_error():
    cluster = catalog.load("dgx-h100", 2)
    apart = replace(cluster, links=cluster.links[:1], fabric=None)
    with pytest.raises(InputError, match="no links lead from node0/chip0 to node1/chip0"):
        Router(apart).path(("node0/chip0", "node1/chip0"))
