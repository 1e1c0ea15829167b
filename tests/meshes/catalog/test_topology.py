"""Hosts from `nvidia-smi topo -m`: known machines come out as the catalogue has them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.catalog.topology import cluster_from_topology
from scaling.meshes.catalog.topology_text import read_matrix, split_peers
from scaling.meshes.catalog.write import cluster_toml
from scaling.meshes.cluster import unreached_parts
from scaling.meshes.errors import InputError
from tests.oracle.graph import expand

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes

NIC Legend:

  NIC0: mlx5_0
"""
# NVLinks of a DGX-1, as NVIDIA/nccl issue 671 has them
DGX1 = "X1122--- 1X21-2-- 12X2--1- 212X---1 2---X112 -2--1X21 --1-12X2 ---1212X".split()


def topology(rows, nics=0, affinity=True, tab="\t"):
    """A matrix in the format of nvidia-smi: rows of entries, the GPUs' NUMA node behind them."""
    gpus = len(rows) - nics
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    header = ["", *names] + ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"] * affinity
    lines = [tab.join(header)]
    for name, entries in zip(names, rows, strict=True):
        node = int(name[3:]) * 2 // gpus
        extra = [f"{16 * node}-{16 * node + 15}", str(node), "N/A"]
        lines.append(tab.join([name, *entries, *(extra if affinity and name[0] == "G" else [])]))
    return "\n".join(lines) + "\n" + LEGEND


def dgx(gpus, links):
    """GPUs behind an NVSwitch, a NIC beside each, half of them on each socket."""
    half = gpus // 2
    far = lambda i, j: "SYS" if i // half != j // half else "NODE"
    gpu = [
        ["X" if i == j else f"NV{links}" for j in range(gpus)]
        + ["PXB" if i == j else far(i, j) for j in range(gpus)]
        for i in range(gpus)
    ]
    nic = [
        ["PXB" if i == j else far(i, j) for j in range(gpus)]
        + ["X" if i == j else far(i, j) for j in range(gpus)]
        for i in range(gpus)
    ]
    return topology([*gpu, *nic], nics=gpus)


def dgx1():
    names = {"X": "X", "1": "NV1", "2": "NV2", "-": "SYS"}
    return topology([[names[c] for c in row] for row in DGX1])


def bandwidths(cluster):
    """(end, end) -> bytes/s of every link."""
    links = expand(cluster).links
    return {(link.source[6:], link.target[6:]): link.bandwidth for link in links}


def same_links(ours, theirs, kind):
    def of(cluster):
        return {link for link in expand(cluster).links if link.kind == kind}

    assert of(ours) == of(theirs) != set()


def test_a_dgx_h100_is_the_one_of_the_catalogue():
    ours = cluster_from_topology(dgx(8, 18), catalog.accelerator("h100-sxm"))
    theirs = catalog.load("dgx-h100")
    same_links(ours, theirs, "nvlink")
    same_links(ours, theirs, "pcie")
    assert dict(ours.parts) == dict(theirs.parts)
    assert ours.has_nvls and ours.peer_access and unreached_parts(ours) == []


def test_a_dgx1_is_the_hybrid_cube_mesh_of_the_catalogue():
    ours = cluster_from_topology(dgx1(), catalog.accelerator("v100-sxm-32g"))
    same_links(ours, catalog.load("dgx-v100"), "nvlink")
    assert (
        ours.parts["socket"] == 2 and "nvswitch" not in ours.parts and unreached_parts(ours) == []
    )


def test_cards_without_nvlink_meet_in_their_sockets():
    rows = ["X NODE SYS SYS", "NODE X SYS SYS", "SYS SYS X PHB", "SYS SYS PHB X"]
    text = topology([row.split() for row in rows])
    ours = cluster_from_topology(text, catalog.accelerator("rtx-pro-6000"))
    links = bandwidths(ours)
    assert links["chip0", "socket0"] == links["chip3", "socket1"] == 63e9
    assert ours.peer_access and ("chip0", "socket1") not in links
    assert dict(ours.parts) == {"chip": 4, "socket": 2, "memory": 2}
    geforce = cluster_from_topology(text, catalog.accelerator("rtx4090"))
    assert not geforce.peer_access and bandwidths(geforce)["chip0", "socket0"] == 31.5e9


