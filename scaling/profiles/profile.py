"""How efficient a machine is: what fraction of its peaks a program gets, and what each call costs.

    seconds of a matmul      = overhead + FLOPs / (peak x efficiency(m, n, k))
    seconds of a fusion      = overhead + bytes / (bandwidth x efficiency)
    seconds of a collective  = alpha + steps x latency + bytes / (bandwidth x efficiency) + knee

A profile holds such fits, each with its evidence (who measured it, when, how well it fits), and the
raw samples behind them. `scaling calibrate` writes one for the machine it runs on; those of GPUs
are shipped, from published measurements. Pricing reads the fits only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from scaling.meshes.errors import InputError
from scaling.profiles.samples import Direction, Samples
from scaling.program.ir import CollectiveKind, Number

VERSION = 3  # of the format
ANY = "any"  # stands for every dtype, or every kind of collective, that has no fit of its own

EvidenceGrade = Literal["measured", "calibrated", "datasheet"]  # best first
AttentionPass = Direction | Literal["decode"]
LinkKind = Literal["nvlink", "xgmi", "ici", "pcie", "network"]


@dataclass(frozen=True)
class Evidence:
    """Where the figures of a fit come from. Errors are |fit / measured - 1|."""

    source: str  # who measured what where
    date: str
    grade: EvidenceGrade
    samples: int = 0  # measurements that were fitted
    median_error: float | None = None
    mean_error: float | None = None
    max_error: float | None = None
    held_out_error: float | None = None  # mean, of a fit to half of the samples, on the others
    error_p90: float | None = None  # 90 % quantile of the relative error, symmetric in log space
    latency_p90: float | None = None  # the same where latency decides; None: `error_p90`
    lent_p90: float | None = None  # both on chips that were left out; None: not known
    lent_latency_p90: float | None = None
    measured: "MeasuredSpan | None" = None  # what the samples cover


@dataclass(frozen=True)
class MeasuredSpan:
    """Least and most of what measurements cover; a prediction beyond them has a wider range."""

    ranks: tuple[float, float]  # of a group
    nodes: tuple[float, float]  # that a group crosses
    bytes: tuple[float, float]  # of a call


@dataclass(frozen=True)
class MatmulFit:
    """Constants of `scaling.simulate.products`, in fractions of peaks, so that chips compare.

    With `load` the tiles of a product are counted; without, as on a CPU, its efficiency is
    efficiency x m/(m + h_m) x n/(n + h_n) x k/(k + h_k): a dimension is charged for `half_sizes`
    more than it has. Power lets no product go on faster than `sustained` for long; none is priced
    faster than `best`, the fastest that the evidence has.
    """

    dtype: str
    efficiency: float  # fraction of the peak that a busy core reaches at full clock
    evidence: Evidence
    overhead: float = 0.0  # s, one call in a CUDA graph
    half_sizes: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of m, n, k
    load: float | None = None  # bytes of operands that one core takes in a cycle
    fill: float = 0.0  # s, one wave of tiles: filling and draining the pipeline
    stream: float | None = None  # fraction of the memory bandwidth; None: that of other kernels
    peak: float | None = None  # FLOP/s; None: the accelerator states it
    sustained: float = 1.0  # fraction of the peak, under the chip's power limit
    best: float = 1.0  # fraction of the peak: the fastest product that was measured


@dataclass(frozen=True)
class GroupedFit:
    """Products of experts, each with its own matrix, beside those of one matrix of all rows."""

    share: float  # of their rates
    fill: float  # s, least of a wave of tiles: kernels of many matrices do not hide their ends
    evidence: Evidence


@dataclass(frozen=True)
class MemoryFit:
    """Streams of bytes, and what a cache keeps of them.

    On a CPU the first `cache` bytes move at `cache_bandwidth`, the rest at that of the memory. On a
    GPU the operands of a fusion move at `l2` where they fit (`scaling.simulate.kernels.KEPT`): the
    kernel before has just written them.
    """

    efficiency: float  # fraction of the memory bandwidth
    evidence: Evidence
    overhead: float = 0.0  # s, one kernel
    bandwidth: float | None = None  # bytes/s; None: the accelerator states it
    cache: float = 0.0  # bytes
    cache_bandwidth: float | None = None  # bytes/s; None: no cache is modelled
    best: float = 1.0  # fraction of the memory bandwidth: the fastest stream that was measured
    l2: float = 0.0  # bytes of the L2 cache per clock and core; 0: it is not modelled


@dataclass(frozen=True)
class VectorFit:
    """Rates of all arithmetic outside of matrix products."""

    flops: float  # FLOP/s
    transcendentals: float  # exponentials, logarithms, roots ... per second
    evidence: Evidence


@dataclass(frozen=True)
class AttentionFit:
    """A fused attention: tiles over cores, each walking its keys (`scaling.simulate.attention`).

    `start` keys are charged for filling a tile's pipeline. `memory` None: operands move beside the
    products, at the share of the bandwidth of other kernels.
    """

    direction: AttentionPass
    efficiency: float  # fraction of the peak of its dtype that products reach
    evidence: Evidence
    overhead: float = 0.0  # s, one call
    softmax: float = 0.0  # time of a score's over that of one special function
    start: float = 0.0  # keys
    tile: int | None = (
        None  # queries of one core's tile, keys backward; None: cores are always full
    )
    memory: float | None = None  # fraction of the bandwidth at which operands and results move
    combine: float = 0.0  # s, of the pass that adds up parts of the keys
    executed: float = 1.0  # least share of the scores that it computes whatever a mask hides: 0.5
    # walks all keys that a causal mask leaves, not those of a window alone
    dtype: str = ANY
    library: str = ANY
    peak: float | None = None  # FLOP/s; None: the accelerator states it
    best: float = 1.0  # fraction of the peak that computed scores reached at most


@dataclass(frozen=True)
class LinkFit:
    """How an algorithm of a collective uses links of one kind, whatever protocols the library has.

    latency = alpha + hops x (latency_factor x latency of the links + hop_overhead)
            + other members x member_overhead
    wire    = bytes / (bandwidth x efficiency) x (1 + fill_drain / transfers)
    seconds = latency + wire + knee x latency x p / (1 + knee_end x p),  p = sqrt(wire / latency)

    A ring passes each piece on `transfers` times; filling and draining it takes the fraction
    `fill_drain` of one transfer: groups of two lose more by it than groups of eight.
    """

    kind: CollectiveKind | Literal["any"]
    link: LinkKind
    efficiency: float  # fraction of the link's bandwidth
    evidence: Evidence
    alpha: float = 0.0  # s, one call
    hop_overhead: float = 0.0  # s, one hop, beyond the latency of its links
    member_overhead: float = 0.0  # s, every other member of a group in a node
    latency_factor: float = 1.0  # latency of a hop over that of its links; 0: ideal
    algorithm: str = "any"  # a name in scaling.collectives.algorithms.ALGORITHMS
    fill_drain: float = 0.0  # transfers
    knee: float = 0.0  # of medium sizes, where neither latency nor bytes alone decide
    knee_end: float = 0.0  # how soon the pieces of a message stop to grow with it
    transport: str = "any"  # of a network: as scaling.meshes.cluster.Transport
    overlaps: bool = False  # hops pass while bytes do, as on a torus: the larger of the two counts


@dataclass(frozen=True)
class CollectiveFit:
    """seconds = alpha + bytes / bandwidth of one collective inside one node, as measured there.

    With a cache, up to `cache` bytes move at `cache_bandwidth`, the rest at `bandwidth`.
    """

    kind: CollectiveKind
    ranks: int
    groups: int  # equal groups at once
    alpha: float  # s
    bandwidth: float  # bytes/s
    evidence: Evidence
    cache: float = 0.0  # bytes
    cache_bandwidth: float | None = None  # bytes/s; None: no cache is modelled


@dataclass(frozen=True)
class TimedCurve:
    """Seconds of a collective as timed over those by the fits of the links, of growing sizes."""

    kind: CollectiveKind
    nodes: int
    per_node: int  # ranks of each
    latency: float  # s, of a call without bytes, by the fits
    modelled: tuple[float, ...]  # s, by the fits
    timed: tuple[float, ...]  # s, never less for more bytes
    bytes: tuple[float, float]  # least and most

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node

    @property
    def reach(self) -> int:
        """Nodes, or ranks inside one: what curves are interpolated over."""
        return self.nodes if self.nodes > 1 else self.per_node

    def factor(self, seconds: Number, latency: float = 0.0) -> Number:
        """The time of a call over `seconds`, which it takes by the fits; `latency` without bytes.

        More seconds never become less.
        """
        first, least = self.modelled[0], self.timed[0]
        x = np.log(np.minimum(np.maximum(seconds, first), self.modelled[-1]))
        factor = np.exp(np.interp(x, np.log(self.modelled), np.log(self.timed)) - x)
        if first < 2 * self.latency or least <= self.latency:  # latency decides the smallest
            return factor
        bytes_ = (least - self.latency) / (first - self.latency)  # the factor of the bytes alone
        late = max(latency, self.latency)
        smaller = 1 + (bytes_ - 1) * np.maximum(1 - late / np.maximum(seconds, late), 0)
        return np.where(np.less(seconds, first), smaller, factor)


@dataclass(frozen=True)
class DispatchFit:
    """seconds = overhead + buffers x per_buffer + fresh bytes / fresh_bandwidth, one program call.

    A CPU's temporaries are fresh pages of the system at every call, unless they take at most
    `kept` bytes, which the allocator keeps from call to call.
    """

    overhead: float  # s
    per_buffer: float  # s, one argument or result
    fresh_bandwidth: float  # bytes/s
    kept: float  # bytes
    evidence: Evidence


@dataclass(frozen=True)
class StepFit:
    """Time of a kernel within a training step over its time alone, with its operands in cache."""

    slowdown: float
    evidence: Evidence  # its errors are those of whole steps
    central: tuple[float, float] | None = None  # measured over predicted: 5 and 95 % quantiles


@dataclass(frozen=True)
class InterferenceFit:
    """Share of its rate that a kernel loses beside a collective, which loses nothing itself.

    Collectives of GPUs are kernels: they take cores from those beside them, and the share of the
    memory bandwidth at which they read and write. At worst both together take as long as one after
    the other: beside a kernel that loses `most`, a collective runs at that share of its rate.
    """

    cores: float
    most: float  # the largest loss that was measured
    evidence: Evidence

    def lost(self, bandwidth: Number) -> Number:
        """The loss beside a collective that takes such a share of the memory bandwidth."""
        return np.minimum(self.cores + bandwidth, self.most)

    @property
    def held_up(self) -> float:
        """Time of a collective beside a kernel over that alone, less one, at worst."""
        return 1 / self.most - 1


@dataclass(frozen=True)
class Profile:
    """Efficiencies and overheads of one machine.

    The units of a GPU work at the same time: a kernel takes as long as the slowest of them. A core
    of a CPU waits for its loads and computes in turn: there the parts of a kernel add up.
    """

    name: str
    machine: str  # "Intel Xeon @ 2.60GHz, 2 cores, 8 devices" or "h100-sxm"
    date: str
    matmul: tuple[MatmulFit, ...]
    memory: MemoryFit
    vector: VectorFit
    attention: tuple[AttentionFit, ...] = ()
    grouped: tuple[MatmulFit, ...] = ()  # products whose groups have each their own matrix
    links: tuple[LinkFit, ...] = ()
    collectives: tuple[CollectiveFit, ...] = ()
    network: tuple[TimedCurve, ...] = ()  # what was timed on the cluster that is priced
    dispatch: DispatchFit | None = None  # None: the host runs ahead of its devices
    step: StepFit | None = None  # None: no whole steps were measured
    interference: InterferenceFit | None = None  # in steps that XLA compiled; None: there is none
    overlap: bool = True  # the parts of a kernel run at once; False: one after another
    samples: Samples = Samples()
    versions: Mapping[str, str] = field(default_factory=dict)
    other_load: float = 0.0  # fraction of the processors that other processes used; 0: little
    version: int = VERSION

    def of_program(self, is_xla: bool) -> "Profile":
        """The profile for steps that XLA compiled, or for others.

        The constants of other software were fitted on whole steps: they have all of this in them.
        With it, and fitted again, they were no better on other rows (docs/costs/overlap.md).
        """
        return self if is_xla or self.interference is None else self._undisturbed

    @cached_property
    def _undisturbed(self) -> "Profile":
        return replace(self, interference=None)

    @property
    def grade(self) -> EvidenceGrade:
        """Grade of the weakest evidence."""
        return max((e.grade for e in evidences(self)), key=get_args(EvidenceGrade).index)

    @cached_property
    def cache(self) -> dict[tuple[Any, ...], Any]:
        """Found by `algorithms` and `link_fit`; a profile does not change."""
        return {}


def evidences(profile: Profile) -> Iterator[Evidence]:
    """The evidence of every fit."""
    for f in fields(profile):
        value = getattr(profile, f.name)
        for fit in value if isinstance(value, tuple) else (value,):
            if hasattr(fit, "evidence"):
                yield fit.evidence


def matmul_fit(profile: Profile, dtype: str, grouped: bool = False) -> MatmulFit:
    """The fit of `dtype`, of grouped products where there is one; InputError lists those known."""
    by_dtype = {fit.dtype: fit for fit in grouped and profile.grouped or profile.matmul}
    fit = by_dtype.get(dtype) or by_dtype.get(ANY)
    if fit is None:
        known = ", ".join(by_dtype) or "none"
        raise InputError(
            f"profile {profile.name} has no matmul in {dtype!r}; it has {known}; "
            "run `scaling calibrate`"
        )
    return fit


# What is taken for a library that a chip's table lacks: on Ampere, where nothing of cuDNN's was
# published, Transformer Engine prefers FlashAttention (NVIDIA/NeMo, pull request 9188, 2024).
ELSE = {"cudnn": "flash-attention-2"}


def attention_fit(
    profile: Profile,
    direction: AttentionPass,
    dtype: str = ANY,
    library: str = ANY,
) -> AttentionFit | None:
    """The fit of a direction, of this library (or `ELSE` of it) and format where there is one.

    Decoding without a fit is as a forward pass. None: attention is to be priced as a matmul.
    """
    key = "attention", direction, dtype, library
    if key not in profile.cache:
        able = [
            fit
            for fit in profile.attention
            if fit.direction in (direction, "forward" if direction == "decode" else direction)
            and fit.dtype in (dtype, ANY)
            and fit.library in (library, ELSE.get(library), ANY)
        ]
        specificity = lambda f: (
            *(f.direction == direction, f.library == library, f.library != ANY, f.dtype != ANY),
        )
        profile.cache[key] = max(able, key=specificity, default=None)
    fit: AttentionFit | None = profile.cache[key]
    return fit


def algorithms(profile: Profile, kind: CollectiveKind) -> tuple[str, ...]:
    """Algorithms with fits of their own for this kind; () if all fits are for any algorithm."""
    if (kind,) not in profile.cache:
        named = (fit.algorithm for fit in profile.links if fit.kind in (kind, "any"))
        profile.cache[kind,] = tuple(dict.fromkeys(name for name in named if name != "any"))
    names: tuple[str, ...] = profile.cache[kind,]
    return names


def link_fit(
    profile: Profile, algorithm: str, kind: CollectiveKind, link: str, transport: str = ""
) -> LinkFit | None:
    """The most specific fit of an algorithm over a kind of link; None if there is none.

    Among the fits that apply the order is:

        algorithm and kind    algorithm, any kind    any algorithm, this kind    any of both

    each for the transport between the hosts before the same for any transport. Each profile caches
    its look-ups, which a search of meshes repeats by the thousand.
    """
    key = algorithm, kind, link, transport
    if key not in profile.cache:
        able = [
            fit
            for fit in profile.links
            if fit.link == link
            and fit.kind in (kind, "any")
            and fit.algorithm in (algorithm, "any")
            and fit.transport in (transport, "any")
        ]
        specificity = lambda f: (f.transport != "any", f.algorithm != "any", f.kind != "any")
        profile.cache[key] = max(able, key=specificity, default=None)
    fit: LinkFit | None = profile.cache[key]
    return fit
