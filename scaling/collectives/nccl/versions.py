"""NCCL's constants version by version: what each release changed, oldest first.

Read from the tags of NVIDIA/nccl on GitHub (v2.18.5-1 to v2.30.7-1, each with its commit). Releases
between two that stand here change nothing that matters to the choice, or are not there.
"""

from dataclasses import replace

from scaling.collectives.nccl.constants import Constants, Hosts, Row, Search, Speeds
from scaling.meshes.errors import InputError

NONE: Row = (0.0, 0.0, 0.0)
AMPERE_INSIDE: Speeds = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
AMPERE_OUTSIDE: Speeds = (
    *(48, 30, 28, 24, 20, 18, 15, 12, 10, 9),
    *(7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
)
SLOW: Speeds = (6, 3, 2.4, 1.2, 0.24, 0.12)
HOPPER_INSIDE: Speeds = (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)
HOPPER_OUTSIDE: Speeds = (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)
BLACKWELL_REST: Speeds = (45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)

V2_18_5 = Constants(
    version="2.18.5",
    commit="559b70f86c190a0d8f67f0d7a0f2c9810dd1e8c7",
    base={
        "tree": (6.8, 14.0, 0.0),
        "ring": (6.6, 14.0, 8.4),
        "nvls": (0.0, 0.0, 23.0),
        "nvls-tree": (0.0, 0.0, 23.0),
    },
    nvlink={"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4), "nvls": NONE, "nvls-tree": NONE},
    pcie={"tree": (1.0, 1.9, 6.0), "ring": (1.0, 2.5, 5.7), "nvls": NONE, "nvls-tree": NONE},
    network={
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "nvls": (0.0, 0.0, 18.0),
        "nvls-tree": (0.0, 0.0, 19.0),
    },
    ll_most=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (87.7, 22.5, 19.0)),
    ring_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7)),
    tree_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0)),
    tree_most=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0)),
    nvls_tree_most=(),
    search=Search(
        most_channels=16,
        nvls_heads=8,
        nvlink=((60, 18.0), (70, 20.0), (80, 20.0), (86, 12.0), (87, 20.0)),
        inside=((0, AMPERE_INSIDE), (90, (60, 40, 30, 24, 20, 15, 12, 6, 3))),
        outside=((0, AMPERE_OUTSIDE), (90, (48, 45, 42, 40, 30, 24, 20, 17.5, 15, 12, *SLOW))),
    ),
    hosts=Hosts(amd=5000.0, intel=((0, 6.0), (10, 10.0))),
    ring_ll=(1 / 4, 1 / 3),
    ll128_on=(70, 80, 90),
    lone_ll128=0.7,
    lone_hop=False,
    closing=0,
    nvls="first",
    nvls_gpus=3,
    nvls_tree_corrections=0,
    pat=0.0,
)
V2_19_3 = replace(
    V2_18_5,
    version="2.19.3",
    commit="8c6c5951854a57ba90c4424fa040497f6defac46",
    base={**V2_18_5.base, "nvls": NONE, "nvls-tree": NONE},
    nvlink={
        "tree": (0.6, 1.25, 28.0),
        "ring": (0.6, 1.9, 3.4),
        "nvls": (0.0, 0.0, 23.0),
        "nvls-tree": (0.0, 0.0, 23.0),
    },
    pcie={**V2_18_5.pcie, "tree": (1.0, 1.9, 28.0)},
    network={**V2_18_5.network, "tree": (5.0, 8.5, 28.0), "nvls-tree": (0.0, 0.0, 14.0)},
    search=replace(
        V2_18_5.search,
        inside=((0, AMPERE_INSIDE), (90, (60, 50, 40, 30, 24, 20, 15, 12, 6, 3))),
        outside=((0, AMPERE_OUTSIDE), (90, HOPPER_OUTSIDE)),
    ),
    hosts=Hosts(intel=((0, 6.0), (10, 10.0))),
    nvls="least",
)
V2_20_5 = replace(
    V2_19_3,
    version="2.20.5",
    commit="48bb7fec7953112ff37499a272317f6663f8f600",
    search=replace(V2_19_3.search, nvlink=(*V2_19_3.search.nvlink, (90, 20.6))),
)
V2_21_5 = replace(
    V2_20_5,
    version="2.21.5",
    commit="ab2b89c4c339bd7f816fbc114a4b05d386b66290",
    nvlink={**V2_20_5.nvlink, "nvls": (0.0, 0.0, 25.0), "nvls-tree": (0.0, 0.0, 25.0)},
    ll_most=(*V2_20_5.ll_most[:2], (141.0, 45.0, 35.0)),
    ring_ll=(1 / 2, 1 / 2),
    search=replace(V2_20_5.search, nvls_heads=32, inside=((0, AMPERE_INSIDE), (90, HOPPER_INSIDE))),
)
V2_22_3 = replace(V2_21_5, version="2.22.3", commit="178b6b759074597777ce13438efb0e0ba625e429")
V2_23_4 = replace(
    V2_22_3,
    version="2.23.4",
    commit="68b542363f9a44cdaac480f51ebe0fc26de96139",
    base={**V2_22_3.base, "tree": (6.8, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)},
    nvlink={**V2_22_3.nvlink, "tree": (0.6, 1.25, 4.0), "pat": NONE},
    pcie={**V2_22_3.pcie, "tree": (1.0, 1.9, 4.0), "pat": NONE},
    network={**V2_22_3.network, "tree": (5.0, 8.5, 14.0), "pat": NONE},
    lone_ll128=0.92,
    lone_hop=True,
    closing=1,
    pat=0.85,
)
V2_24_3 = replace(
    V2_23_4, version="2.24.3", commit="6aae37927840b2bd7b7d42d2f0050e75f88ee97f", pat=0.75
)
V2_25_1 = replace(
    V2_24_3,
    version="2.25.1",
    commit="80f6bda4378b99d99e82b4d76a633791cc45fef0",
    ll_most=(*V2_24_3.ll_most, (282.0, 90.0, 70.0)),
    ring_ll128=(*V2_24_3.ring_ll128, (73.4, 73.4, 73.4)),
    tree_ll128=(*V2_24_3.tree_ll128, (73.4, 73.4, 58.0)),
    tree_most=(*V2_24_3.tree_most, (77.4, 82.8, 72.0)),
    ll128_on=(70, 80, 90, 100, 120),
    search=Search(
        nvlink=(*V2_24_3.search.nvlink, (100, 40.0)),
        inside=(*V2_24_3.search.inside, (100, (90, 80, 70, 60, 50, 40, 30, 24, 20, 19))),
        outside=(*V2_24_3.search.outside, (100, HOPPER_OUTSIDE)),
    ),
)
V2_26_2 = replace(
    V2_25_1, version="2.26.2", commit="f44ac759fee12ecb3cc6891e9e739a000f66fd70", hosts=Hosts()
)
V2_27_3 = replace(
    V2_26_2,
    version="2.27.3",
    commit="72d2432094d6ae36abd6e511c3a16a2d052dbf94",
    nvls="gathers",
    ll128_on=(),
    search=replace(
        V2_26_2.search,
        inside=(*V2_24_3.search.inside, (100, (90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18))),
        outside=(*V2_24_3.search.outside, (100, (47.9, *HOPPER_OUTSIDE[1:]))),
    ),
)
V2_27_7 = replace(
    V2_27_3,
    version="2.27.7",
    commit="593de54e52679b51428571c13271e2ea9f91b1b1",
    search=replace(
        V2_27_3.search,
        nvlink=(*V2_24_3.search.nvlink, (100, 40.1)),
        outside=(*V2_24_3.search.outside, (100, (96, 48, *BLACKWELL_REST))),
    ),
)
V2_28_3 = replace(
    V2_27_7,
    version="2.28.3",
    commit="f1308997d0420148b1be1c24d63f19d902ae589b",
    nvlink={**V2_27_7.nvlink, "pat": (0.0, 0.0, 4.0)},
    pcie={**V2_27_7.pcie, "pat": (0.0, 0.0, 4.0)},
    network={**V2_27_7.network, "pat": (0.0, 0.0, 14.0)},
    tree_ll128=(*V2_24_3.tree_ll128, (55.6, 31.67, 20.0)),
    tree_most=(*V2_24_3.tree_most, (70.0, 42.8, 24.0)),
    nvls_tree_most=(
        *((26.5, 18.5, 10.0), (24.0, 23.6, 17.8)),
        *((0.0, 57.7, 45.5), (0.0, 96.0, 43.1)),
    ),
    nvls="measured",
)
V2_28_9 = replace(
    V2_28_3,
    version="2.28.9",
    commit="dbc86fd06e8b0c4517b95d8958a09ccacf9520c9",
    network={**V2_28_3.network, "nvls-tree": (0.0, 0.0, 20.9)},
    ring_ll128=(*V2_24_3.ring_ll128, (73.4, 34.6, 73.4)),
    nvls_tree_most=(*V2_28_3.nvls_tree_most[:3], (0.0, 96.0, 43.8)),
    nvls_gpus=2,
)
V2_29_2 = replace(
    V2_28_9,
    version="2.29.2",
    commit="ebd1e929285881cb4df02c3459588a2e12b2d8c0",
    ring_ll128=(*V2_24_3.ring_ll128, (34.5, 34.6, 34.5)),
    nvls_tree_corrections=24,
    search=replace(
        V2_28_9.search,
        inside=(*V2_24_3.search.inside, (100, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18))),
    ),
)
V2_29_7 = replace(
    V2_29_2,
    version="2.29.7",
    commit="b91894bd5b190c874d98a017f93f5daa515b65d0",
    ring_ll128=(*V2_24_3.ring_ll128, (40.0, 40.0, 40.0)),
    search=replace(
        V2_29_2.search,
        outside=(*V2_24_3.search.outside, (100, (96, 80, 48, *BLACKWELL_REST))),
    ),
)
V2_30_7 = replace(
    V2_29_7,
    version="2.30.7",
    commit="73cf112295c33aee2b895f329f592f2a9b4b0f97",
    nvls_tree_most=(*V2_28_3.nvls_tree_most[:3], (0.0, 96.0, 80.0)),
    search=replace(
        V2_29_7.search,
        outside=(*V2_24_3.search.outside, (100, (96, 86, 80, 48, *BLACKWELL_REST))),
    ),
)

VERSIONS = {
    constants.version: constants
    for constants in (
        *(V2_18_5, V2_19_3, V2_20_5, V2_21_5, V2_22_3, V2_23_4, V2_24_3, V2_25_1),
        *(V2_26_2, V2_27_3, V2_27_7, V2_28_3, V2_28_9, V2_29_2, V2_29_7, V2_30_7),
    )
}
NEWEST = V2_30_7.version


def constants_of(version: str = NEWEST) -> Constants:
    """Of a version such as "2.27.7" or "2.27.7+cuda12.8"; InputError names those known."""
    found = VERSIONS.get(version.partition("+")[0])
    if found is None:
        raise InputError(f"NCCL {version} is not known here; known: {', '.join(VERSIONS)}")
    return found