def test_bridges_between_pairs_are_links_of_those_two_only():
    rows = ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    ours = cluster_from_topology(
        topology([row.split() for row in rows]), catalog.accelerator("rtx3090")
    )
    fast = {ends: b for ends, b in bandwidths(ours).items() if ends[1].startswith("chip")}
    assert {ends: b for ends, b in fast.items() if ends[0] == "chip0"}["chip0", "chip1"] == 56.25e9
    assert sum(ends[0].startswith("chip") for ends in fast) == 4
    assert not ours.peer_access  # the rest goes through host memory, as in rtx3090-10-nvlink


def test_nics_may_have_the_names_of_their_driver_and_the_header_colours():
    text = dgx(2, 18).replace("NIC0", "mlx5_0").replace("NIC1", "mlx5_bond_0")
    text = "$ nvidia-smi topo -m\n\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1)
    assert read_matrix(text).nics == ("mlx5_0", "mlx5_bond_0")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("NV18\tX", "C2C\tX", "line 3: unknown entry 'C2C' between GPU1 and GPU0; known: X, PIX"),
        ("NV18\tX", "X\tX", "X cannot stand between GPU1 and GPU0"),
        ("NV18\tX", "NV17\tX", "GPU0 - GPU1 is NV18, but GPU1 - GPU0 is NV17"),
        ("GPU1\tNV18", "GPU7\tNV18", "'GPU7.*' is not the row of one more device"),
        ("\nGPU1\t", "\nLegend: \nGPU1\t", "the row of GPU1 is missing"),
        ("\tNIC0\t", "\tswitch\t", "column 'switch' is neither one GPU nor one NIC"),
        ("GPU0", "DEV0", "no line begins with GPU0"),
        ("NIC1\tSYS\tPXB\tSYS\tX", "NIC1\tSYS\tPXB\tSYS", "NIC1 has 3 entries, not 4"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_token_and_the_line(old, new, message):
    text = dgx(2, 18)
    assert old in text
    with pytest.raises(InputError, match=message):
        cluster_from_topology(text.replace(old, new), catalog.accelerator("h100-sxm"))


@pytest.mark.parametrize(
    ("text", "chip", "message"),
    [
        (dgx(8, 18), "a100-sxm-80g", "a100-sxm-80g has 12, and through an NVSwitch"),
        (dgx1().replace("NV2", "NV6"), "v100-sxm-32g", "need 14 links of one GPU"),
        (dgx(8, 18), "mi300x", "mi300x is of AMD"),
        (dgx(8, 18), "rtx4090", "rtx4090 has 0"),
        (
            topology([["X", "NV18"], ["NV18", "X"]], affinity=False),
            "h100-sxm",
            "nothing says which socket GPU0 is on",
        ),
        (
            topology([["X", "SYS", "NODE"], ["SYS", "X", "NODE"], ["NODE", "NODE", "X"]], nics=1),
            "h100-pcie",
            "GPU0 - GPU1 is SYS, but other entries put both on one socket",
        ),
    ],
)
def test_a_matrix_that_does_not_fit_the_chip_or_itself_is_refused(text, chip, message):
    with pytest.raises(InputError, match=message):
        cluster_from_topology(text, catalog.accelerator(chip))


ENTRY = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV4", "NV12", "N/A", "", "X"])


@given(st.lists(ENTRY, min_size=3, max_size=3), st.booleans())
def test_any_matrix_becomes_a_connected_cluster_or_one_message(entries, affinity):
    a, b, c = entries
    text = topology([["X", a, b], [a, "X", c], [b, c, "X"]], nics=1, affinity=affinity)
    try:
        cluster = cluster_from_topology(text, catalog.accelerator("a100-sxm-80g"))
    except InputError as error:
        assert str(error)
    else:
        assert unreached_parts(cluster) == []


@given(st.text(alphabet="GPU01 XNV\t\nSYPI/", max_size=80))
def test_no_text_crashes_the_parser(text):
    try:
        read_matrix(text)
    except InputError as error:
        assert str(error)


# --- the file it is written to ------------------------------------------------------------------


def test_a_written_topology_passes_the_check(tmp_path):
    cluster = cluster_from_topology(dgx(8, 18), catalog.accelerator("h100-sxm"))
    link, odd = cluster.links[0], '[so] = "it" \\ # is\n\t ü'
    link = replace(link, bandwidth=replace(link.bandwidth, note=odd))
    cluster = replace(cluster, title=odd, links=(link, *cluster.links[1:]))
    path = tmp_path / "mine.toml"
    path.write_text(cluster_toml(cluster, "Two lines\nof comment."), encoding="utf-8")
    assert catalog.check(path) == [] and catalog.load(path) == cluster
    assert path.read_text(encoding="utf-8").startswith("# Two lines\n# of comment.\nname = ")


PEER_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""


def peers(count, entry, tab="\t"):
    """What `nvidia-smi topo -p2p` prints, with one entry, or that of a pair, everywhere."""
    of = entry if callable(entry) else lambda i, j: entry
    names = [f"GPU{i}" for i in range(count)]
    rows = [
        [f" {name}", *(of(i, j) if i != j else "X" for j in range(count))]
        for i, name in enumerate(names)
    ]
    return "\n".join(tab.join(row) for row in [["", *names], *rows]) + "\n" + PEER_LEGEND


@given(count=st.integers(2, 10), pair=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_peers_are_those_of_the_text(count, pair):
    a, b = (i % count for i in pair)
    entry = lambda i, j: "CNS" if {i, j} == {a, b} else "OK"
    rest, found = split_peers("before\n" + peers(count, entry) + "after")
    assert rest.startswith("before\n") and rest.endswith("after") and "GPU" not in rest
    refused = {pair for pair, state in found.status.items() if state != "OK"}
    assert refused == ({(f"GPU{a}", f"GPU{b}"), (f"GPU{b}", f"GPU{a}")} if a != b else set())


@pytest.mark.parametrize("first", [True, False], ids=["-p2p before -m", "-p2p behind -m"])
@pytest.mark.parametrize("entry, expected", [("OK", True), ("CNS", False), ("GNS", False)])
def test_p2p_decides_about_peer_access(entry, expected, first):
    blocks = [
        peers(4, entry),
        topology([["X" if i == j else "PHB" for j in range(4)] for i in range(4)]),
    ]
    text = "\n\n".join(blocks if first else blocks[::-1])
    made = cluster_from_topology(text, catalog.accelerator("rtx3090"))
    assert made.peer_access == expected


def test_nvlink_of_p2p_n_says_nothing_about_pcie():
    text = "$ nvidia-smi topo -p2p n\n" + peers(4, "NS")
    assert split_peers(text)[1] is None


@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
def test_a_pair_that_is_refused_in_one_direction_is_counted_once(pair):
    _, found = split_peers(peers(3, lambda i, j: "CNS" if (i, j) == pair else "OK"))
    assert found.words.startswith("1 of 3 pairs have no peer access: chipset not supported (CNS)")


def test_matrices_of_different_hosts_are_refused():
    with pytest.raises(InputError, match="2 GPUs follows one of 4"):
        split_peers(peers(4, "OK") + "\n" + peers(2, "OK"))


def test_only_a_gpu_itself_has_an_x():
    with pytest.raises(InputError, match="is not the row of GPU1"):
        split_peers(peers(3, lambda i, j: "X" if (i, j) == (1, 2) else "OK"))


@pytest.mark.parametrize("entry", ["XXX", "NV4", ""])
def test_an_unknown_entry_of_p2p_is_an_error(entry):
    text = peers(3, lambda i, j: entry if (i, j) == (1, 2) else "OK")
    with pytest.raises(InputError, match="is not the row of GPU1"):
        split_peers(text)
