"""The chip that a kernel is asked about: its figures, another memory's bandwidth, a link."""

from collections.abc import Iterable
from typing import Any

from scaling.api.settings import as_texts
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator, with_figures
from scaling.meshes.catalog.chip_overrides import override_chip
from scaling.meshes.errors import InputError, check_range, whole_number
from scaling.meshes.host_link import rated_host_bandwidth
from scaling.meshes.provenance import overridden
from scaling.meshes.units import parse_quantity
from scaling.questions.place import Place
from scaling.questions.workloads import Formats

MOST_DEVICES = 10_000_000  # chosen by this project
RATES = (1.0, 1e24)  # bytes/s, chosen by this project: times stay finite
HOST = "host"


def place_of(
    formats: Formats,
    accelerator: str | None,
    cluster: str | None,
    source: str | None,
    bandwidth: str | float | None,
    override: Iterable[str],
    devices: int,
) -> Place:
    """Return the chip with its figures as they are asked for, and the link to the host.

    Args:
        formats, devices: of the kernel.
        accelerator, cluster, source, bandwidth, override: see `scaling.api.kernel.kernel`.

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
    chip = override_chip(chip, as_texts(override, "--override", "peak_bf16=400e12"))
    memory = "memory bandwidth"
    if bandwidth is not None:
        chip, memory = _with_bandwidth(chip, str(bandwidth).strip())
    count = device_count(devices)
    link = None if source is None else _link(source.strip(), chip, cluster)
    return Place(chip, formats.products or formats.activations, count, link, memory)


def device_count(devices: int) -> int:
    """Return a number of devices; InputError below 1 or above MOST_DEVICES."""
    count = whole_number("--devices", devices)
    if count > MOST_DEVICES:
        raise InputError(f"--devices {count}: at most {MOST_DEVICES:,}")
    return count


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


def _rated(place: Any) -> float | None:
    """Bytes/s from a chip to its host's memory; where none is described, to its socket."""
    return rated_host_bandwidth(place) or rated_host_bandwidth(place, "socket")
