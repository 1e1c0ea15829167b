"""How sure a figure is: the grade of its evidence, and half the range of a time that it prices."""

from typing import Literal, get_args

from scaling.profiles.profile import Evidence

Grade = Literal["measured", "calibrated", "extrapolated", "datasheet", "unknown"]
GRADES: tuple[Grade, ...] = get_args(Grade)  # best first
FEWEST = 3  # measurements below which a line through them says nothing about its error

# Half ranges in mean absolute errors: of a normally distributed error, which is 1.25 of its mean
# absolute value wide (the square root of pi / 2), two of them hold 89 %.
FACTOR = 2.0
# Half the range of a figure that nobody measured on the chip, relative. To take the efficiency of
# an H100's NVLink collectives for that of B200, GB200 and GB300 is wrong by 15 % in the mean:
# all-gather, reduce-scatter and all-reduce among 2 to 8, 16 MiB to 1 GiB, in XLA's default
# collective table (wheel jax-cuda12-pjrt 0.12.0.1). The best matrix products lie closer, at 78 to
# 88 % of the bf16 peak on A100, H100, H200 and B200 (stas00/ml-engineering,
# compute/accelerator/README.md).
UNMEASURED = FACTOR * 0.15


def half_range(evidence: Evidence, grade: Grade, latency: bool = False) -> float:
    """Half range of a time with this evidence and grade, relative; worse grades never narrow it.

    With `latency` it is that of a time which latency decides.

    Errors of a figure with fewer than `FEWEST` measurements may widen it, but not narrow it.
    """
    error = evidence.mean_error if evidence.held_out_error is None else evidence.held_out_error
    half = evidence.error_p90
    if latency and evidence.latency_p90 is not None:
        half = evidence.latency_p90
    if half is None and error is not None:
        half = FACTOR * error
    is_known = half is not None and evidence.samples >= FEWEST
    least = 0.0 if is_known and grade in ("measured", "calibrated") else UNMEASURED
    return max(half or 0.0, least)


def grade_of(evidence: Evidence, above: bool = False) -> Grade:
    """Its grade; extrapolated if it is used above what was measured, or has fewer measurements
    than `FEWEST`."""
    few = evidence.grade == "calibrated" and evidence.samples < FEWEST
    return "extrapolated" if (above or few) and evidence.grade != "datasheet" else evidence.grade
