"""Fit fused attention on published tables and write it into the shipped figures of chips.

    python -m experiments.published.fit_attention [--write]

One form for all chips (`scaling.simulate.attention`); per chip and direction it has an efficiency
of the products, the softmax of a score in special functions, the keys that filling a tile's
pipeline costs, the share of the bandwidth at which operands move, the time of a call, and of
decoding that of its combining pass. Every software of a chip weighs the same, so that a fit is the
middle of those that were measured there. Each library has forward figures of its own besides:
cuDNN, which JAX calls, and those of serving engines.

`error_p90` is that of softwares left out in turn; of cuDNN on H100 that of its fit on GB200.
`ship_kernels`, which has to run next, replaces it where rows of the tables have no library's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from experiments.published.kernel_tables import US, Rows, read, tables
from experiments.published.tables import evidence_of, print_or_write, short
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.profiles.io import profile_of
from scaling.profiles.profile import ANY, AttentionFit, Evidence, Profile
from scaling.program import ops
from scaling.program.ir import CAUSAL, Kernel, Origin, Phase
from scaling.report.formatting import columns
from scaling.simulate.attention import attention_time
from scaling.simulate.kernels import peak_rate

DATE = "2026-11"
ALIKE = {"a100-pcie-80g": "a100-sxm-80g"}  # whose rows are fitted as one, each at its own rates
# Queries of a tile: FlashAttention-2 has 128, on Ada 64 for want of shared memory
# (flash_fwd_launch_template.h), -3 128 (arXiv 2407.08608); kernels of Blackwell two of 128 at once.
TILES = {"a100-sxm-80g": 128, "l40s": 64, "h100-sxm": 128, "b200-sxm": 256}
TILE = 128  # of cuDNN, and of keys backward
# Part of a software's name -> the library that it calls; the first part that is found counts.
LIBRARIES = {
    "cudnn": "cudnn",
    "trtllm ": "tensorrt-llm",
    "flashinfer": "flashinfer",
    "fa4": "flash-attention-4",
    "fa3": "flash-attention-3",
    "flash_att": "flash-attention-2",
}
# Not in the middle of any chip: FlashAttention-2 on Blackwell, which it was not written for.
FOREIGN = ("pyt_flash_attention",)
TRTLLM = "aiconfigurator @ 095f58a5 (Apache-2.0)"
SOURCES = {
    "a100-sxm-80g": f"{TRTLLM}; backward: Transformer Engine on A100 PCIe, SimuMax @ 4dcaae51",
    "l40s": TRTLLM,
    "h100-sxm": f"{TRTLLM}; cuDNN: figures 5 and 6 of FlashAttention-3, arXiv 2407.08608",
    "b200-sxm": TRTLLM,
    "gb200": "NVIDIA/cudnn-frontend (MIT), device time by CUPTI",
}
# Bounds and first guesses of what is fitted
BOUNDS: Mapping[str, tuple[float, float, float]] = {
    "overhead": (2e-6, 8e-6, 1e-4),  # at least that of any kernel in a CUDA graph
    "efficiency": (0.05, 0.6, 1.0),
    "softmax": (0.01, 2.0, 30.0),
    "start": (0.1, 100.0, 5e3),
    "memory": (0.05, 0.5, 0.93),  # at most what a large stream gets (data/memory.json)
    "combine": (1e-8, 1e-6, 2e-5),
}
TRAINING = ("overhead", "efficiency", "softmax", "start")
SERVING = (*TRAINING, "memory")  # whose calls also write a KV cache, before or after
DECODE = ("overhead", "start", "memory", "combine")
ROBUST = 0.1  # relative error from which on a row weighs less (soft L1)
LITTLE = 4e6  # bytes whose time does not count beside that of a call, wherever they lie
DIGITS = 4  # of a figure
INSIDE = 0.9  # share of left-out rows that a range has to hold


@dataclass(frozen=True, eq=False)
class Case:
    """Measured kernels of one software on one chip; arrays [rows]."""

    chip: str
    software: str
    direction: str
    dtype: str
    library: str
    kernel: Kernel
    seconds: np.ndarray

    def errors(self, fit: AttentionFit) -> np.ndarray:
        """log(predicted / measured)."""
        chip, profile = _chip(self.chip)
        cost = attention_time(self.kernel, fit, chip, profile, peak_rate(chip, self.dtype))
        return np.log(np.broadcast_to(cost.time, self.seconds.shape) / self.seconds)

    @property
    def like(self) -> str:
        """The chip whose figures these rows are fitted for."""
        return ALIKE.get(self.chip, self.chip)

    @property
    def in_memory(self) -> np.ndarray | bool:
        """Rows whose keys a step finds in memory as these did, which were repeated.

        Decoding finds keys in the L2 cache when it is repeated, not among other kernels.
        """
        cached = (self.kernel.bytes > LITTLE) & (
            self.kernel.bytes < _chip(self.chip)[0].required("l2_cache")
        )
        return np.logical_not(cached) | (self.direction != "decode")


@cache
def _chip(name: str) -> tuple[Accelerator, Profile]:
    chip = catalog.accelerator(name)
    return chip, profile_of(chip)


@cache
def cases() -> tuple[Case, ...]:
    """All rows of the tables."""
    found = [_case(rows) for rows in tables() if rows.key.question == "attention"]
    figures = read("attention_h100_cudnn.csv")
    return (*found, *(_figures(figures, direction) for direction in ("fwd", "bwd")))


def _case(rows: Rows) -> Case:
    key, kind = rows.key, rows.key.kind.split(", ")[1]
    named = (library for word, library in LIBRARIES.items() if word in key.software)
    kernel = rows.kernel(catalog.accelerator(key.chip))
    return Case(key.chip, key.software, kind, key.dtype, next(named, ANY), kernel, rows.seconds)


def _figures(rows: Sequence[Mapping[str, str]], direction: str) -> Case:
    """cuDNN on H100, which has no row in the tables."""
    own = [row for row in rows if row["direction"] == direction]
    names = ("batch", "heads", "queries", "keys", "head_dim", "time_us")
    *dims, time = (np.array([float(row[name]) for row in own]) for name in names)
    batch, heads, queries, _, head = dims
    phase: Phase = "backward" if direction == "bwd" else "forward"
    moved = 4 * 2 * batch * heads * queries * head
    kernel = ops.attention(
        "attention", dims, head, moved, "bf16", origin=Origin(phase),
        visible=CAUSAL if direction == "fwd" else 1.0,
    )  # fmt: skip
    return Case("h100-sxm", "cudnn, arXiv 2407.08608", phase, "bf16", "cudnn", kernel, time * US)


def chosen(chip: str, direction: str, *dtypes: str, library: str = ANY) -> list[Case]:
    """The cases of a fit: of a library, or of all but cuDNN, whose loads run beside."""
    return [
        case
        for case in cases()
        if (case.like, case.direction) == (chip, direction)
        and case.dtype in (dtypes or ("bf16",))
        and (
            case.library == library
            or (library == ANY and case.library != "cudnn" and case.software not in FOREIGN)
        )
    ]


def fitted(own: Sequence[Case], base: AttentionFit, free: Sequence[str]) -> AttentionFit:
    """The fit whose `free` figures describe the cases best.

    Every software of a chip has the same weight, and so has every chip.
    """
    softwares = {(case.like, case.software) for case in own}
    weight = []
    for case in own:
        rows = sum(len(c.seconds) for c in own if c.software == case.software)
        others = sum(chip == case.like for chip, _ in softwares)
        weight.append(case.in_memory * (rows * others) ** -0.5)
    weights = np.concatenate(weight)
    low, first, high = np.log([BOUNDS[name] for name in free]).T

    def at(x: np.ndarray) -> AttentionFit:
        figures: dict[str, Any] = dict(zip(free, map(float, np.exp(x)), strict=True))
        return replace(base, **figures)

    def loss(x: np.ndarray) -> np.ndarray:
        off = np.concatenate([case.errors(at(x)) for case in own]) / ROBUST
        return weights * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))

    found = at(least_squares(loss, first, diff_step=1e-4, bounds=(low, high)).x)
    rounded: dict[str, Any] = {name: short(getattr(found, name), DIGITS) for name in free}
    return replace(found, **rounded)


def scored(
    own: Sequence[Case],
    base: AttentionFit,
    free: Sequence[str],
    neighbour: AttentionFit | None = None,
) -> AttentionFit:
    """The fit of the cases, with their errors and those of softwares that were left out.

    Of one software it is the errors of `neighbour`, the fit of another chip.
    """
    fit = fitted(own, base, free)
    off = np.abs(np.expm1(np.concatenate([case.errors(fit) for case in own])))
    names = sorted({case.software for case in own})
    left = []
    for name in names:
        rest = [case for case in own if case.software != name]
        there = neighbour if len(names) == 1 or neighbour else fitted(rest, base, free)
        left += [case.errors(there or fit) for case in own if case.software == name]
    errors = np.abs(np.concatenate(left))
    chip = own[0].like
    source = f"{SOURCES[chip]}; {', '.join(names)}; experiments/published/fit_attention.py"
    p90 = np.expm1(np.quantile(errors, INSIDE))
    held_out = np.expm1(errors)
    evidence = evidence_of(source, DATE, off, held_out, digits=DIGITS, error_p90=p90)
    return replace(fit, evidence=evidence, best=max(map(_fastest, own)))


def _fastest(case: Case) -> float:
    """The largest share of the peak that its computed scores reached."""
    peak = peak_rate(_chip(case.chip)[0], case.dtype)
    share = np.max(case.kernel.flops * case.kernel.visible / case.seconds) / peak
    return short(share, DIGITS)


@cache
def fits() -> dict[str, list[AttentionFit]]:
    """The fits of every chip with rows, and of those whose middle is assumed."""
    form = AttentionFit("forward", 0.6, Evidence("", DATE, "calibrated"), executed=0.0)
    forward = {
        chip: scored(chosen(chip, "forward"), replace(form, tile=tile, memory=0.5), SERVING)
        for chip, tile in TILES.items()
    }
    decode = {
        chip: replace(
            scored(chosen(chip, "decode"), replace(fit, direction="decode", tile=None), DECODE),
            best=fit.best,
        )
        for chip, fit in forward.items()
    }
    libraries = {
        chip: [
            replace(scored(own, fit, SERVING), library=library)
            for library in LIBRARIES.values()
            if (own := chosen(chip, "forward", library=library)) and library != "cudnn"
        ]
        for chip, fit in forward.items()
    }
    serving = lambda chip: [forward[chip], *libraries[chip], decode[chip]]
    # cuDNN, whose loads run beside its products
    form = replace(form, tile=TILE)
    own = chosen("gb200", "forward", "bf16", "fp8", library="cudnn")
    figures = chosen("h100-sxm", "forward", library="cudnn")
    named = scored(own, form, TRAINING)
    on_hopper = scored(figures, named, TRAINING)
    # Twelve points of one laboratory do not tell how far others are off: as far as on GB200.
    errors = on_hopper.evidence.max_error, named.evidence.error_p90
    p90 = max(filter(None, errors))
    evidence = replace(on_hopper.evidence, held_out_error=None, error_p90=p90)
    on_hopper = replace(on_hopper, evidence=evidence)
    # Without a name it may be another library: the range holds those of the B200, and the time of a
    # call is between both
    unnamed = scored(own, form, TRAINING, forward["b200-sxm"])
    call = np.sqrt(unnamed.overhead * forward["b200-sxm"].overhead)
    unnamed = replace(unnamed, overhead=short(call, DIGITS))
    both = [*own, *chosen("b200-sxm", "forward")]
    middle = scored(both, forward["b200-sxm"], SERVING)
    back = replace(form, direction="backward")
    fp8 = replace(back, dtype="fp8", executed=CAUSAL)
    of_gb200 = partial(chosen, "gb200", "backward", library="cudnn")
    blackwell = [
        replace(named, library="cudnn"),
        scored(of_gb200("bf16"), back, TRAINING),
        scored(of_gb200("fp8"), fp8, TRAINING),
    ]
    # All rows are of large calls: the time of a small one is that of the fit on GB200.
    back = replace(back, overhead=blackwell[1].overhead)
    figures = chosen("h100-sxm", "backward", library="cudnn")
    hopper = scored(figures, back, TRAINING[1:], blackwell[1])
    back = replace(back, overhead=forward["a100-sxm-80g"].overhead, memory=0.5)
    ampere = scored(chosen("a100-sxm-80g", "backward"), back, SERVING[1:], blackwell[1])
    return {
        "a100-sxm-80g": [*serving("a100-sxm-80g"), ampere],
        "l40s": serving("l40s"),
        "h100-sxm": [*serving("h100-sxm"), replace(on_hopper, library="cudnn"), hopper],
        "b200-sxm": serving("b200-sxm"),
        "gb200": [_assumed("cuDNN's, whatever the library", unnamed), *blackwell],
        "gb300": [_assumed("the middle of b200-sxm and gb200", middle)],
    }


def _assumed(words: str, fit: AttentionFit) -> AttentionFit:
    e = fit.evidence
    source = f"assumed as {words}: {e.source}"
    return replace(fit, evidence=Evidence(source, e.date, "datasheet", error_p90=e.error_p90))


def report() -> list[str]:
    """A line per fit."""
    head = ("chip", "direction", "format", "library", "call", "products", "softmax", "start")
    rows: list[tuple[str, ...]] = [(*head, "memory", "combine", "n", "median", "p90 left out")]
    for chip, own in fits().items():
        for fit in own:
            e = fit.evidence
            said = [f"{x:.1%}" if x is not None else "-" for x in (e.median_error, e.error_p90)]
            micro = [f"{seconds * 1e6:.1f} us" for seconds in (fit.overhead, fit.combine)]
            rows.append(
                (chip, fit.direction, fit.dtype, fit.library, micro[0], f"{fit.efficiency:.3f}",
                 f"{fit.softmax:.2f}", f"{fit.start:.0f}",
                 f"{fit.memory:.2f}" if fit.memory else "beside", micro[1], str(e.samples), *said)
            )  # fmt: skip
    return list(columns(rows, left=(0, 1, 2, 3)))


if __name__ == "__main__":
    print_or_write("attention", report, fits)
