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
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.place import Place, bandwidth_of, peak_of
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


def timed(work: Work, place: Place, profile: Profile | None = None) -> Timed:
    """Return what the engine says of a kernel; `profile` None: the ideal one.

    A link reaches in its fitted figure what copies from pinned memory do.
    """
    kernel = _kernel(work, place)
    efficiencies = profile or (_ideal(place) if work.is_vector else ideal())
    rate = place.link and place.link * (COPY_SHARE if profile else 1.0)
    cost = kernel_time(kernel, place.chip, efficiencies, rate)
    link = float(kernel.host_bytes / rate) if rate else 0.0
    over_link = cost.bound == "memory" and link >= float(cost.memory)
    binds = "link" if over_link else str(cost.bound)
    parts = (float(cost.time), float(cost.compute), float(cost.memory), link)
    return Timed(*parts, binds, cost.evidence.source)


def kernel_answer(work: Work, place: Place, title: str, more: Sequence[Answer] = ()) -> Answer:
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
    formula, inputs = _roofs(work, place)
    parts = [*_amounts(work, place), *_terms(work, place, fitted), *more]
    unlimited = timed(work, place, _at_full_clock(profile)).time
    if unlimited < fitted.time:
        parts.append(by_formula(FULL_CLOCK, "s", formula, inputs, unlimited))
    answer = by_formula(
        f"{title} on {place.chip.title}: time", "s", formula, inputs,
        fitted=fitted.time,
        binds=fitted.binds,
        ideal_binds=best.binds,
        section=work.section,
        notes=(f"fitted figures: {fitted.evidence}",),
    )  # fmt: skip
    return replace(answer, parts=(*parts, *_rates(work, place, answer)))


def row(work: Work, place: Place, size: dict[str, Value]) -> dict[str, Value]:
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


def _at_full_clock(profile: Profile) -> Profile:
    """The profile without the power limit that products meet when they go on for long."""
    return replace(profile, matmul=tuple(replace(fit, sustained=1.0) for fit in profile.matmul))


def _kernel(work: Work, place: Place) -> Kernel:
    """The share of one device, as the engine prices it. Its FLOPs are those that are executed."""
    share = place.devices
    flops = work.amount(work.flops) / share
    backward = work.engine == "attention" and _value(work, "a") > 1
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


def _value(work: Work, symbol: str) -> float:
    return next(i.value for i in work.inputs if i.symbol == symbol)


def _ideal(place: Place) -> Profile:
    """The ideal profile with vector lanes at their full rate."""
    profile = ideal()
    return replace(profile, vector=VectorFit(place.vector_rate, inf, profile.vector.evidence))


def _symbols(work: Work, place: Place) -> dict[str, Input]:
    """F, Q and H: FLOPs, bytes, and those of them that come over the link; N devices."""
    found = {
        "F": Input("F", work.amount(work.flops), "FLOPs"),
        "Q": Input("Q", work.amount(work.moved), "bytes", "read and written"),
        "H": Input("H", work.amount(work.far), "bytes", "over the link"),
        "N": Input("N", place.devices, "devices"),
    }
    return found


def _roofs(work: Work, place: Place) -> tuple[str, tuple[Input, ...]]:
    """The formula of the time, and its inputs."""
    known, share = _symbols(work, place), "N * " if place.devices > 1 else ""
    terms: list[str] = []
    used: list[Input] = []
    if work.flops:
        terms.append(_over("F", f"{share}C", share))
        used += [known["F"], peak_of(work, place)]
    if work.moved:
        terms.append(_over("Q", f"{share}W", share))
        used += [known["Q"], bandwidth_of(place)]
    if work.far and place.link:
        terms.append(_over("H", f"{share}P", share))
        used += [known["H"], Input("P", place.link, "bytes/s", "link")]
    if share:
        used.append(known["N"])
    return f"max({', '.join(terms)})" if len(terms) > 1 else terms[0], tuple(used)


def _over(above: str, below: str, share: str) -> str:
    return f"{above} / ({below})" if share else f"{above} / {below}"


def _amounts(work: Work, place: Place) -> list[Answer]:
    """FLOPs, bytes, and FLOPs per byte, of all devices together."""
    known, found = _symbols(work, place), []
    if work.flops:
        found.append(by_formula("FLOPs", "FLOPs", work.flops, work.given(work.flops)))
    if work.moved:
        found.append(by_formula("bytes", "bytes", work.moved, work.given(work.moved)))
    if work.flops and work.moved:
        inputs = (known["F"], known["Q"])
        found.append(by_formula("intensity", "FLOPs/byte", "F / Q", inputs))
        ridge = (peak_of(work, place), bandwidth_of(place))
        found.append(by_formula("intensity of the ridge", "FLOPs/byte", "C / W", ridge))
    return found


def _terms(work: Work, place: Place, fitted: Timed) -> list[Answer]:
    """Seconds of computing, of moving, and of both one after the other."""
    known, share = _symbols(work, place), place.devices
    N = (known["N"],) if share > 1 else ()
    over = lambda above, below: _over(above, f"N * {below}" if N else below, "N" if N else "")
    found, both, used = [], [], list(N)
    if work.flops:
        inputs = (known["F"], peak_of(work, place))
        both.append(over("F", "C"))
        used += inputs
        found.append(by_formula("compute time", "s", both[-1], (*inputs, *N), fitted.compute))
    if work.moved:
        inputs = (known["Q"], bandwidth_of(place))
        both.append(over("Q", "W"))
        used += inputs
        fit = fitted.memory if not place.link else None
        found.append(by_formula("memory time", "s", both[-1], (*inputs, *N), fit))
    if work.far and place.link:
        inputs = (known["H"], Input("P", place.link, "bytes/s", "link"))
        found.append(by_formula("link time", "s", over("H", "P"), (*inputs, *N), fitted.link))
    if len(both) > 1:
        found.append(by_formula("time without overlap", "s", " + ".join(both), tuple(used)))
    return found


def _rates(work: Work, place: Place, time: Answer) -> list[Answer]:
    """FLOP/s, or bytes/s, that the kernel reaches, and the fraction of the peak."""
    known, N = _symbols(work, place), place.devices
    what, unit = ("F", "FLOP/s") if work.flops else ("Q", "bytes/s")
    assert isinstance(time.ideal, float) and isinstance(time.fitted, float)
    T = Input("T", time.ideal, "s", "textbook's time")
    rate = known[what].value / time.fitted
    found = [by_formula("rate", unit, f"{what} / T", (known[what], T), rate)]
    roof = peak_of(work, place) if work.flops else bandwidth_of(place)
    inputs = (known[what], roof, known["N"], T)
    name = "fraction of the peak" if work.flops else "fraction of the bandwidth"
    share = rate / (N * roof.value)
    found.append(by_formula(name, "", f"{what} / (N * {roof.symbol} * T)", inputs, share))
    return found
