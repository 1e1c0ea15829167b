"""Seconds of one kernel on one chip: the roofline, and which roof binds.

    time = max(F / C, Q / W)       F FLOPs at the peak C, Q bytes at the bandwidth W

What reads weights from its host's memory, or another link, has a third roof; what runs on N
devices has 1/N of everything on each. The textbook's number is the formula's; the fitted one is
`kernel_time` with the chip's profile, for the same FLOPs and bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.host_link import COPY_SHARE
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import Profile, VectorFit
from scaling.profiles.shipped import vector_peak
from scaling.program.ir import Kernel, KernelKind, Origin
from scaling.program.ops import attention, matmul
from scaling.questions.answer import Answer, Input, Lettered, Value, by_formula, letters, number
from scaling.questions.workloads import KernelWork
from scaling.simulate.kernels import WIDER, kernel_time, peak_rate
from scaling.simulate.uncertainty import kernel_range

FULL_CLOCK = "time of a short burst, before power limits the clock"


@dataclass(frozen=True)
class KernelTarget:
    """Where a kernel runs."""

    chip: Accelerator  # its bandwidth may be that of another memory
    dtype: str  # of the products
    devices: int = 1  # that the work is divided over
    link: float | None = None  # bytes/s over which weights come; None: they lie in the memory
    memory: str = "memory bandwidth"  # what the bandwidth is of
    library: str = ""  # that runs an attention; "": not named

    @property
    def vector_rate(self) -> float:
        """Operations per second of all vector lanes, one per lane and cycle."""
        return vector_peak(self.chip) / 2  # the peak counts a multiply-add as two


def bandwidth_of(target: KernelTarget) -> Input:
    """Return W, the bandwidth of the memory that the bytes are read from."""
    return Input("W", target.chip.required("memory_bandwidth"), "bytes/s", target.memory)


def peak_of(work: KernelWork, target: KernelTarget) -> Input:
    """Return C, the peak rate that binds the FLOPs: of products, or of vector lanes."""
    if work.is_vector:
        return Input("C", target.vector_rate, "FLOP/s", "vector lanes, an operation per cycle")
    return peak_input(target.chip, target.dtype)


def peak_input(chip: Accelerator, dtype: str) -> Input:
    """Return C, the dense peak of a format; what a chip has no units for says whose peak it is."""
    units = dtype if dtype in chip.peaks else WIDER.get(dtype, dtype)
    meaning = f"dense {units} peak" + f", without units for {dtype}" * (units != dtype)
    return Input("C", peak_rate(chip, dtype), "FLOP/s", meaning)


@dataclass(frozen=True)
class KernelTimes:
    """One kernel's seconds with one profile, and what most of them are spent in."""

    time: float
    compute: float
    memory: float
    link: float
    binds: str
    evidence: str
    low: float  # ends of the range of the time
    high: float


def timed(work: KernelWork, target: KernelTarget, profile: Profile | None = None) -> KernelTimes:
    """Return what the engine says of a kernel; `profile` None: the ideal one.

    A link reaches in its fitted figure what copies from pinned memory do.
    """
    kernel = priced_kernel(work, target)
    efficiencies = profile or ideal()
    if profile is None and work.is_vector:  # its lanes at their full rate
        evidence = efficiencies.vector.evidence
        efficiencies = replace(efficiencies, vector=VectorFit(target.vector_rate, inf, evidence))
    rate = target.link and target.link * (COPY_SHARE if profile else 1.0)
    cost = kernel_time(kernel, target.chip, efficiencies, rate)
    link = float(kernel.host_bytes / rate) if rate else 0.0
    over_link = cost.bound == "memory" and link >= float(cost.memory)
    binds = "link" if over_link else str(cost.bound)
    times = (float(cost.time), float(cost.compute), float(cost.memory), link)
    ends = kernel_range(kernel, cost, target.chip, efficiencies, rate)
    return KernelTimes(*times, binds, cost.evidence.source, *map(float, ends))


@dataclass(frozen=True)
class Roofline(Lettered):
    """A kernel on its chip, as formulas over F, Q and H.

    These are FLOPs, bytes, and those of them that come over the link.
    """

    work: KernelWork
    target: KernelTarget

    @cached_property
    def letters(self) -> dict[str, Input]:
        """F, Q and H with their rates, and N devices."""
        work, target = self.work, self.target
        inputs = [
            Input("F", work.amount(work.flops), "FLOPs"),
            Input("Q", work.amount(work.moved), "bytes", "read and written"),
            Input("H", work.amount(work.far), "bytes", "over the link"),
            Input("N", target.devices, "devices"),
        ]
        if work.flops:
            inputs.append(peak_of(work, target))
        if work.moved:
            inputs.append(bandwidth_of(target))
        if target.link:
            inputs.append(Input("P", target.link, "bytes/s", "link"))
        return letters(*inputs)

    @cached_property
    def terms(self) -> dict[str, str]:
        """The formula of the time under each roof that the kernel has."""
        work, over = self.work, "{} / (N * {})" if self.target.devices > 1 else "{} / {}"
        roofs = {"compute time": ("F", "C", work.flops), "memory time": ("Q", "W", work.moved)}
        roofs |= {"link time": ("H", "P", work.far if self.target.link else "")}
        return {name: over.format(*pair) for name, (*pair, has) in roofs.items() if has}

    def amounts(self) -> list[Answer]:
        """FLOPs, bytes, and FLOPs per byte, of all devices together."""
        work = self.work
        formulas = {"FLOPs": work.flops, "bytes": work.moved}
        answers = [by_formula(n, n, text, work.inputs) for n, text in formulas.items() if text]
        if work.flops and work.moved:
            answers.append(self.answer("intensity", "FLOPs/byte", "F / Q"))
            answers.append(self.answer("intensity of the ridge", "FLOPs/byte", "C / W"))
        return answers

    def times(self, fitted: KernelTimes) -> list[Answer]:
        """Seconds of computing, of moving, and of both one after the other."""
        times = {
            "compute time": fitted.compute,
            "memory time": None if self.target.link else fitted.memory,
            "link time": fitted.link,
        }
        answers = [self.answer(name, "s", t, fitted=times[name]) for name, t in self.terms.items()]
        if self.work.flops and self.work.moved:
            both = f"{self.terms['compute time']} + {self.terms['memory time']}"
            answers.append(self.answer("time without overlap", "s", both))
        return answers

    def rates(self, time: Answer) -> list[Answer]:
        """FLOP/s, or bytes/s, that the kernel reaches, and the fraction of the peak."""
        T, fitted = Input("T", number(time, True), "s", "textbook's time"), {"T": float(time)}
        amount, unit, roof, share = "F", "FLOP/s", "C", "fraction of the peak"
        if not self.work.flops:
            amount, unit, roof, share = "Q", "bytes/s", "W", "fraction of the bandwidth"
        return [
            self.answer("rate", unit, f"{amount} / T", T, fitted=fitted),
            self.answer(share, "", f"{amount} / (N * {roof} * T)", T, fitted=fitted),
        ]


