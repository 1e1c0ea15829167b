"""The shipped figures of chips: a table for each kind of kernel, with rows of all measured chips.

    data/products.json     matrix products           data/attention.json    fused attention
    data/grouped.json      products of experts       data/memory.json       streams

A chip without rows in a table borrows those of the nearest chip, whose matrix units work alike. The
rates of vector units follow from the catalogue.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np

from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import PACKAGE, read
from scaling.profiles.grades import half_range
from scaling.profiles.power import rate_under
from scaling.profiles.profile import (
    ANY,
    AttentionFit,
    Evidence,
    GroupedFit,
    MatmulFit,
    MemoryFit,
    Profile,
    VectorFit,
    evidences,
)

DATA = PACKAGE / "profiles" / "data"
STAND_IN = "h100-sxm"  # whose efficiencies are assumed of chips of other makes
# Vector operations per second of a TPU v5p over its bf16 peak: 2 cores x 4 units x 8 x 128 lanes
# x 1.75 GHz ("How to Scale Your Model", chapter on TPUs, appendix A, 2026-06). Assumed of all TPUs.
TPU_VECTOR = 2 * 4 * 8 * 128 * 1.75e9 / 459e12
# Lanes and special functions of a core per cycle (NVIDIA, CUDA C++ Programming Guide, throughput of
# native arithmetic instructions, 2025-05): 16 functions on all since Volta; lanes where the
# catalogue has none are those of Hopper.
FUNCTIONS, LANES = 16, 128
# Compute capabilities from which warps multiply alone (mma.sync), in groups of four (wgmma), and
# with a memory of their own (tcgen05): PTX ISA 9.0, warp-level, asynchronous warpgroup-level and
# tensor core 5th generation instructions. 12.x has the first again.
UNITS = {0.0: "mma.sync", 9.0: "wgmma", 10.0: "tcgen05", 12.0: "mma.sync"}

# What long products reach of a chip's peak follows (power / peak)^POWER: 0.742 of the peak with
# 700 W on an H100 and 0.608 with 1,000 W on a B200 give 0.43; 0.837 with 400 W on an A100 SXM and
# 0.742 with 300 W on an A100 PCIe 0.42 (experiments/published/fit_products.py).
POWER = 0.42

GROUPED_FORMAT = "bf16"  # in which products of experts were measured

# Errors of fp4 with the constants of fp8, at the rate of large products and where latency decides:
# 90 % quantiles of the products in nvfp4 on a B200, whose times have a cast in them
# (experiments/published/kernels/kernels_gemm.csv.gz).
FP4_AS_FP8 = 0.7, 2.0

Table = Literal["products", "grouped", "attention", "memory"]
KINDS: Mapping[Table, type] = {
    "products": MatmulFit,
    "grouped": GroupedFit,
    "attention": AttentionFit,
    "memory": MemoryFit,
}


@cache
def table(name: Table) -> Mapping[str, tuple[Any, ...]]:
    """The fits of each chip with rows in data/NAME.json."""
    fits: dict[str, list[Any]] = {}
    for row in json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")):
        chip = row.pop("chip")
        fits.setdefault(chip, []).append(read(KINDS[name], row, f"{name}.json: {chip}"))
    return {chip: tuple(rows) for chip, rows in fits.items()}


def shipped_names() -> tuple[str, ...]:
    """Accelerators whose products were measured."""
    return tuple(sorted(table("products")))


def shipped(name: str) -> Profile:
    """The figures of a chip whose products were measured, without links."""
    if name not in shipped_names():
        raise InputError(f"no profile is called {name!r}; {nearest(name, shipped_names())}")
    return chip_profile(catalog.accelerator(name))


def chip_profile(accelerator: Accelerator) -> Profile:
    """The figures of a chip, measured or borrowed, without links.

    Raises:
        InputError: the chip has no stated peaks; a calibration has to measure them.
    """
    if not accelerator.peaks:
        raise InputError(
            f"{accelerator.name} has no peak rates to take a fraction of; run `scaling calibrate`"
        )
    fits, lender = _lent("products", accelerator)
    share, chip = _power_limit(accelerator)
    products = tuple(_product(fit, lender, chip) for fit in fits)
    if share != 1:
        limited = lambda fit: min(fit.sustained * share, fit.efficiency)
        products = tuple(replace(fit, sustained=limited(fit)) for fit in products)
    matmul = _with_any(_with_fp4(products, accelerator))
    beside, memory = (_lent(name, accelerator)[0][0] for name in ("grouped", "memory"))
    profile = Profile(
        name=accelerator.name,
        machine=accelerator.name,
        date="",
        matmul=matmul,
        grouped=tuple(of_groups(fit, beside, memory) for fit in matmul),
        memory=memory,
        vector=vector_rates(accelerator),
        attention=_attention(accelerator),
    )
    return replace(profile, date=max(e.date for e in evidences(profile)))


def _power_limit(accelerator: Accelerator) -> tuple[float, Accelerator]:
    """Rate of long products over that with the catalogue's power, and the chip with that power."""
    name, power = accelerator.name, accelerator.power
    usual = catalog.accelerator(name).power if name in catalog.accelerator_names() else power
    if not (power and usual) or power == usual:
        return 1.0, accelerator
    return float(rate_under(power / usual)), replace(accelerator, power=usual)


