"""Drawings of a cluster, of a mesh on it, and of a collective around a ring."""

from pathlib import Path

import scaling as sc
from scaling.pictures.drawing.frames import frames
from scaling.pictures.plots import plot_cluster, plot_mesh, plot_ring


def cluster(path: Path) -> None:
    """Four nodes of a cluster of 16."""
    found = sc.load_cluster("dgx-h100", 16)
    plot_cluster(found, f"{found.name}: {found.title}", path)


def mesh(path: Path) -> None:
    """Three axes on 32 devices."""
    plot_mesh({"data": 2, "fsdp": 4, "tensor": 4}, 8, "data=2, fsdp=4, tensor=4", path)


def ring(path: Path) -> None:
    """An all-gather of four members."""
    plot_ring(frames("all-gather", 4), "all-gather around a ring of 4", path)