def kernel_answer(
    work: KernelWork, target: KernelTarget, title: str, more: Sequence[Answer] = ()
) -> Answer:
    """Return the time of a kernel, with FLOPs, bytes, intensity, rate and what binds as parts.

    `title` names the kernel, `more` are further parts.

    Raises:
        InputError: the chip does not multiply in the format, or its bandwidth is not known.
    """
    profile, roofline = profile_of(target.chip), Roofline(work, target)
    fitted, best = timed(work, target, profile), timed(work, target)
    several = ", ".join(roofline.terms.values())
    formula = f"max({several})" if ", " in several else several
    parts = [*roofline.amounts(), *roofline.times(fitted), *more]
    burst = burst_time(work, target, profile)
    if burst < fitted.time:
        parts.append(roofline.answer(FULL_CLOCK, "s", formula, fitted=burst))
    answer = roofline.answer(
        f"{title} on {target.chip.title}: time",
        "s",
        formula,
        fitted=fitted.time,
        low=min(fitted.low, burst),
        high=fitted.high,
        binds=fitted.binds,
        ideal_binds=best.binds,
        section=work.section,
        notes=(f"fitted figures: {fitted.evidence}",),
    )
    return replace(answer, parts=(*parts, *roofline.rates(answer)))


def burst_time(work: KernelWork, target: KernelTarget, profile: Profile) -> float:
    """Return the seconds without the power limit that products meet when they go on for long."""
    cool = lambda fits: tuple(replace(fit, sustained=1.0) for fit in fits)
    short = replace(profile, matmul=cool(profile.matmul), grouped=cool(profile.grouped))
    return timed(work, target, short).time


def row(work: KernelWork, target: KernelTarget, size: dict[str, Value]) -> dict[str, Value]:
    """Return one line of a sweep: the size that changes, FLOPs, bytes, times, what binds."""
    profile = profile_of(target.chip)
    fitted, best = timed(work, target, profile), timed(work, target)
    flops, moved = work.amount(work.flops), work.amount(work.moved)
    return {
        **size,
        "FLOPs (FLOPs)": flops,
        "bytes (bytes)": moved,
        "intensity (FLOPs/byte)": flops / moved if moved else None,
        "time (s)": fitted.time,
        "low (s)": min(fitted.low, burst_time(work, target, profile)),
        "high (s)": fitted.high,
        "textbook (s)": best.time,
        "binds": fitted.binds,
        "binds in the textbook": best.binds,
    }


def priced_kernel(work: KernelWork, target: KernelTarget) -> Kernel:
    """Return the share of one device, as the engine prices it, with the FLOPs that are executed.

    Columns of the weights, or heads, are divided among devices.
    """
    share, values = target.devices, work.values
    flops, origin = work.amount(work.flops) / share, Origin("forward")
    if work.kind in ("matmul", "grouped"):
        batch = values.get("b", values.get("g", 1.0))
        dims = (batch, values["m"], values["n"] / share, values["k"])
        grouped = work.kind == "grouped"
        kernel = matmul(work.kind, dims, target.dtype, grouped=grouped, origin=origin)
    elif work.kind == "attention":
        B, N, T, S, H, K = (values[symbol] for symbol in "BNTSHK")
        kernel = attention(
            work.kind,
            (B, N / share, T, S, H),
            H,
            kv_heads=K / share,
            library=target.library,
            moved=0.0,
            dtype=target.dtype,
            scores=work.amount(work.scores) / share,
            origin=Origin("backward") if values["a"] > 1 else origin,
        )
    else:
        engine: KernelKind = "custom" if work.kind == "work" else "fusion"
        kernel = Kernel(work.kind, origin, kind=engine, dtype=target.dtype)
        counted = "vector_flops" if work.is_vector else "flops"
        kernel = replace(kernel, **{counted: flops})  # type: ignore[arg-type]
    far = work.amount(work.far) / share if target.link else 0.0
    moved = work.amount(work.moved) / share
    return replace(kernel, bytes=moved, host_bytes=far, visible=1.0)
