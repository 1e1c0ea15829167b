"""What the catalogue's sources say of its figures.

A source is read, quoted, computed or remembered (meshes/provenance.py); only the last two may lack
an address. Rates that a title names are worked out here and compared with the figures.
"""

import re
from importlib.resources import files

import pytest

from scaling.cli.main import main
from scaling.meshes import catalog
from scaling.meshes.provenance import SourcedValue
from scaling.report.cluster import MARKS, addresses, figures, sources

ACCELERATORS = sorted(
    path.name.removesuffix(".toml")
    for path in files("scaling.meshes.catalog").joinpath("accelerators").iterdir()
    if path.name.endswith(".toml") and path.name != "cpu.toml"
)
# Sources that were seen in many places, or whose own address none of these places names.
WITHOUT_ADDRESS = (
    "PyTorch's '",  # many users' reports
    "XLA's 'of ",
    "GPU cluster performance report",
    "JAX documentation, jax_num_cpu_devices",
    "AWS on P4d",
    "NVIDIA A100 Tensor Core GPU Architecture",
    "NVIDIA Blackwell Ultra datasheet",
    "NVIDIA DGX A100 datasheet",
    "NVIDIA DGX-1 User Guide",
    "NVIDIA Turing GPU Architecture",
    "assumed by this project",
)


def stated(name: str) -> list[tuple[str, SourcedValue]]:
    """(name, figure) of a cluster of the catalogue, or of a chip."""
    if name in catalog.names():
        return list(figures(catalog.load(name)))
    return list(catalog.accelerator(name).figures.items())


@pytest.mark.parametrize("name", catalog.names())
def test_every_promised_cluster_is_shown_with_its_sources(name, capsys):
    assert main(["cluster", "show", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(name) and all(f.source in shown for _, f in stated(name))
    assert all(figure.url in shown for _, figure in stated(name))


@pytest.mark.parametrize("name", [*catalog.names(), *ACCELERATORS])
def test_a_source_that_was_read_has_an_address(name):
    read = {f.source for _, f in stated(name) if f.seen in ("text", "quoted") and not f.url}
    assert {source for source in read if not source.startswith(WITHOUT_ADDRESS)} == set()
    assert all(f.url.startswith("https://") for _, f in stated(name) if f.url)


def test_a_figure_from_memory_is_marked_and_a_read_one_is_not():
    lines = {line[:38].strip(): line for line in sources(catalog.load("dgx-a100")).splitlines()}
    assert "[from memory, not checked]" in lines["fabric: hop_latency"]
    assert "[as quoted elsewhere]" in lines["fabric: leaf_nodes"]
    assert "[computed]" in lines["pcie chip - pcie_switch: bandwidth"]
    assert not any(mark and mark in lines["a100-sxm-80g: cores"] for mark in MARKS.values())


def test_addresses_name_each_source_once():
    lines = addresses(catalog.load("dgx-h100")).splitlines()
    assert len(lines[::2]) == len(set(lines[::2])) and len(lines) % 2 == 0
    assert all(line.strip().startswith("https://") for line in lines[1::2])
    assert addresses(catalog.load("host")) == ""


def worked_out(name: str, title: str) -> float | None:
    """bytes/s, one direction, of the rate that a source's title names for a figure; or None."""
    pcie = re.search(r"^PCI Express .*?(\d+) lanes x (\d+) GT/s x (\d+)/(\d+)", title)
    if pcie and name.startswith("pcie"):
        lanes, rate, data, coded = map(int, pcie.groups())
        return lanes * rate * 1e9 * data / coded / 8
    upi = re.search(r"(?:UPI|QPI) links of ([\d.]+) GT/s", title)
    if upi and name.startswith("upi"):
        return float(upi[1]) * 1e9 * 2
    xgmi = re.search(r"xGMI links of (\d+) lanes x (\d+) GT/s", title)
    if xgmi and name.startswith("upi"):
        return int(xgmi[1]) * int(xgmi[2]) * 1e9 / 8
    ram = re.search(r"DDR[45]-(\d{4})", title)
    if ram and name.startswith("memory") and "the machine came with" not in title:
        return int(ram[1]) * 1e6 * 8
    ethernet = re.search(r"^(\d+) Gb/s Ethernet", title)
    return int(ethernet[1]) * 1e9 / 8 if ethernet and name.startswith("network") else None


@pytest.mark.parametrize("name", sorted(set(catalog.names()) - {"host"}))
def test_a_rate_that_a_title_names_is_the_figure(name):
    compared = 0
    for label, figure in stated(name):
        expected = worked_out(label, figure.source) if label.endswith("bandwidth") else None
        if expected is not None:
            assert figure.value == pytest.approx(expected, rel=0.004), label
            compared += 1
        assert figure.seen != "computed" or expected is not None or "latency" in label, label
    assert compared or name.startswith("tpu")
