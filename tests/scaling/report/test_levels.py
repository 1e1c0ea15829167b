"""The table of network levels that `scaling cluster show` prints."""

import pytest

from scaling.meshes import catalog
from scaling.meshes.levels import levels
from scaling.report.cluster_json import levels_json
from scaling.report.levels import level_table


def test_a_line_per_level_with_bandwidth_and_hop():
    lines = level_table(catalog.load("dgx-h100", 4)).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        *("NVLink of a chip", "NICs of a node", "NIC of a chip"),
    ]
    assert "450 GB/s" in lines[1] and "0.6 us" in lines[1] and "switches can reduce" in lines[1]
    assert "network verbs" in lines[2] and "400 GB/s" in lines[2] and "2.7 us" in lines[2]
    assert "hops count elsewhere" in lines[3]


@pytest.mark.parametrize("name", [name for name in catalog.names() if name != "host"])
def test_plain_data_has_every_level_in_si_units(name):
    cluster = catalog.load(name, 2)
    found = levels_json(cluster)
    assert [level["bandwidth"] for level in found] == [lv.bandwidth for lv in levels(cluster)]
    assert len(level_table(cluster).splitlines()) == 1 + len(found)


def test_links_without_figures_have_no_table():
    host = catalog.load("host")
    assert (level_table(host), levels_json(host)) == ("", [])
