"""Figures in another unit, slots slower than their NICs, racks that do not split."""

import math
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator
from scaling.meshes.catalog.cluster_file import ClusterFile
from scaling.meshes.catalog.figures import FIGURES, LINKS, figure
from scaling.meshes.catalog.lint import implausible
from scaling.meshes.catalog.overrides import KEYS
from scaling.meshes.cluster import Fabric, Interconnect, LinkSpec
from scaling.meshes.torus import Torus

# Figures and bandwidths of links of which it is known what is plausible.
RANGES = [known for known in (*FIGURES.values(), *LINKS.values()) if known.source]


def found(name, nodes=1, **overrides):
    return catalog.warnings_of(name, catalog.load(name, nodes, overrides))


@pytest.mark.parametrize("name", catalog.names())
def test_the_catalogue_itself_has_no_warnings(name):
    assert list(catalog.lint_cluster(catalog.load(name))) == found(name) == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"node_network_bandwidth": 400}, "400 bytes/s looks like GB/s; write 400e9"),
        ({"node_network_bandwidth": 3.2e12}, "looks like bits; write 4e+11"),
        ({"memory": 80}, "h100-sxm: memory: 80 bytes looks like GB; write 80e9"),
        ({"memory_bandwidth": 5e20}, "twelve times GB300's"),
    ],
)
def test_an_override_in_another_unit_is_named(override, words):
    warnings = found("dgx-h100", 2, **override)
    assert len(warnings) == len(override) + ("memory" in override)  # its usable part as well
    assert words in warnings[0]


@pytest.mark.parametrize(
    ("nodes", "priced"), [(18, ""), (36, ""), (32, ""), (19, "19 of 1"), (37, "37 of 1")]
)
def test_nodes_that_make_no_equal_domains_are_named(nodes, priced):
    warnings = found("gb200-nvl72", nodes)
    assert bool(warnings) == bool(priced)
    assert all(f"priced as {priced}" in words for words in warnings)


@pytest.mark.parametrize(
    ("kind", "value", "count", "says"),
    [
        ("network", 400e9, 1, "bits; write 5e+10; plausible is 12.5 MB/s to 100 GB/s"),
        ("nvlink", 450e9, 18, "all 18 links together; write 2.5e+10; plausible is 14 GB/s"),
        ("nvlink", 3.125e9, 18, "bits taken for bytes once too often; write 2.5e+10"),
        ("pcie", 63, 1, "63 bytes/s per link looks like GB/s; write 63e9; plausible is 900 MB/s"),
        ("pcie", 31.5e12, 1, "1000 times too much; write 3.15e+10"),
        ("memory", 1e30, 1, "is no such figure"),
    ],
)
def test_an_implausible_bandwidth_says_what_it_looks_like_and_what_is_plausible(
    kind, value, count, says
):
    (warning,) = implausible("mine", value, LINKS[kind], count)
    assert warning.startswith("mine: ") and says in warning


@given(st.sampled_from(sorted(LINKS)), st.floats(0, 1), st.integers(1, 18))
def test_a_plausible_bandwidth_in_gigabytes_or_bits_is_never_silent(kind, where, count):
    """The right figure passes; the same one in GB/s always, in bits where no link is that fast."""
    known = LINKS[kind]
    right = known.low * (known.high / known.low) ** where
    assert known.low * 0.999 <= right <= known.high * 1.001
    right = min(max(right, known.low), known.high)
    assert not list(implausible("mine", right, known, count))
    assert list(implausible("mine", right / 1e9, known, count))
    assert bool(list(implausible("mine", 8 * right, known, count))) == (8 * right > known.high)


@given(
    st.sampled_from(RANGES),
    st.floats(1e-20, 1e40),
    st.integers(1, 18),
)
def test_what_a_warning_tells_to_write_is_plausible(known, value, count):
    """Never a fix that is outside the range itself."""
    for warning in implausible("mine", value, known, count):
        better = re.search(r"write (\S+);", warning)
        assert better is None or known.low * 0.99 <= float(better[1]) <= known.high * 1.01


def test_every_kind_of_link_has_a_plausible_range_with_its_source():
    assert set(LINKS) == set(get_args(Interconnect))
    assert all(r.low < r.high and len(r.source) > 20 for r in RANGES)
    assert all(math.isinf(r.high) for r in FIGURES.values() if r not in RANGES)


def test_whole_figures_of_a_chip_are_integers_and_every_figure_of_the_table_exists():
    hints = get_type_hints(Accelerator)
    assert {n for n in FIGURE_NAMES if figure(n).whole} == {
        n for n in FIGURE_NAMES if hints[n] == int | None
    }
    keys = {f.name for entry in (ClusterFile, LinkSpec, Fabric, Torus) for f in fields(entry)}
    assert set(FIGURES) <= {"peak", *FIGURE_NAMES, *keys, *KEYS}
