"""Seconds of one kernel on one chip: the roofline, and which roof binds.

    time = max(F / C, Q / W)       F FLOPs at the peak C, Q bytes at the bandwidth W

What reads weights from its host's memory, or another link, has a third roof; what runs on N
devices has 1/N of everything on each. The textbook's number is the formula's; the fitted one is
`kernel_time` with the chip's profile, for the same FLOPs and bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from scaling.meshes.host_link import COPY_SHARE
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import Profile, VectorFit
from scaling.program.ir import Kernel, Origin
from scaling.questions.answer import Answer, Input, Value, by_formula, letters
from scaling.questions.kernel_target import KernelTarget, bandwidth_of, peak_of
from scaling.questions.workloads import Work
from scaling.simulate.kernels import kernel_time

FULL_CLOCK = "time of a short burst, before power limits the clock"


@dataclass(frozen=True)
class Timed:
    """One kernel's seconds with one profile, and what most of them are spent in."""

    time: float
    compute: float
    memory: float
    link: float
    binds: str
    evidence: str


def timed(work: Work, place: KernelTarget, profile: Profile | None = None) -> Timed:
    """Return what the engine says of a kernel; `profile` None: the ideal one.

    A link reaches in its fitted figure what copies from pinned memory do.
    """
    kernel = _kernel(work, place)
    efficiencies = profile or ideal()
    if profile is None and work.is_vector:  # its lanes at their full rate
        evidence = efficiencies.vector.evidence
        efficiencies = replace(efficiencies, vector=VectorFit(place.vector_rate, inf, evidence))
    rate = place.link and place.link * (COPY_SHARE if profile else 1.0)
    cost = kernel_time(kernel, place.chip, efficiencies, rate)
    link = float(kernel.host_bytes / rate) if rate else 0.0
    over_link = cost.bound == "memory" and link >= float(cost.memory)
    binds = "link" if over_link else str(cost.bound)
    parts = (float(cost.time), float(cost.compute), float(cost.memory), link)
    return Timed(*parts, binds, cost.evidence.source)


def kernel_answer(
    work: Work, place: KernelTarget, title: str, more: Sequence[Answer] = ()
) -> Answer:
    """Return the time of a kernel, with FLOPs, bytes, intensity, rate and what binds as parts.

    Args:
        work: the kernel.
        place: the chip, and how the work lies on it.
        title: names the kernel.
        more: further parts.

    Raises:
        InputError: the chip does not multiply in the format, or its bandwidth is not known.
    """
    profile = profile_of(place.chip)
    fitted, best = timed(work, place, profile), timed(work, place)
    several, own = ", ".join(_terms(work, place).values()), _letters(work, place)
    formula = f"max({several})" if ", " in several else several
    parts = [*_amounts(work, place), *_times(work, place, fitted), *more]
    # Without the power limit that products meet when they go on for long:
    full_clock = tuple(replace(fit, sustained=1.0) for fit in profile.matmul)
    unlimited = timed(work, place, replace(profile, matmul=full_clock)).time
    if unlimited < fitted.time:
        parts.append(by_formula(FULL_CLOCK, "s", formula, own, unlimited))
    answer = by_formula(
        f"{title} on {place.chip.title}: time",
        "s",
        formula,
        own,
        fitted=fitted.time,
        binds=fitted.binds,
        ideal_binds=best.binds,
        section=work.section,
        notes=(f"fitted figures: {fitted.evidence}",),
    )
    return replace(answer, parts=(*parts, *_rates(work, place, answer)))


def row(work: Work, place: KernelTarget, size: dict[str, Value]) -> dict[str, Value]:
    """Return one line of a sweep: the size that changes, FLOPs, bytes, times, what binds."""
    fitted, best = timed(work, place, profile_of(place.chip)), timed(work, place)
    flops, moved = work.amount(work.flops), work.amount(work.moved)
    return {
        **size,
        "FLOPs (FLOPs)": flops,
        "bytes (bytes)": moved,
        "intensity (FLOPs/byte)": flops / moved if moved else None,
        "time (s)": fitted.time,
        "textbook (s)": best.time,
        "binds": fitted.binds,
        "binds in the textbook": best.binds,
    }


