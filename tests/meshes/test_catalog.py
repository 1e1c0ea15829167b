"""The catalogue: every figure has a source, files of the user's own work, mistakes are named."""

import re
from importlib.resources import files

import pytest

from scaling.cli.main import main
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.report.cluster import figures

CLUSTER = """
name = "mine"
title = "two chips"
accelerator = "h100-sxm"
layout_source = "me"
[sources.me]
title = "my own notes"
date = "2026-11"
[parts]
chip = 2
nvswitch = 1
nic = 1
[[links]]
parts = ["chip", "nvswitch"]
kind = "nvlink"
count = 18
bandwidth = { value = 25e9, source = "me" }
latency = { value = 1e-6, source = "me" }
[[links]]
parts = ["nic", "nvswitch"]
kind = "pcie"
bandwidth = { value = 63e9, source = "me" }
latency = { value = 1e-6, source = "me" }
[[links]]
parts = ["nic", "leaf"]
kind = "network"
bandwidth = { value = 50e9, source = "me" }
latency = { value = 1e-6, source = "me" }
[fabric]
leaf_nodes = { value = 4, source = "me" }
"""


@pytest.fixture
def write(tmp_path):
    """A cluster file with some text replaced."""

    def written(*replacements, text=CLUSTER, name="mine.toml"):
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


@pytest.mark.parametrize("name", catalog.names())
def test_every_figure_has_a_source_and_a_date(name):
    stated = dict(figures(catalog.load(name)))
    assert [n for n, f in stated.items() if not (len(f.source) > 10 and f.date)] == []
    chip = catalog.load(name).accelerator
    assert all(f"{chip.name}: peak_{d}" in stated for d in chip.peaks)


@pytest.mark.parametrize("name", catalog.accelerator_names())
def test_every_figure_of_an_accelerator_has_a_source_and_a_date(name):
    """Only files of a user's own may leave them out."""
    stated = catalog.accelerator(name).figures
    assert [n for n, f in stated.items() if f.source.startswith("stated in") or not f.date] == []


@pytest.mark.parametrize("kind", ["clusters", "accelerators"])
def test_every_catalogue_file_is_called_by_its_name_and_passes_the_check(kind):
    folder = files("scaling.meshes.catalog").joinpath(kind)
    paths = [path for path in folder.iterdir() if path.name.endswith(".toml")]
    assert paths
    for path in paths:
        assert catalog.check(str(path)) == []
        assert f'name = "{path.name.removesuffix(".toml")}"\n' in path.read_text(encoding="utf-8")


def test_an_unknown_name_says_the_nearest():
    with pytest.raises(InputError, match="did you mean 'dgx-h100'"):
        catalog.load("dgx-h10")
    with pytest.raises(InputError, match="did you mean 'rtx3090'"):
        catalog.accelerator("rtx-3090")


def test_more_nodes_than_the_fabric_joins_says_how_many():
    with pytest.raises(InputError, match="host joins at most 64 nodes, got nodes=65"):
        catalog.load("host", nodes=65)
    with pytest.raises(InputError, match="at most 24 nodes"):
        catalog.load("rtx3090-10", nodes=25)
    with pytest.raises(InputError, match="nodes=.* at least 1"):
        catalog.load("dgx-h100", nodes=0)


def test_more_devices_than_memory_holds_are_refused():
    with pytest.raises(InputError, match="800,000,000 devices; at most 10,000,000"):
        catalog.load("dgx-h100", nodes=100_000_000)


def test_a_users_file_works_where_a_name_does(write):
    cluster = catalog.load(write(), nodes=3)
    assert (cluster.name, cluster.devices, cluster.accelerator.name) == ("mine", 6, "h100-sxm")
    assert catalog.check(write()) == []


