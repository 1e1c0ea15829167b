"""The chip that a kernel is asked about: its figures, another memory's bandwidth, a link."""

from scaling.api.inputs import Overrides, device_count, override_texts
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator, with_figures
from scaling.meshes.catalog.overrides import override_chip
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_range
from scaling.meshes.host_link import rated_host_bandwidth
from scaling.meshes.provenance import overridden
from scaling.meshes.units import parse_quantity
from scaling.questions.kernel_target import KernelTarget
from scaling.questions.workloads import Formats

RATES = (1.0, 1e24)  # bytes/s, chosen by this project: times stay finite
HOST = "host"


def kernel_target(
    formats: Formats,
    accelerator: str | None,
    cluster: str | None,
    source: str | None,
    bandwidth: str | float | None,
    overrides: Overrides | None,
    devices: int,
) -> KernelTarget:
    """Return the chip with its figures as they are asked for, and the link to the host.

    Args:
        formats, devices: of the kernel.
        accelerator, cluster, source, bandwidth, overrides: see `scaling.api.kernel.kernel`.

    Raises:
        InputError: see there.
    """
    if accelerator is None and cluster is None:
        raise InputError("name a chip: --accelerator h100-sxm (`scaling chip list` has all)")
    chip = (
        catalog.load(str(cluster)).accelerator
        if accelerator is None
        else catalog.accelerator(accelerator)
    )
    chip = override_chip(chip, override_texts(overrides))
    memory = "memory bandwidth"
    if bandwidth is not None:
        chip, memory = _with_bandwidth(chip, str(bandwidth).strip())
    count = device_count(devices)
    link = None if source is None else _link(source.strip(), chip, cluster)
    return KernelTarget(chip, formats.products or formats.activations, count, link, memory)


def products_format(cluster: Cluster, stated: str | None) -> str:
    """Return the format of products: the one stated, bf16, or the first that the chip has.

    Raises:
        InputError: the chip does not multiply in that format.
    """
    peaks = cluster.accelerator.peaks
    compute = stated or next((dtype for dtype in ("bf16", *peaks) if dtype in peaks), "bf16")
    cluster.accelerator.peak(compute)
    return compute


def _with_bandwidth(chip: Accelerator, text: str) -> tuple[Accelerator, str]:
    """Return the chip with another memory's bandwidth, and how its formula calls that."""
    if text.endswith("x"):
        try:
            factor = parse_quantity(text[:-1], "")
        except InputError as error:
            raise InputError(f"--bandwidth {text}: {error}; a factor is written 22x") from None
        rate = factor * chip.required("memory_bandwidth")
        words = f"{factor:g} x memory bandwidth"
    else:
        try:
            rate, words = parse_quantity(text, "B/s"), "bandwidth that is asked for"
        except InputError as error:
            raise InputError(f"--bandwidth {error}, or 22x that of the memory") from None
    check_range("--bandwidth", rate, *RATES)
    return with_figures(chip, {"memory_bandwidth": overridden(rate)}), words


def _link(text: str, chip: Accelerator, cluster: str | None) -> float:
    """Return the rated bytes/s over which weights come."""
    if text != HOST:
        try:
            rate = parse_quantity(text, "B/s")
        except InputError as error:
            raise InputError(f"--from {error}; or host, for the catalogue's link") from None
        check_range("--from", rate, *RATES)
        return rate
    names = catalog.names() if cluster is None else [cluster]
    places = [place for place in map(catalog.load, names) if place.accelerator.name == chip.name]
    rates = {place.name: _rated(place) for place in places}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if not known:
        where = f"cluster {cluster}" if cluster else "the catalogue"
        raise InputError(
            f"--from host: {where} has no link from {chip.name} to a host; state its rate, such as "
            "--from 16GB/s"
        )
    if len(set(known.values())) > 1:
        list_ = ", ".join(f"{name} {rate / 1e9:.3g} GB/s" for name, rate in known.items())
        raise InputError(f"--from host: {chip.name} has several: add --cluster, one of {list_}")
    return next(iter(known.values()))


def _rated(place: Cluster) -> float | None:
    """Bytes/s from a chip to its host's memory; where none is described, to its socket."""
    return rated_host_bandwidth(place) or rated_host_bandwidth(place, "socket")
