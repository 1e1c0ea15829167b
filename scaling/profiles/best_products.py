"""The fastest matrix products that a search found on each chip, and what long ones reach of them.

    best     = FLOP/s of the fastest product / peak
    typical  = best x LONG, of a chip whose long products nobody published

One person searched all chips in one way, among hundreds of shapes: what a chip reaches of its peak
differs by this more than by anything else (51 % on MI300X, 87 % on A100). So a chip that borrows
the efficiencies of another one has them in proportion to the best products of both.
"""

from collections.abc import Mapping
from dataclasses import replace

from scaling.meshes.accelerator import Accelerator
from scaling.profiles.profile import MatmulFit, Profile

SEARCH = (
    "stas00/ml-engineering, compute/accelerator/README.md, commit 744d01e (2026-08-22): best "
    "product of mamf-finder.py"
)
# FLOP/s, mean of 100 calls of the fastest shape; of H200 in bf16 it says "the same" as H100.
BEST: Mapping[str, Mapping[str, float]] = {
    "a100-sxm-80g": {"bf16": 271.2e12},
    "h100-sxm": {"bf16": 794.5e12, "fp8": 1402.6e12},
    "h200-sxm": {"bf16": 794.5e12, "fp8": 1453.4e12},
    "b200-sxm": {"bf16": 1745.0e12, "fp8": 3432.5e12},
    "gb200": {"bf16": 1822.0e12, "fp8": 3615.6e12},
    "mi300x": {"bf16": 668.4e12},
}
# Products with sides of 16,384, which go on until the power limit holds the clock, on an H100
# (marin-community/marin, .agents/reports/gpu-hardware-target-report.md, 2026-07-07: 700.6 TFLOP/s)
# over the best that the search found there. Steps agree: with this, PyTorch FSDP's take 1.23 and
# 1.32 times their price on A100 of 80 and 40 GB, and 1.29 times on H100 (UNTIMED's source).
LONG = 700.6e12 / BEST["h100-sxm"]["bf16"]
# Steps of models above 1e9 parameters on A100, whose products are priced so, over their price with
# ideal software: medians of five sources (experiments/published/unfitted.py). They hold what the
# software loses as well; on H100, whose products were timed, medians are 0.83 to 1.30.
UNTIMED = (1.09, 1.38)


def said_of_untimed(profile: Profile) -> str:
    """What a page says of a chip with a profile whose products nobody timed; "" of another."""
    fit = profile.matmul[0]
    if fit.evidence.grade != "datasheet" or fit.best == 1:  # or an ideal profile
        return ""
    least, most = (f"{factor - 1:.0%}" for factor in UNTIMED)
    return (
        f"datasheet: no table of products of {profile.machine} is known; on A100, priced in the "
        f"same way, measured steps took {least} to {most} longer than priced"
    )


def best_share(chip: Accelerator, dtype: str) -> float | None:
    """What the best product reached of the peak; of a format that was not searched, bf16's."""
    rates = BEST.get(chip.name, {})
    searched = dtype if dtype in rates else "bf16"
    return rates[searched] / chip.peak(searched) if searched in rates else None


def untimed(fit: MatmulFit) -> MatmulFit:
    """The fit of products that nobody timed: a step may take as much longer as on A100."""
    return replace(fit, evidence=replace(fit.evidence, error_p90=round(UNTIMED[1] - 1, 4)))


def in_proportion(fit: MatmulFit, chip: Accelerator, lender: Accelerator) -> MatmulFit:
    """The lender's fit as one of `chip`: equal but for the best products of both, where known.

    Long products reach the lender's share of the peak, and at most `LONG` of the own best one.
    """
    own, lent = best_share(chip, fit.dtype), best_share(lender, fit.dtype)
    if own is None or lent is None:
        return fit
    efficiency, sustained = fit.efficiency * own / lent, min(fit.sustained, LONG * own)
    source = f"{fit.evidence.source}; in proportion to the best products of both: {SEARCH}"
    evidence = replace(fit.evidence, source=source)
    return replace(fit, efficiency=efficiency, sustained=sustained, best=own, evidence=evidence)