def test_a_users_cluster_may_bring_its_own_chip(write):
    chip = files("scaling.meshes.catalog").joinpath("accelerators", "rtx3090.toml")
    write(('"rtx3090"', '"my-chip"'), text=chip.read_text(encoding="utf-8"), name="chip.toml")
    path = write(('accelerator = "h100-sxm"', 'accelerator = "chip.toml"'))
    assert catalog.load(path).accelerator.name == "my-chip"
    assert catalog.check(path) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "two chips"', 'titel = "two"', "unknown key 'titel'; did you mean 'title'"),
        ('"h100-sxm"', '"h100-smx"', "did you mean 'h100-sxm'"),
        (
            'title = "two chips"',
            'nvswitch_ports = { value = 1.5, source = "me" }',
            "nvswitch_ports = 1.5 must be a whole number",
        ),
        ("chip = 2", "chips = 2", "did you mean 'chip'"),
        (
            'title = "two chips"',
            'title = "two"\ncpu = "intl"',
            "cpu: 'intl' is not a choice; .*'intel'",
        ),
        ('kind = "nvlink"', 'kind = "nvlnk"', "did you mean 'nvlink'"),
        ('value = 25e9, source = "me"', 'value = 25e9, source = "you"', "not in \\[sources\\]"),
        ("value = 25e9", "value = -25e9", "must be positive"),
        ("count = 18", "count = 0", "count = 0 must be from 1 to 1,024"),
        ("count = 18", "count = 1025", "count = 1025 must be from 1 to 1,024"),
        ('name = "mine"\n', "", "missing 'name'"),
        ('["nic", "leaf"]', '["chip", "leaf"]', "only NICs have links to leaves"),
        ("chip = 2", "chip = -2", "chip = -2 is negative"),
        ("nic = 1", "nic = 0", "a host has nic = 0: leave the link out"),
        ('["nic", "nvswitch"]', '["chip", "chip"]', 'linked by wiring = "all"'),
        ("count = 18", 'count = 18\nwiring = "pairs"', "go together; write both or neither"),
        (
            "count = 18",
            'count = 18\nwiring = "pairs"\npairs = [[2, 0]]',
            r"pair \[2, 0\] is outside a host, which has 2 chip and 1 nvswitch",
        ),
        (
            '["nic", "nvswitch"]\n',
            '["chip", "chip"]\nwiring = "pairs"\npairs = [[0, 1], [1, 0]]\n',
            r"pair \[1, 0\] is there twice",
        ),
        ("[parts]", "[parts", "is not TOML"),
    ],
)
def test_a_mistake_is_refused_with_the_fix(write, old, new, message):
    with pytest.raises(InputError, match=message):
        catalog.load(write((old, new)))


def test_a_rack_is_as_many_nodes_as_divide_evenly(write):
    """One NVLink domain of up to 18 nodes: 32 of them are two racks of 16."""
    wide = 'domain_nodes = { value = 18, source = "me" }\nlayout_source'
    path = write(("layout_source", wide), ("leaf_nodes = { value = 4", "leaf_nodes = { value = 99"))
    assert catalog.check(path) == []
    assert catalog.load(path, 32).domain_nodes == 16
    assert catalog.load(path, 32, {"nvlink_domain_nodes": 8}).domain_nodes == 8
    with pytest.raises(InputError, match="nvlink_domain_nodes=5 must divide the 32 nodes"):
        catalog.load(path, 32, {"nvlink_domain_nodes": 5})
    part = wide.replace("18", "0.5")
    with pytest.raises(InputError, match="domain_nodes = 0.5 must be a whole number"):
        catalog.load(write(("layout_source", part)), 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["nic", "nvswitch"]', '["chip", "nvswitch"]', "1 parts cannot be reached.*nic0"),
        (
            "nvswitch = 1",
            "nvswitch = 4_000_000_000",
            "4,000,000,000 in one host; use at",
        ),
        ("nvswitch = 1", "nvswitch = 1\nsocket = 2", "2 parts cannot be reached.*socket0"),
        ('parts = ["nic", "leaf"]', 'parts = ["nic", "chip"]', r"a fabric needs \[\[links\]\]"),
        (
            "[fabric]",
            '[fabric]\nspine_nodes = { value = 8, source = "me" }',
            "needs hop_latency",
        ),
    ],
)
def test_check_finds_what_only_the_whole_graph_shows(write, old, new, message):
    path = write((old, new))
    problems = catalog.check(path)
    assert any(re.search(message, p) for p in problems), problems
    with pytest.raises(InputError, match=f"mine.toml: .*{message}"):
        catalog.load(path)  # nothing is priced on it


