"""What `scaling cluster show` prints."""

import json

import pytest

from scaling.meshes import catalog
from scaling.report.cluster import format_figure, sources, tree
from scaling.report.cluster_json import as_json

SPEEDS = {
    "dgx-h100": ["18 x 25 GB/s = 450 GB/s", "50 GB/s", "3.35 TB/s", "989 TFLOP/s bf16", "63 GB/s"],
    "dgx-h200": ["450 GB/s", "50 GB/s", "4.8 TB/s", "141 GiB"],
    "dgx-a100": ["12 x 25 GB/s = 300 GB/s", "network  25 GB/s", "2.04 TB/s", "312 TFLOP/s"],
    "dgx-b200": ["18 x 50 GB/s = 900 GB/s", "50 GB/s", "8 TB/s", "2.25 PFLOP/s"],
    "rtx3090-10": ["2 x 1.25 GB/s = 2.5 GB/s", "31.5 GB/s", "no peer access", "71 TFLOP/s"],
    "host": ["8 chip, 1 memory", "not measured yet (scaling calibrate)"],
    "dgx-v100": ["2 x 25 GB/s = 50 GB/s, 0.6 us, 8 pairs", "125 TFLOP/s fp16", "12.5 GB/s"],
    "rtx3090-10-nvlink": ["4 x 14.1 GB/s = 56.2 GB/s, 0.6 us, 4 pairs", "no peer access"],
    "gb200-nvl72": ["18 x 50 GB/s = 900 GB/s", "c2c      225 GB/s", "the switch can reduce"],
    "mi300x-8": ["xgmi     64 GB/s", "1.31 PFLOP/s bf16", "192 GiB"],
    "mi250x-8": ["4 x 50 GB/s = 200 GB/s", "2 x 50 GB/s = 100 GB/s", "192 TFLOP/s bf16"],
    "p5": ["32 nic", "12.5 GB/s, 7 us"],
    "tpu-v5p": ["a slice of 2x2x1 chips, no wraparound links", "ici      90 GB/s, 1 us"],
}


@pytest.mark.parametrize("name", catalog.names())
def test_the_tree_says_the_link_speeds(name):
    text = tree(catalog.load(name))
    assert text.startswith(name)
    assert [speed for speed in SPEEDS.get(name, []) if speed not in text] == []
    cluster = catalog.load(name)
    assert all(" - ".join(link.parts) in text for link in cluster.links)
    assert max(map(len, text.splitlines())) <= 100


def test_the_tree_grows_with_the_cluster():
    assert "spine" not in tree(catalog.load("dgx-h100", 32))
    assert "spine   128 nodes, full bisection" in tree(catalog.load("dgx-h100", 128))
    large = tree(catalog.load("dgx-h100", 2048))
    assert "= 16384 devices" in large and "core    2048 nodes" in large
    assert large.count("400 GB/s per node, 0.13 us per hop") == 2


def test_the_tree_draws_a_slice_of_a_torus():
    cube = tree(catalog.load("tpu-v5p", 32))
    assert "32 nodes in a slice of 4x4x8 chips, wraparound in dimensions [0, 1, 2]" in cube
    assert "wraparound in dimensions [1]" in tree(catalog.load("tpu-v5e", 16))


def test_the_tree_says_what_of_a_node_is_used():
    text = tree(catalog.load("dgx-h100", 2, {"gpus_per_node": 2}))
    assert "2 nodes x 2 h100-sxm = 4 devices" in text and "2 chip and 2 nic used" in text


@pytest.mark.parametrize("name", catalog.names())
def test_sources_list_a_figure_per_line_with_source_and_date(name):
    lines = sources(catalog.load(name)).splitlines()
    assert lines and all("(" in line for line in lines)
    assert len({line[:38] for line in lines}) == len(lines)
    if name != "host":
        assert any("memory_bandwidth" in line and "B/s" in line for line in lines)


def test_figures_print_with_their_unit():
    assert format_figure("h100-sxm: peak_bf16", 989.4e12) == "989 TFLOP/s"
    assert format_figure("h100-sxm: clock", 1.98e9) == "1.98 GHz"
    assert format_figure("h100-sxm: compute_capability", 9.0) == "9.0"
    assert format_figure("nvlink chip - nvswitch: latency", 0.3e-6) == "0.3 us"


@pytest.mark.parametrize("name", catalog.names())
def test_json_is_plain_data_in_si_units(name):
    document = json.loads(json.dumps(as_json(catalog.load(name))))
    assert document["name"] == name
    assert len(document["links"]) == len(catalog.load(name).links)
    assert all(figure["source"] for figure in document["figures"].values())


def test_json_of_a_dgx_h100():
    document = as_json(catalog.load("dgx-h100", 128))
    assert document["devices"] == 1024 and document["node_network_bandwidth"] == 400e9
    assert document["levels"] == {"node": 1, "leaf": 32, "spine": 128}
    assert document["links"][0]["bandwidth"] == 450e9
    assert document["has_nvls"] and document["has_sharp"]
    assert document["torus"] is None
