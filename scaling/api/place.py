"""The cluster of a question that states devices, and figures of the cluster or of its chip."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaling.api.settings import as_texts
from scaling.meshes import catalog
from scaling.meshes.catalog.chip_overrides import override_chip
from scaling.meshes.catalog.overrides import KEYS
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, whole_number
from scaling.simulate.resolve import loaded_already

Figures = Mapping[str, Any] | list[str] | tuple[str, ...] | str


def place_of(
    cluster: Any, nodes: int | None, devices: int | None, overrides: Figures | None
) -> tuple[Cluster, int]:
    """Return a cluster with as many nodes, and chips of them, as the devices need; their number.

    Args:
        cluster: catalogue name, TOML file or Cluster.
        nodes: hosts; None: as many as the devices need, or 1.
        devices: how many are used; None: all.
        overrides: figures of the cluster, and peaks (peak_bf16=400e12) and figures of its chip.

    Raises:
        InputError: unknown names or keys, more devices than there can be.
    """
    if isinstance(cluster, Cluster):
        place = loaded_already(cluster, nodes, overrides)
        return place, devices or place.devices
    figures, chip_items = _split(overrides)
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


def products_format(place: Cluster, stated: str | None) -> str:
    """Return the format of products: the one stated, bf16, or the first that the chip has.

    Raises:
        InputError: the chip does not multiply in that format.
    """
    peaks = place.accelerator.peaks
    compute = stated or next((dtype for dtype in ("bf16", *peaks) if dtype in peaks), "bf16")
    place.accelerator.peak(compute)
    return compute


def _split(overrides: Figures | None) -> tuple[dict[str, float], list[str]]:
    """Return figures of the cluster, and texts that are of its chip."""
    if isinstance(overrides, Mapping):
        overrides = tuple(f"{key}={value}" for key, value in overrides.items())
    items = as_texts(overrides or (), "--override", "memory=40GB")
    ours = [item for item in items if item.partition("=")[0] in KEYS]
    return catalog.parse_overrides(ours), [item for item in items if item not in ours]
