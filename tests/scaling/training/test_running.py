"""Which cluster of the catalogue the devices of a real mesh are."""

from types import SimpleNamespace

import numpy as np
import pytest

from scaling.meshes.cluster import network_link
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import OVERRIDE
from scaling.run import ClusterChoice
from scaling.training.running import cluster_of

H100 = "NVIDIA H100 80GB HBM3"
ANY = SimpleNamespace(cluster=None)  # a run that states no cluster


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
        (H100, 8, "dgx-h100"),  # clouds have this GPU as well
        ("NVIDIA A100-SXM4-40GB", 4, "dgx-a100-40g"),
        ("NVIDIA H200", 1, "dgx-h200"),
        ("NVIDIA GeForce RTX 3090", 10, "rtx3090-10"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, "rtx-pro-6000-8"),
        ("NVIDIA GB200", 4, "gb200-nvl72"),
        ("AMD Instinct MI300X", 8, "mi300x-8"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_jax_gives_it(kind, each, name):
    cluster, _ = cluster_of(mesh_of(kind, 2, each), ANY)
    assert (cluster.name, cluster.nodes, cluster.devices_per_node) == (name, 2, each)


def test_a_gpu_that_no_cluster_has_lists_those_that_are_there():
    with pytest.raises(InputError, match="has 8 NVIDIA GB200 in a host; there are .*NVIDIA GB300"):
        cluster_of(mesh_of("NVIDIA GB200", 1, 8), ANY)


def test_the_cluster_that_the_run_states_is_the_one_that_is_priced():
    choice = ClusterChoice(name="p5", nodes=64, overrides={"node_network_bandwidth": 1e11})
    cluster, warnings = cluster_of(mesh_of(H100, 2, 8), SimpleNamespace(cluster=choice))
    assert (cluster.name, cluster.nodes, warnings) == ("p5", 2, [])
    assert network_link(cluster).bandwidth.source == OVERRIDE


def test_a_cluster_with_other_chips_than_those_present_is_not_priced():
    choice = ClusterChoice(name="dgx-a100")
    cluster, warnings = cluster_of(mesh_of(H100, 1, 8), SimpleNamespace(cluster=choice))
    assert cluster.name == "dgx-h100"
    assert warnings == [f"the run is meant for dgx-a100, but there are 8 {H100} in a host"]


def test_several_clusters_with_that_gpu_are_named_where_their_network_matters():
    cluster, (warning,) = cluster_of(mesh_of(H100, 2, 8), ANY)
    assert warning.startswith("predicted for the network of dgx-h100; ") and "p5" in warning
    assert cluster_of(mesh_of(H100, 1, 8), ANY)[1] == []
    assert cluster_of(mesh_of("NVIDIA GB200", 2, 4), ANY)[1] == []
