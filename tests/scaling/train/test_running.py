"""Which cluster of the catalogue the devices of a real mesh are."""

from types import SimpleNamespace

import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.train.running import cluster_of


def mesh_of(kind, hosts, each):
    devices = [
        SimpleNamespace(platform="gpu", device_kind=kind, process_index=host)
        for host in range(hosts)
        for _ in range(each)
    ]
    return SimpleNamespace(devices=np.array(devices, dtype=object), size=hosts * each)


@pytest.mark.parametrize(
    ("kind", "each", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 8, "dgx-h100"),  # clouds have this GPU as well
        ("NVIDIA A100-SXM4-40GB", 4, "dgx-a100-40g"),
        ("NVIDIA H200", 1, "dgx-h200"),
        ("NVIDIA GeForce RTX 3090", 10, "rtx3090-10"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, "rtx-pro-6000-8"),
        ("NVIDIA GB200", 4, "gb200-nvl72"),
        ("AMD Instinct MI300X", 8, "mi300x-8"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_jax_gives_it(kind, each, name):
    cluster = cluster_of(mesh_of(kind, 2, each), None)
    assert (cluster.name, cluster.nodes, cluster.devices_per_node) == (name, 2, each)


def test_a_gpu_that_no_cluster_has_lists_those_that_are_there():
    with pytest.raises(InputError, match="has 8 NVIDIA GB200 in a host; there are .*NVIDIA GB300"):
        cluster_of(mesh_of("NVIDIA GB200", 1, 8), None)