def lenders(name: Table, accelerator: Accelerator) -> list[str]:
    """The chips whose rows of a table a chip may take: itself, then by compute capability.

    Chips whose matrix units work alike come first; `STAND_IN` is for chips of other makes.
    """
    chips, capability = table(name), accelerator.compute_capability
    if capability is None:
        return [accelerator.name if accelerator.name in chips else STAND_IN]

    def distance(name: str) -> tuple[bool, bool, bool, float, float]:
        other = catalog.accelerator(name)
        theirs = other.compute_capability or 0.0
        kinds = _units(theirs), _units(capability)
        apart = is_asynchronous(other) != is_asynchronous(accelerator)
        power = abs(float(np.log(power_ratio(accelerator, other))))
        is_other = name != accelerator.name
        return is_other, kinds[0] != kinds[1], apart, abs(theirs - capability), power

    return sorted(chips, key=distance)


def is_asynchronous(chip: Accelerator) -> bool:
    """True if other warps feed the matrix units while they multiply; chips of other makes do so."""
    return chip.compute_capability is None or _units(chip.compute_capability) != "mma.sync"


def _units(capability: float) -> str:
    return UNITS[max(least for least in UNITS if least <= capability)]


def _lent(name: Table, accelerator: Accelerator) -> tuple[tuple[Any, ...], Accelerator]:
    """A chip's fits, and the chip that they were measured on."""
    chip = lenders(name, accelerator)[0]
    fits = table(name)[chip]
    if chip == accelerator.name:
        return fits, accelerator
    return tuple(
        replace(fit, evidence=_assumed(fit.evidence, f"on {chip}")) for fit in fits
    ), catalog.accelerator(chip)


def _attention(accelerator: Accelerator) -> tuple[AttentionFit, ...]:
    """A chip's own fits, and those that it lacks of the nearest that has them.

    A pass or a format may be another generation's, a library is not.
    """
    units = lambda chip: _units(chip.compute_capability or 0.0)
    found: dict[tuple[str, ...], AttentionFit] = {}
    for name in lenders("attention", accelerator):
        is_own = name == accelerator.name
        alike = units(catalog.accelerator(name)) == units(accelerator)
        for fit in table("attention")[name]:
            if not is_own:
                fit = replace(fit, evidence=_assumed(fit.evidence, f"on {name}"))
            if alike or fit.library == ANY:
                found.setdefault((fit.direction, fit.dtype, fit.library), fit)
    return tuple(found.values())


def _assumed(evidence: Evidence, words: str) -> Evidence:
    known, late = evidence.error_p90, evidence.latency_p90
    if evidence.grade != "datasheet":
        known, late = evidence.lent_p90, evidence.lent_latency_p90 or late
    source = f"assumed as {words}: {evidence.source}"
    return Evidence(source, evidence.date, "datasheet", error_p90=known, latency_p90=late)


def _with_any(fits: tuple[MatmulFit, ...]) -> tuple[MatmulFit, ...]:
    """The fits, and the first of them for all other formats."""
    first = fits[0]
    own = replace(first.evidence, lent_p90=None)  # which is of other chips
    evidence = _assumed(own, f"in {first.dtype}")
    return (*fits, replace(first, dtype=ANY, evidence=evidence))


def _with_fp4(fits: tuple[MatmulFit, ...], chip: Accelerator) -> tuple[MatmulFit, ...]:
    """The fits, and that of fp8 for fp4 on a chip that multiplies it and has no such rows."""
    known = {fit.dtype: fit for fit in fits}
    if "fp4" not in chip.peaks or "fp4" in known or "fp8" not in known:
        return fits
    rate, latency = FP4_AS_FP8
    evidence = _assumed(known["fp8"].evidence, "in fp8")
    evidence = replace(evidence, error_p90=rate, latency_p90=latency)
    return (*fits, replace(known["fp8"], dtype="fp4", evidence=evidence))


