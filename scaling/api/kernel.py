"""Seconds of one kernel on one chip, or of a sweep over one of its sizes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.api.inputs import Overrides, device_count, override_texts
from scaling.api.public_api import entrance
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator, with_figures
from scaling.meshes.catalog.overrides import override_chip
from scaling.meshes.errors import (
    InputError,
    check_keys,
    check_range,
    nearest,
    reworded,
    whole_number,
)
from scaling.meshes.host_link import rated_host_bandwidth
from scaling.meshes.provenance import overridden
from scaling.meshes.units import format_size, parse_count, parse_quantity
from scaling.pictures.files import check_picture, write_picture
from scaling.pictures.palette import ORANGE, SKY
from scaling.pictures.roofline import Dot, roofline
from scaling.profiles.io import profile_of
from scaling.questions.answer import Answer
from scaling.questions.critical import critical
from scaling.questions.roofline import KernelTarget, bandwidth_of, kernel_answer, peak_of, row
from scaling.questions.workloads import (
    KINDS,
    KernelFormats,
    KernelWork,
    check_options,
    work_of,
)
from scaling.simulate.kernels import peak_rate

LARGEST = 1e15  # of one size: products of five of them stay below the largest float
RATES = (1.0, 1e24)  # bytes/s, chosen by this project: times stay finite
MOST_ROWS = 100  # of a sweep
HOST = "host"


@entrance
def kernel(
    kind: str,
    sizes: str | float | Iterable[Any],
    *,
    dtype: str = "bf16",
    accelerator: str | None = None,
    weights: str | None = None,
    output: str | None = None,
    kv: str | None = None,
    compute: str | None = None,
    causal: bool = False,
    backward: bool = False,
    library: str | None = None,
    devices: int = 1,
    cluster: str | None = None,
    source: str | None = None,
    bandwidth: str | float | None = None,
    overrides: Overrides | None = None,
    sweep: str | None = None,
    plot: Path | str | None = None,
) -> Answer:
    """Return the time of a kernel with its range, FLOPs, bytes and critical batch, by the roofline.

    `low` and `high` are the ends that a step's range has for such a kernel.

    >>> import scaling as sc
    >>> answer = sc.kernel("matmul", (512, 8192, 4096), dtype="fp16", accelerator="b200-sxm")
    >>> answer["FLOPs"].answer, answer.ideal_binds
    (34359738368.0, 'compute')

    Args:
        kind: one of matmul, grouped, attention, elementwise, reduce, embedding, read, copy or work.
        sizes: those of matmul [b,]m,n,k; grouped experts,rows of each,n,k; attention
            sequences,heads,queries,keys,head_dim[,kv_heads]; elementwise
            elements[,inputs[,operations]]; reduce elements; embedding tokens,width,vocabulary; read
            or copy bytes; work FLOPs[,bytes].
        dtype: number format of activations, and of all else that is not stated.
        accelerator: an accelerator of the catalogue, or a TOML file; None: that of the cluster.
        weights: format of a product's second operand, or of an embedding's table.
        output: format of a product's result.
        kv: format of an attention's keys and values.
        compute: format whose peak rate counts.
        causal: attention where a query sees no later keys.
        backward: the backward pass of an attention.
        library: that runs an attention, such as cudnn or flash-attention-3, where it was measured;
            None: the middle of those that were.
        devices: chips that the work is divided over, evenly and without communication.
        cluster: catalogue name or TOML file, where chips have several links to a host.
        source: where weights come from over a link: host, or the link's rate, such as 16GB/s.
        bandwidth: bandwidth of the memory: 22x that of the chip, or a rate.
        overrides: a figure of the chip, such as peak_bf16=400e12 or memory_bandwidth=2TB/s, or a
            mapping.
        sweep: a size and its values: m=1:8192 (doubled) or m=1,64,512.
        plot: file for the roofline with the kernel on it (.svg or .png).

    Raises:
        InputError: an unknown kind, format, chip or figure, sizes that are not those of the kind.
    """
    options = {"weights": weights, "output": output, "kv": kv, "compute": compute, "from": source}
    check_keys([kind], KINDS, "kernel", "kind")
    check_options(kind, {**options, "causal": causal, "backward": backward, "library": library})
    path = None if plot is None else Path(plot)
    check_picture("--plot", path)
    numbers = sizes_of(kind, sizes)
    formats = KernelFormats(dtype, weights, output, kv, compute)
    swept = None if sweep is None else _sweep(kind, sweep, numbers)
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
        rate, memory = _bandwidth(chip, str(bandwidth).strip())
        check_range("--bandwidth", rate, *RATES)
        chip = with_figures(chip, {"memory_bandwidth": overridden(rate)})
    count = device_count(devices)
    link = None if source is None else _link(source.strip(), chip, cluster)
    if library is not None:
        named = {fit.library for fit in profile_of(chip).attention}
        check_keys([library], sorted(named), f"attention on {chip.name}", "library")
    place = KernelTarget(chip, compute or dtype, count, link, memory, library or "")

    def make(**changes: float) -> KernelWork:
        return work_of(kind, {**numbers, **changes}, formats, causal, backward)

    work = make()
    if work.flops and not work.is_vector:
        peak_rate(place.chip, place.dtype)
    title = _words(kind, numbers, formats, devices)
    answer = kernel_answer(work, place, title, critical(work, place, lambda m: make(m=m)))
    if swept is not None:
        name, values = swept
        rows = tuple(row(make(**{name: value}), place, {name: value}) for value in values)
        answer = replace(answer, rows=rows)
    if path is not None:
        _plot(answer, work, place, path)
    return answer


def _bandwidth(chip: Accelerator, text: str) -> tuple[float, str]:
    """Return another memory's bytes/s, and how a formula calls it."""
    if text.endswith("x"):
        with reworded(f"--bandwidth {text}: ", "; a factor is written 22x"):
            factor = parse_quantity(text[:-1], "")
        rate = factor * chip.required("memory_bandwidth")
        return rate, f"{factor:g} x memory bandwidth"
    with reworded("--bandwidth ", ", or 22x that of the memory"):
        return parse_quantity(text, "B/s"), "bandwidth that is asked for"