def _kernel(work: Work, place: KernelTarget) -> Kernel:
    """The share of one device, as the engine prices it. Its FLOPs are those that are executed."""
    share = place.devices
    flops = work.amount(work.flops) / share
    backward = work.engine == "attention" and work.amount("a") > 1
    origin = Origin("backward" if backward else "forward")
    far = work.amount(work.far) / share if place.link else 0.0
    return Kernel(
        work.kind,
        origin,
        kind=work.engine,
        flops=0.0 if work.is_vector else flops,
        visible=1.0,
        vector_flops=flops if work.is_vector else 0.0,
        transcendentals=work.amount(work.exponentials) / share,
        bytes=work.amount(work.moved) / share,
        host_bytes=far,
        dtype=place.dtype,
        dims=_own_dims(work, share),
    )


def _own_dims(work: Work, share: int) -> tuple[float, ...]:
    """Dimensions on one device: columns of the weights, or sequences and heads, are divided."""
    if work.engine == "matmul":
        b, m, n, k = work.dims
        return (b, m, n / share, k)
    if work.engine == "attention":
        B, N, T, S, H = work.dims
        return (B, N / share, T, S, H)
    return work.dims


def _letters(work: Work, place: KernelTarget) -> dict[str, Input]:
    """F, Q and H: FLOPs, bytes, and those of them that come over the link, with their rates."""
    found = [
        Input("F", work.amount(work.flops), "FLOPs"),
        Input("Q", work.amount(work.moved), "bytes", "read and written"),
        Input("H", work.amount(work.far), "bytes", "over the link"),
        Input("N", place.devices, "devices"),
    ]
    if work.flops:
        found.append(peak_of(work, place))
    if work.moved:
        found.append(bandwidth_of(place))
    if place.link:
        found.append(Input("P", place.link, "bytes/s", "link"))
    return letters(*found)


def _terms(work: Work, place: KernelTarget) -> dict[str, str]:
    """The formula of the time under each roof that the kernel has."""
    roofs = {"compute time": ("F", "C", work.flops), "memory time": ("Q", "W", work.moved)}
    roofs |= {"link time": ("H", "P", work.far if place.link else "")}
    over = "{} / (N * {})" if place.devices > 1 else "{} / {}"
    return {name: over.format(above, below) for name, (above, below, has) in roofs.items() if has}


def _amounts(work: Work, place: KernelTarget) -> list[Answer]:
    """FLOPs, bytes, and FLOPs per byte, of all devices together."""
    own, found = _letters(work, place), []
    if work.flops:
        found.append(by_formula("FLOPs", "FLOPs", work.flops, work.given(work.flops)))
    if work.moved:
        found.append(by_formula("bytes", "bytes", work.moved, work.given(work.moved)))
    if work.flops and work.moved:
        found.append(by_formula("intensity", "FLOPs/byte", "F / Q", own))
        found.append(by_formula("intensity of the ridge", "FLOPs/byte", "C / W", own))
    return found


def _times(work: Work, place: KernelTarget, fitted: Timed) -> list[Answer]:
    """Seconds of computing, of moving, and of both one after the other."""
    own, terms = _letters(work, place), _terms(work, place)
    times = {
        "compute time": fitted.compute,
        "memory time": None if place.link else fitted.memory,
        "link time": fitted.link,
    }
    found = [by_formula(name, "s", term, own, times[name]) for name, term in terms.items()]
    if work.flops and work.moved:
        both = f"{terms['compute time']} + {terms['memory time']}"
        found.append(by_formula("time without overlap", "s", both, own))
    return found


def _rates(work: Work, place: KernelTarget, time: Answer) -> list[Answer]:
    """FLOP/s, or bytes/s, that the kernel reaches, and the fraction of the peak."""
    assert isinstance(time.ideal, float) and isinstance(time.fitted, float)
    own = _letters(work, place) | letters(Input("T", time.ideal, "s", "textbook's time"))
    fitted = {"T": time.fitted}
    amount, unit, roof, of_roof = "F", "FLOP/s", "C", "fraction of the peak"
    if not work.flops:
        amount, unit, roof, of_roof = "Q", "bytes/s", "W", "fraction of the bandwidth"
    return [
        by_formula("rate", unit, f"{amount} / T", own, fitted),
        by_formula(of_roof, "", f"{amount} / (N * {roof} * T)", own, fitted),
    ]
