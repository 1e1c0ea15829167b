"""The roofline: FLOP/s of kernels over their FLOPs per byte, under the two roofs of a chip.

attainable = min(peak, bandwidth x intensity); the roofs meet at peak / bandwidth
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scaling.meshes.errors import InputError
from scaling.meshes.units import format_rate, format_time
from scaling.pictures.axes import Frame, Scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import RADIUS, Look
from scaling.pictures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.shapes import INK, SMALL, Picture, Text
from scaling.simulate.kernels import computed_flops, peak_rate
from scaling.simulate.step import Priced, running_kernels

MARGIN = 4  # factor of intensity beside the outermost kernels
KERNELS = {  # kind of a kernel: words and colour
    "matmul": ("matrix products", ORANGE),
    "grouped": ("experts' products", GREEN),
    "attention": ("attention", PURPLE),
    "fusion": ("elementwise and sums", SKY),
    "custom": ("kernels of libraries", GREY),
}
LARGEST, LEAST = 60.0, 1.6  # pixels: radius of a kernel that takes all of the time, of the least
LEAST_RATE = 1e-5  # of the peak: less than this is drawn at the edge
LEAST_SHARE = 5e-4  # of the kernels' time: a kernel with less of it is left out of `step_roofline`


@dataclass(frozen=True)
class Dot:
    """A kernel below the roof."""

    intensity: float  # FLOPs per byte of the device memory
    rate: float  # FLOP/s
    kind: str  # decides the colour
    share: float | None = None  # of all kernels' time, which the area shows; None: not known
    words: str = ""  # what the pointer shows
    label: str = ""  # what stands beside it


def roofline(
    peak: float,
    bandwidth: float,
    dots: Sequence[Dot],
    colours: Mapping[str, str],
    title: str = "",
    ends: tuple[float, float] | None = None,
) -> Picture:
    """Return the roofs of a chip with kernels below them.

    Args:
        peak: FLOP/s, the roof of compute.
        bandwidth: bytes/s, the slope of the roof of memory.
        dots: those with the most time are drawn first, below the others.
        ends: least and largest intensity that are drawn; None: those of the dots, and some room.
    """
    ridge = peak / bandwidth
    intensities = [dot.intensity for dot in dots]
    low, high = ends or (min(*intensities, ridge) / MARGIN, max(*intensities, ridge) * MARGIN)
    slowest = min([low * bandwidth, *(0.5 * dot.rate for dot in dots)])
    prefixed = lambda rate: format_rate(rate, "").strip()
    x = Scale(low, high, "FLOPs per byte", "{:,g}".format, 10)
    y = Scale(max(slowest, LEAST_RATE * peak), 2 * peak, "FLOP/s", prefixed, 10)
    line = Look(INK, "", "4 4", thick=1)
    series = {"_ridge": Series(line, [(ridge, y.low), (ridge, peak)])}
    for number, dot in enumerate(sorted(dots, key=lambda dot: -(dot.share or 0.0))):
        look = Look(colours[dot.kind], "o", radius=RADIUS + 1, edge=INK)
        if dot.share is not None:
            radius = max(LEAST, LARGEST * math.sqrt(dot.share))
            look = replace(look, radius=radius, opacity=0.6)
        series[f"_{number}"] = Series(look, [(dot.intensity, dot.rate)], words=[dot.words])
    steep = [(at, at * bandwidth) for at in (max(low, y.low / bandwidth), ridge)]
    series[f"memory, {format_rate(bandwidth)}"] = Series(Look(BLUE, "", ""), steep)
    flat = Series(Look(VERMILION, "", ""), [(ridge, peak), (high, peak)])
    series[f"compute, {format_rate(peak, 'FLOP/s')}"] = flat
    for kind in colours:
        own = [dot.share for dot in dots if dot.kind == kind]
        shares = [share for share in own if share is not None]
        words = f"{kind}, {sum(shares):.0%} of the time" if shares else kind
        series |= {words: Series(Look(colours[kind], "o"))} if own else {}
    names = [(dot.label, dot.intensity, dot.rate) for dot in dots if dot.label]
    return chart(title, Frame(x, y), series, names, [Text(6, 18, "", size=SMALL, turn=40)])


def kernel_dots(priced: Priced) -> list[Dot]:
    """Return the kernels of a step that compute, each with all its calls.

    An attention counts the scores that its kernel computes. Kernels without arithmetic, copies
    among them, have no place; `share` is that of all kernels' time, theirs included.
    """
    kernels = {kernel.name: kernel for kernel, _ in running_kernels(priced)}
    seconds: dict[str, float] = defaultdict(float)
    for kernel, calls in running_kernels(priced):
        seconds[kernel.name] += float(calls) * float(priced.kernels[kernel.name].time)
    total = sum(seconds.values())
    dots = []
    for name, kernel in kernels.items():
        cost, share = priced.kernels[name], seconds[name] / total if total else 0.0
        done = float(computed_flops(kernel, priced.profile))
        flops = done or float(kernel.vector_flops + kernel.transcendentals)
        if flops and cost.moved and cost.time:
            rate = flops / float(cost.time)
            where = f"{kernel.origin.phase} {kernel.origin.layer}".strip()
            words = (
                f"{kernel.kind} {name}, {where or 'origin not known'}: "
                f"{format_rate(rate, 'FLOP/s')}, {format_time(seconds[name])}, "
                f"{share:.1%} of the time, bound by {cost.bound}"
            )
            kind = KERNELS.get(kernel.kind, KERNELS["custom"])[0]
            dots.append(Dot(flops / float(cost.moved), rate, kind, share, words))
    return dots


def step_roofline(priced: Priced, title: str = "") -> Picture:
    """Return every kernel of a step under the roofs of its chip (`roofs`).

    The area of a dot is its share of the kernels' time; those of hardly any time are left out.

    Raises:
        InputError: no kernel of the step computes.
    """
    _, peak, bandwidth = roofs(priced)
    seen = [dot for dot in kernel_dots(priced) if (dot.share or 0.0) >= LEAST_SHARE]
    if not seen:
        raise InputError(f"--plot roofline: no kernel of {priced.program.name} computes")
    return roofline(peak, bandwidth, seen, dict(KERNELS.values()), title)


def roofs(priced: Priced) -> tuple[str, float, float]:
    """Return the format of most products, its peak (FLOP/s), and bytes/s of the memory."""
    chip = priced.cluster.accelerator
    products: dict[str, float] = defaultdict(float)
    for kernel, calls in running_kernels(priced):
        products[kernel.dtype] += float(kernel.flops * calls)
    dtype = max(products, key=lambda name: products[name])
    bandwidth = priced.profile.memory.bandwidth or chip.required("memory_bandwidth")
    return dtype, peak_rate(chip, dtype), bandwidth