TORUS = """
[torus]
shape = [4, 4]
host = [1, 2]
wrap = 4
bandwidth = { value = 45e9, source = "me" }
hop_latency = { value = 1e-6, source = "me" }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("host = [1, 2]", "host = [2, 2]", "must hold the 2 chips of a node"),
        ("host = [1, 2]", "host = [2]", "must have as many dimensions"),
        ("shape = [4, 4]", "shape = [4, 3]", r"and divide shape = \[4, 3\]"),
        ("wrap = 4", "wrap = 2", "wrap = 2 must be at least 3"),
        ("45e9", "45", "warning: .*45 bytes/s per link looks like GB/s; write 45e9"),
    ],
)
def test_check_finds_what_is_wrong_with_a_torus(write, old, new, message):
    assert old in TORUS
    problems = catalog.check(write(text=CLUSTER + TORUS.replace(old, new)))
    assert any(re.search(message, p) for p in problems), problems


def test_check_of_an_accelerator_finds_wrong_units(write):
    chip = files("scaling.meshes.catalog").joinpath("accelerators", "rtx3090.toml")
    path = write(
        ("value = 936e9", "value = 936"),
        ("tf32 = { value = 35.6e12", "tf32 = { value = 35.6"),
        ("cores = { value = 82", "cores = { value = -82"),
        text=chip.read_text(encoding="utf-8"),
    )
    problems = catalog.check(path)
    assert sorted(p.split(":")[0] for p in problems) == ["error", "warning", "warning"]
    text = "\n".join(problems)
    assert "memory_bandwidth: 936 bytes/s looks like GB/s; write 936e9" in text
    assert "peak_tf32: 35.6 FLOP/s looks like TFLOP/s; write 35.6e12" in text
    assert "cores = -82 must be positive" in text


OWN = """
name = "lab"
accelerator = "rtx4090"
[parts]
chip = 4
socket = 1
nic = 1
[[links]]
parts = ["chip", "socket"]
kind = "pcie"
bandwidth = "31.5GB/s"
latency = 0.5e-6
[[links]]
parts = ["nic", "socket"]
kind = "pcie"
bandwidth = "15.75GB/s"
latency = "0.25us"
[[links]]
parts = ["nic", "leaf"]
kind = "network"
bandwidth = "25Gb/s"
latency = "5us"
[fabric]
leaf_nodes = 32
"""


def test_a_users_file_needs_no_sources_and_takes_units(write):
    path = write(text=OWN)
    assert catalog.check(path) == []
    cluster = catalog.load(path, 4)
    assert (cluster.title, cluster.devices) == ("lab", 16)
    assert cluster.node_network_bandwidth == pytest.approx(25e9 / 8)
    chip, slot, network = cluster.links
    assert (chip.bandwidth.value, chip.latency.value) == (31.5e9, 0.5e-6)
    assert slot.latency.value == 0.25e-6 and network.latency.value == 5e-6
    assert {f.source for name, f in figures(cluster) if "rtx4090" not in name} == {
        "stated in mine.toml"
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"25Gb/s"', "25e9", "a NIC sends 25 GB/s but its slot.* takes 15.8 GB/s.*3.12 GB/s"),
        ('"31.5GB/s"', "64e9", "rtx4090 has 16 lanes of 31.5 GB/s in one direction; .* both"),
        ("chip = 4", "chip = 400", "400 chips in one node"),
    ],
)
def test_check_warns_of_figures_that_no_machine_has(write, old, new, message):
    (warning,) = catalog.check(write((old, new), text=OWN))
    assert warning.startswith("warning: lab") and re.search(message, warning)


def test_a_file_with_errors_is_searched_for_doubtful_figures_too(write):
    error, warning = catalog.check(
        write(("leaf_nodes = 32", "leafs = 32"), ('"5us"', "5"), text=OWN)
    )
    assert error.startswith("error: ") and warning.startswith("warning: ")
    assert "5 s looks like microseconds; write 5e-6" in warning


def test_all_mistakes_of_a_users_file_are_told_in_one_go(write):
    """As a new user writes it: `load`, which every command calls, says all of it as well."""
    path = write(
        ('name = "lab"\n', "nodes = 4\n"),
        ('accelerator = "rtx4090"', 'accelerator = "rtx-4090"'),
        ('"31.5GB/s"', '"31.5GB"'),
        ('"15.75GB/s"', "[15.75e9]"),
        ('"25Gb/s"', '{ value = "25Gb/s", source = "vendor" }'),
        ("leaf_nodes = 32", "leafs = 32"),
        ("socket = 1", "sockets = 1"),
        text=OWN,
    )
    expected = [
        "no key 'nodes' in a cluster file: a file describes one host; --nodes N says how many",
        "missing 'name'",
        "did you mean 'rtx4090'",
        "unknown unit 'GB'; write for example 50e9, 50GB/s or 400Gb/s",
        "bandwidth: expected a table of keys, got [15750000000.0]",
        "source 'vendor' is not in [sources]",
        "fabric: unknown key 'leafs'",
        "parts: unknown key 'sockets'; did you mean 'socket'",
    ]
    found = "\n".join(catalog.check(path))
    assert [text for text in expected if text not in found] == []
    with pytest.raises(InputError) as raised:
        catalog.load(path)
    assert [text for text in expected if text not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither a cluster file .* nor an accelerator file .*rtx4090-8 --toml"),
        ('name = "x"\nvendor = "NVIDIA"', "is an accelerator file, not a cluster file"),
        ('accelerator = "rtx4090"\nnodes = 4', "--nodes N says how many.*\n(.*\n)*.*no chip"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(write, text, message):
    with pytest.raises(InputError, match=message):
        catalog.load(write(text=text))
    with pytest.raises(InputError, match="is a cluster file, not an accelerator file"):
        catalog.accelerator(write(text=OWN))


@pytest.mark.parametrize("name", catalog.names())
def test_a_printed_file_is_the_cluster_again(name, write, capsys):
    assert main(["cluster", "show", name, "--toml"]) == 0
    path = write(text=capsys.readouterr().out)
    assert catalog.check(path) == [] and catalog.one_host(path) == catalog.one_host(name)


def test_a_users_file_is_read_again_after_an_edit(write):
    assert catalog.load(write()).devices == 2
    assert catalog.load(write(("chip = 2", "chip = 4"))).devices == 4