def _product(fit: MatmulFit, lender: Accelerator, chip: Accelerator) -> MatmulFit:
    """A lent fit: of equal silicon as it is, of other chips its long products by their power.

    What all chips with such matrix units would lend counts alike, as their geometric mean in the
    first format; formats keep their ratios.
    """
    if lender.name == chip.name:
        return fit
    if (lender.cores, lender.peaks, lender.power) == (chip.cores, chip.peaks, chip.power):
        return replace(fit, evidence=replace(fit.evidence, error_p90=None))  # not of unlike chips
    others = {name: fits[0] for name, fits in table("products").items() if _alike(name, lender)}
    own = others.get(lender.name, fit)
    mean = lambda shares: float(np.exp(np.mean(np.log(list(shares)))))
    scaled = lambda name, one: one.sustained * power_ratio(chip, catalog.accelerator(name)) ** POWER
    efficiency = mean(one.efficiency for one in others.values()) / own.efficiency * fit.efficiency
    sustained = mean(scaled(*item) for item in others.items()) / own.sustained * fit.sustained
    efficiency = min(efficiency, 1.0)
    sustained, best = min(sustained, efficiency), max(fit.best, efficiency)
    return replace(fit, efficiency=efficiency, sustained=sustained, best=best)


def of_groups(fit: MatmulFit, beside: GroupedFit, memory: MemoryFit) -> MatmulFit:
    """The fit of products of experts in the format of a fit; their matrices are one long stream."""
    known = fit.dtype == GROUPED_FORMAT
    evidence = beside.evidence if known else _assumed(beside.evidence, f"in {GROUPED_FORMAT}")
    errors = [e.error_p90 for e in (evidence, fit.evidence) if e.error_p90 is not None]
    return replace(
        fit,
        efficiency=fit.efficiency * beside.share,
        sustained=fit.sustained * beside.share,
        fill=max(fit.fill, beside.fill),
        stream=fit.stream and memory.efficiency,
        evidence=replace(evidence, error_p90=max(errors, default=None)),
    )


def _alike(name: str, lender: Accelerator) -> bool:
    """True if the matrix units of a chip work as the lender's do."""
    known = catalog.accelerator(name).compute_capability, lender.compute_capability
    if name == lender.name or None in known:
        return name == lender.name
    return len({_units(capability or 0.0) for capability in known}) == 1


def power_ratio(chip: Accelerator, other: Accelerator) -> float:
    """Watts for a FLOP/s of the peak, over those of another chip; 1 if they are not known."""
    per_flop = [one.power and one.power / one.peak(one.usual_format or "") for one in (chip, other)]
    own, others = per_flop
    return own / others if own and others else 1.0


def said_of_untimed(profile: Profile) -> str:
    """What a page says of a chip with a profile whose products nobody timed; "" of another."""
    fit = profile.matmul[0]
    if fit.evidence.grade != "datasheet" or fit.best == 1:  # or an ideal profile
        return ""
    off = half_range(fit.evidence, fit.evidence.grade)
    return (
        f"datasheet: no table of products of {profile.machine} is known: taken as on like chips, "
        f"within {off:.0%}"
    )


def vector_rates(accelerator: Accelerator) -> VectorFit:
    """Rates of the vector units: an operation per lane and cycle, and special functions."""
    flops = vector_peak(accelerator) / 2  # the peak counts a multiply-add as two
    lanes = accelerator.fpus_per_core or LANES
    source = (
        f"half the fp32 peak, an operation per lane and cycle; {FUNCTIONS} special functions for "
        f"{lanes} lanes (NVIDIA, CUDA C++ Programming Guide, arithmetic instructions)"
    )
    return VectorFit(flops, flops * FUNCTIONS / lanes, Evidence(source, "2025-05", "datasheet"))


def vector_peak(accelerator: Accelerator) -> float:
    """fp32 FLOP/s outside of matrix products, a multiply-add counted as two."""
    tpu = accelerator.vendor == "Google" and "fp32" not in accelerator.peaks
    if not tpu and "fp32" not in accelerator.peaks:
        raise InputError(
            f"{accelerator.name} has no peak rate for 'fp32', from which that of vector operations "
            "follows: state fp32 in the [peaks] of its file (scaling kernel: --override peak_fp32=)"
        )
    return 2 * TPU_VECTOR * accelerator.peak("bf16") if tpu else accelerator.peak("fp32")