def _link(text: str, chip: Accelerator, cluster: str | None) -> float:
    """Return the rated bytes/s over which weights come."""
    if text != HOST:
        with reworded("--from ", "; or host, for the catalogue's link"):
            rate = parse_quantity(text, "B/s")
        check_range("--from", rate, *RATES)
        return rate
    rates: dict[str, float] = {}
    for place in map(catalog.load, catalog.names() if cluster is None else [cluster]):
        # To the host's memory; where none is described, to its socket.
        stated = rated_host_bandwidth(place) or rated_host_bandwidth(place, "socket")
        if place.accelerator.name == chip.name and stated is not None:
            rates[place.name] = stated
    if not rates:
        where = f"cluster {cluster}" if cluster else "the catalogue"
        raise InputError(
            f"--from host: {where} has no link from {chip.name} to a host; state its rate, such as "
            "--from 16GB/s"
        )
    if len(set(rates.values())) > 1:
        several = ", ".join(f"{name} {rate / 1e9:.3g} GB/s" for name, rate in rates.items())
        raise InputError(f"--from host: {chip.name} has several: add --cluster, one of {several}")
    return next(iter(rates.values()))


def sizes_of(kind: str, sizes: str | float | Iterable[Any]) -> dict[str, float]:
    """Return symbol -> number of the sizes of a kind."""
    shape = KINDS[kind]
    given = sizes.split(",") if isinstance(sizes, str) else sizes
    given = list(given) if isinstance(given, Iterable) else [given]
    names = tuple(shape.sizes)
    if kind == "matmul" and len(given) == len(names) + 1:
        names = ("b", *names)
    if not shape.least <= len(given) <= len(names):
        raise InputError(
            f"{kind} has the sizes {', '.join(names)}, of which {shape.least} must be given, got "
            f"{len(given)}: write for example {kind} {shape.example}"
        )
    named = zip(names, given, strict=False)
    return {name: _number(f"{kind} {name}", name in shape.bytes, value) for name, value in named}


