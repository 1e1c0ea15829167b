"""Drawings of a cluster, of a mesh on it, and of a collective around a ring."""

import scaling as sc
from scaling.pictures.cluster import cluster_levels
from scaling.pictures.mesh import mesh_axes
from scaling.pictures.ring import frames, ring_steps
from scaling.pictures.shapes import Picture


def cluster() -> Picture:
    """Four nodes of a cluster of 16."""
    found = sc.load_cluster("dgx-h100", 16)
    return cluster_levels(found, f"{found.name}: {found.title}")


def mesh() -> Picture:
    """Three axes on 32 devices."""
    return mesh_axes({"data": 2, "fsdp": 4, "tensor": 4}, 8, "data=2, fsdp=4, tensor=4")


def ring() -> Picture:
    """An all-gather of four members."""
    return ring_steps(frames("all-gather", 4), "all-gather around a ring of 4")
