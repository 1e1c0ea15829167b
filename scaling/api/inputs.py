"""Names, paths and objects that the API accepts, as clusters, meshes and amounts.

cluster     catalogue name | TOML file | Cluster
mesh        "fsdp=8,tensor=4" | {"fsdp": 8, "tensor": 4} | MeshShape
options     "xla_gpu_enable_triton_gemm=false" | [...] | {"xla_gpu_enable_triton_gemm": False}
overrides   "memory=40GB" | ["memory=40GB", "peak_bf16=400e12"] | {"memory": "40GB"}
amount      15e12 | "15T" | "96GB" | "20ms"
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.public_api import Drawn, entrance
from scaling.meshes import catalog
from scaling.meshes.catalog.load import loaded_already
from scaling.meshes.catalog.overrides import KEYS, override_chip
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, reworded, whole_number
from scaling.meshes.shape import MeshShape, axes_text, parse_axes, parse_mesh
from scaling.meshes.units import Unit, parse_count, parse_quantity
from scaling.program.versions import xla_option
from scaling.training.launch.gpu import avoid_absent_gpus

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

ClusterLike = Cluster | str | Path
MeshLike = MeshShape | str | Mapping[str, int]
Overrides = Mapping[str, float | str] | Iterable[str]
XlaOptions = Mapping[str, bool | str | int] | Iterable[str]
MOST_DEVICES = 10_000_000  # as of a cluster of the catalogue; chosen by this project
LARGEST = 1e18  # tokens, parameters, or bytes of a device; chosen by this project


def keep_devices_free() -> None:
    """Let jax make devices of CPUs only, where it can still be told: absent GPUs need none."""
    if "jax" not in sys.modules:
        os.environ["JAX_PLATFORMS"] = "cpu"
    avoid_absent_gpus()


@dataclass(frozen=True, repr=False, eq=False)
class ClusterResult(Drawn, Cluster):
    """A cluster that prints as the page of `scaling cluster show`; see `Cluster` for the figures.

    It equals a `Cluster` of the same figures.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling cluster show --json` prints."""
        from scaling.report.cluster_json import as_json

        return as_json(self)

    def picture(self) -> "Picture":
        """Return the chips and the levels of the network."""
        from scaling.pictures.cluster import cluster_levels

        return cluster_levels(self, f"{self.name}: {self.title}")

    def __str__(self) -> str:
        from scaling.report.cluster import page

        return page(self)

    def line(self) -> str:
        return f"{self.name}, {self.nodes} x {self.devices_per_node} {self.accelerator.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cluster) and vars(self) == vars(other)

    __hash__ = Cluster.__hash__


@entrance
def load_cluster(
    cluster: ClusterLike, nodes: int | None = None, *, overrides: Overrides | None = None
) -> ClusterResult:
    """Return a cluster of `nodes` hosts from the catalogue or from a TOML file.

    >>> import scaling as sc
    >>> sc.load_cluster("dgx-h100", nodes=4).devices
    32

    Args:
        cluster: catalogue name (`scaling cluster list`), path of a TOML file, or a Cluster.
        nodes: number of hosts; None: 1, or those of the Cluster.
        overrides: figures that replace the file's, such as {"memory": "40GB"}.

    Raises:
        InputError: unknown name or key (the nearest one is named), a file that cannot be read.
    """
    if isinstance(cluster, Cluster):
        loaded = loaded_already(cluster, nodes, overrides)
    else:
        loaded = catalog.load(str(cluster), 1 if nodes is None else nodes, as_overrides(overrides))
    return ClusterResult(**vars(loaded))


def cluster_for(
    devices: int, cluster: ClusterLike, nodes: int | None, overrides: Overrides | None
) -> Cluster:
    """Return the cluster with at least `devices` devices; None nodes: as few as that needs."""
    if nodes is None and not isinstance(cluster, Cluster):
        host = load_cluster(cluster, overrides=overrides)
        nodes = 1 if host.virtual_devices else -(-devices // host.devices_per_node)
    place = load_cluster(cluster, nodes, overrides=overrides)
    if devices > place.devices and not place.virtual_devices:
        raise InputError(
            f"the mesh has {devices} devices, {place.name} with {place.nodes} node(s) has "
            f"{place.devices}: use --nodes {-(-devices // place.devices_per_node)}"
        )
    return place


def cluster_with(
    devices: int | None, cluster: ClusterLike, nodes: int | None, overrides: Overrides | None
) -> tuple[Cluster, int]:
    """Return a cluster with as many nodes, and chips of them, as the devices need; their number.

    Unlike those of `load_cluster`, overrides may be of the chip too: peak_bf16=400e12.

    Args:
        devices: how many are used; None: all.
        nodes: hosts; None: as many as the devices need, or 1.

    Raises:
        InputError: unknown names or keys, more devices than there can be.
    """
    if isinstance(cluster, Cluster):
        place = loaded_already(cluster, nodes, overrides)
        return place, devices or place.devices
    items = override_texts(overrides)
    chip_items = [item for item in items if item.partition("=")[0] not in KEYS]
    figures = catalog.parse_overrides(item for item in items if item not in chip_items)
    count = None if devices is None else whole_number("--devices", devices)
    if nodes is None and count is not None:
        host = catalog.load(str(cluster), 1, figures)
        if count < host.devices_per_node or host.virtual_devices:
            figures["gpus_per_node"] = float(count)
        else:
            nodes = -(-count // host.devices_per_node)
    place = catalog.load(str(cluster), 1 if nodes is None else nodes, figures)
    if count is not None and count > place.devices:
        raise InputError(
            f"--devices {count}: {place.nodes} node(s) of {place.name} have {place.devices}"
        )
    place = replace(place, accelerator=override_chip(place.accelerator, chip_items))
    return place, count or place.devices


def device_count(devices: int) -> int:
    """Return a number of devices; InputError below 1 or above MOST_DEVICES."""
    count = whole_number("--devices", devices)
    if count > MOST_DEVICES:
        raise InputError(f"--devices {count}: at most {MOST_DEVICES:,}")
    return count


def amount(
    name: str, value: float | str | None, unit: Unit = "", least: float = 0.0, most: float = LARGEST
) -> float | None:
    """Return the number that an option has, or its text states: 15T, 70B, or 96GB of a unit.

    Raises:
        InputError: it cannot be read, is not positive, or not between `least` and `most`.
    """
    if value is None:
        return None
    if isinstance(value, str):
        with reworded(f"{name} "):
            value = parse_quantity(value, unit) if unit else parse_count(value)
    number = float(value)
    if not (0 < number and least <= number <= most):  # also no NaN
        lower = f"at least {least:g}" if least else "positive"
        raise InputError(f"{name} {number:g} must be {lower}, at most {most:g}")
    return number


def products_format(cluster: Cluster, stated: str | None) -> str:
    """Return the format of products: the one stated, bf16, or the first that the chip has."""
    peaks = cluster.accelerator.peaks
    compute = stated or next((dtype for dtype in ("bf16", *peaks) if dtype in peaks), "bf16")
    cluster.accelerator.peak(compute)
    return compute


def as_mesh(mesh: MeshLike, order: tuple[str, ...]) -> MeshShape:
    """Return the mesh; sizes given as text or as a mapping take the device order `order`."""
    if isinstance(mesh, MeshShape):
        return mesh
    return parse_mesh(_mesh_text(mesh), order)


def as_overrides(overrides: Overrides | None) -> dict[str, float]:
    """Return overrides as numbers in SI units, from a mapping or from "key=value" texts."""
    return catalog.parse_overrides(override_texts(overrides))


def override_texts(overrides: Overrides | None) -> tuple[str, ...]:
    """Return overrides as "key=value" texts."""
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={value}" for key, value in overrides.items()]
    return as_texts(overrides or (), "--override", "memory=40GB")


def as_options(options: XlaOptions | None) -> dict[str, Any]:
    """Return options of XLA by name, from a mapping or from "NAME=VALUE" texts."""
    if isinstance(options, Mapping):
        return dict(options)
    texts = as_texts(options or (), "--option", "xla_gpu_enable_triton_gemm=false")
    return dict(xla_option(text.removeprefix("--")) for text in texts)


def axis_sizes(mesh: MeshLike) -> dict[str, int]:
    """Return axis -> size, outermost first, for axes of any names."""
    return dict(mesh.sizes) if isinstance(mesh, MeshShape) else parse_axes(_mesh_text(mesh))


def _mesh_text(mesh: str | Mapping[str, int]) -> str:
    if isinstance(mesh, str):
        return mesh
    return axes_text({axis: _size(size) for axis, size in mesh.items()})


def _size(size: object) -> object:
    return int(size) if isinstance(size, float) and size.is_integer() else size


def as_texts(texts: str | Iterable[str], where: str, example: str) -> tuple[str, ...]:
    """Return one text, or several, as a tuple."""
    values = (texts,) if isinstance(texts, str) or not isinstance(texts, Iterable) else tuple(texts)
    for value in values:
        if not isinstance(value, str):
            raise InputError(f"{where}: expected a text such as {example!r}, got {value!r}")
    return values


def as_axes(axes: str | Iterable[str] | None, option: str = "--device-order") -> tuple[str, ...]:
    """Return axis names from "data,fsdp", "data+fsdp" (as documents have it), or a sequence."""
    if isinstance(axes, str):
        return tuple(axis.strip() for axis in axes.replace("+", ",").split(","))
    return as_texts(() if axes is None else axes, option, "data,fsdp")
