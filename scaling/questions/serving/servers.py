"""The devices that serve: a cluster, and how weights, KV cache and batch are spread over them.

tensor    every matrix is cut; the KV cache over heads, then over sequences
expert    routed experts are spread, the rest is copied; the batch is cut
data      copies of the whole model; the batch is cut
"""

from dataclasses import dataclass

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits, groups_on
from scaling.meshes.shape import AXES, MeshShape
from scaling.questions.serving.model import ServedModel

SERVING_AXES = ("data", "expert", "tensor")


@dataclass(frozen=True)
class Servers:
    """A mesh on a cluster."""

    cluster: Cluster
    mesh: MeshShape

    @property
    def devices(self) -> int:
        """All of them."""
        return self.mesh.devices

    @property
    def replica(self) -> int:
        """Devices of one copy of the model."""
        return self.mesh.tensor * self.mesh.expert

    @property
    def peak_bytes(self) -> float:
        """bytes/s of the memory of one device."""
        return self.cluster.accelerator.required("memory_bandwidth")

    def groups(self, axis: str) -> np.ndarray:
        """Device ids [groups, members] along one axis."""
        return groups_on(self.mesh, (axis,), self.cluster)

    def device_weights(self, model: ServedModel) -> float:
        """Bytes of weights that one device holds."""
        return model.dense_bytes / self.mesh.tensor + model.routed_bytes / self.replica


def check_servers(servers: Servers, model: ServedModel) -> None:
    """Raise InputError for a mesh that does not serve, or does not fit on the cluster."""
    mesh = servers.mesh
    check_fits(mesh, servers.cluster)
    for axis in AXES:
        if getattr(mesh, axis) > 1 and axis not in SERVING_AXES:
            raise InputError(
                f"--mesh {mesh}: serving has the axes {', '.join(SERVING_AXES)}, not {axis}: "
                "fsdp and context would send weights or keys at every token"
            )
    if mesh.expert > 1 and (model.routed == 0 or model.experts % mesh.expert):
        have = f"{model.experts} routed experts" if model.routed else "no routed experts"
        raise InputError(
            f"--mesh {mesh}: {model.name} has {have}, which expert={mesh.expert} does not divide"
        )