def _number(where: str, is_bytes: bool, value: object) -> float:
    """Return a positive whole number from a number, or a text such as "8192", "1e9" or "4GB"."""
    if isinstance(value, str):
        with reworded(f"{where}: "):
            value = (parse_quantity if is_bytes else parse_count)(value.strip())
    number = whole_number(where, value)
    if number > LARGEST:
        raise InputError(f"{where}={number:g} is too large; at most {LARGEST:g}")
    return number


def _sweep(kind: str, text: str, numbers: Mapping[str, float]) -> tuple[str, list[float]]:
    """Return the size that changes, and its values."""
    name, equals, values = text.partition("=")
    by_lower = {size.lower(): size for size in numbers}
    name = name.strip() if name.strip() in numbers else by_lower.get(name.strip().lower(), name)
    if not equals or name not in numbers:
        raise InputError(
            f"--sweep {text}: write a size of {kind} and its values, such as "
            f"{next(iter(numbers))}=1:8192 or {next(iter(numbers))}=64,512 "
            f"({nearest(name, numbers)})"
        )
    first, colon, last = values.partition(":")
    texts = [first, last] if colon else values.split(",")[: MOST_ROWS + 1]
    swept = [_number(f"--sweep {name}", name in KINDS[kind].bytes, value) for value in texts]
    if colon:
        least, most = swept
        if most < least:
            raise InputError(f"--sweep {text} ends below its start")
        swept = [least * 2**i for i in range(int(math.log2(most / least)) + 1)]
    if len(swept) > MOST_ROWS:
        raise InputError(f"--sweep {name} has more than {MOST_ROWS} values")
    return name, swept


def _words(kind: str, numbers: Mapping[str, float], formats: KernelFormats, devices: int) -> str:
    """Return the kernel with its sizes and formats: `matmul m=1 n=2 k=3, bf16, weights int8`."""
    show = lambda n, value: format_size(value) if n in KINDS[kind].bytes else f"{value:,.10g}"
    words = f"{kind} {' '.join(f'{name}={show(name, value)}' for name, value in numbers.items())}"
    if kind not in ("read", "copy"):
        words += f", {formats.activations}"
    if formats.weights:
        words += f", weights {formats.weights}"
    if formats.keys_and_values:
        words += f", keys and values {formats.keys_and_values}"
    return words + (f", over {devices:,} devices" if devices > 1 else "")


def _plot(answer: Answer, work: KernelWork, place: KernelTarget, path: Path) -> None:
    if not (work.flops and work.moved):
        raise InputError(f"--plot {path}: {work.kind} has no intensity: it lacks FLOPs or bytes")
    rows = answer.rows or (row(work, place, {"": ""}),)
    dots = []
    for line in rows:
        label = " ".join(f"{key}={value}" for key, value in list(line.items())[:1] if key)
        flops = float(line["FLOPs (FLOPs)"]) / place.devices  # type: ignore[arg-type]
        intensity = float(line["intensity (FLOPs/byte)"])  # type: ignore[arg-type]
        ideal, fitted = (flops / float(line[k]) for k in ("textbook (s)", "time (s)"))  # type: ignore[arg-type]
        dots.append(Dot(intensity, ideal, "kernel, textbook"))
        dots.append(Dot(intensity, fitted, "kernel, fitted", label=label))
    sizes = "" if answer.rows else answer.name.split(" on ")[0].removeprefix(work.kind)
    title = f"{work.kind}{sizes} on {place.chip.title}"
    chip = peak_of(work, place).value, bandwidth_of(place).value
    colours = {"kernel, textbook": SKY, "kernel, fitted": ORANGE}
    write_picture(roofline(*chip, dots, colours, title), path)
