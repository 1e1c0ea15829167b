"""The links that bind a collective, in words, and in letters as parts of a formula.

    seconds = rounds x V / rate x factor      of V bytes; an all-reduce has two rounds, others one

    rate     factor        links of W bytes/s
    W        (X - 1) / X   X units are joined: chips by NVLink, nodes by their NICs
    W / G    (X - 1) / X   G arrays, of groups side by side, share those of one unit
    M * W    none          a torus: M rings work at once, W both directions of one link
    M * W    (X - 1) / X   lines of a torus, each half a ring
    W / s    none          else: s bytes pass the busiest link per byte of the call

"How to Scale Your Model" (2026-06) drops (X - 1) / X in most of its rules. The shares are those
that the engine counts (`scaling.collectives.contention`); a formula is computed from its own text
(`scaling.meshes.formula`), so that the words of a page cannot differ from its number.
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.algorithms import REDUCTIONS, SENDS, LinkLoad, rounds
from scaling.collectives.candidates import Candidate, candidates
from scaling.collectives.contention import place_groups
from scaling.meshes.cluster import Cluster
from scaling.meshes.formula import Input
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate, format_size
from scaling.profiles.io import ideal
from scaling.program.ir import CollectiveKind

IDEAL = ideal()
SAME = 1e-9  # relative: floats that stand for the same number
LACKING = "(X - 1) / X"  # what one of X units lacks of the bytes of all


@dataclass(frozen=True)
class BindingLink:
    """The links that bind, in symbols."""

    rate: str
    inputs: tuple[Input, ...]  # of the rate
    units: Input | None  # X; None: without a factor
    level: NetworkLevel

    @property
    def words(self) -> str:
        """The links with their bandwidth: `NICs of a node, 400 GB/s`."""
        return f"{self.level.name}, {format_rate(self.level.bandwidth)}"

    @property
    def time_suffix(self) -> str:
        """What makes seconds of a number of bytes before it: ` / W * (X - 1) / X`."""
        rate = self.rate if self.rate.isidentifier() else f"({self.rate})"
        return f" / {rate}{f' * {LACKING}' if self.units else ''}"

    @property
    def limit_suffix(self) -> str:
        """What makes bytes of a number of seconds before it: ` * W / ((X - 1) / X)`."""
        return f" * {self.rate}{f' / ({LACKING})' if self.units else ''}"

    @property
    def symbols(self) -> tuple[Input, ...]:
        """All inputs."""
        return (*self.inputs, self.units) if self.units else self.inputs

    @property
    def simplified(self) -> "BindingLink":
        """The same as the guide rounds it, for many units."""
        return BindingLink(self.rate, self.inputs, None, self.level)


def binding_link(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> BindingLink:
    """Return the links that bind a collective in all `groups` (device ids [groups, members]).

    With ideal links, whose fastest algorithm is taken.
    """
    able = candidates(kind, place_groups(groups.astype(int), cluster), IDEAL, "auto")
    return link_of_candidate(kind, groups, min(able, key=lambda each: each.per_byte))


def link_of_candidate(
    kind: CollectiveKind, groups: np.ndarray, candidate: Candidate
) -> BindingLink:
    """Return the busiest links of an algorithm."""
    return link_of(kind, groups, candidate.busiest.level, candidate.busiest.load)


def link_of(
    kind: CollectiveKind, groups: np.ndarray, level: NetworkLevel, load: LinkLoad
) -> BindingLink:
    """Return one level's links with what a collective in `groups` puts on them in one round."""
    share, ordered = load.share / rounds(kind), np.sort(groups, axis=1)
    count = lambda labels: 1 + (np.diff(labels[ordered], axis=1) != 0).sum(axis=1)
    joined = int((count(level.labels.unit) // count(level.labels.region)).max())  # in a region
    if level.grid is not None and kind not in SENDS:
        return _of_torus(level, load, share)
    if kind == "permute" or joined < 2 or level.grid is not None:
        return counted_link(level, share)
    X = Input("X", joined, unit_word(level), "that one group joins")
    W = Input("W", level.bandwidth, "bytes/s", f"{level.name}, one direction")
    G = share * joined / (joined - 1)
    if abs(G - 1) < SAME:
        return BindingLink("W", (W,), X, level)
    if G < 1:  # part of what units gather comes over other links
        return counted_link(level, share)
    shared = Input("G", float(G), "", f"arrays over the links of one of these {unit_word(level)}")
    return BindingLink("W / G", (W, shared), X, level)


def counted_link(
    level: NetworkLevel, share: float, meaning: str = "bytes over that link per byte of the call"
) -> BindingLink:
    """Return links over which so many bytes pass per byte of a call."""
    W = Input("W", level.bandwidth, "bytes/s", f"{level.name}, one direction")
    return BindingLink("W / s", (W, Input("s", float(share), "", meaning)), None, level)


def time_formula(kind: CollectiveKind, link: BindingLink) -> str:
    """Return the seconds of V bytes over a link: `2 * V / W * (X - 1) / X`."""
    return f"{'2 * ' * (rounds(kind) - 1)}V{link.time_suffix}"


def received_formula(kind: CollectiveKind) -> str:
    """Return the bytes that each of N members receives at least of a call of V bytes."""
    if kind in REDUCTIONS or kind == "all-to-all":
        return f"{'2 * ' * (rounds(kind) - 1)}V * {LACKING.replace('X', 'N')}"
    return "V"


def unit_word(level: NetworkLevel) -> str:
    """Return the plural of what a level's links leave: "chips", "nodes", "leaf groups"."""
    _, _, word = level.name.replace(" of an ", " of a ").partition(" of a ")
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return plural if word and "few" not in word else "units"


def _of_torus(level: NetworkLevel, load: LinkLoad, share: float) -> BindingLink:
    """Rings and lines of a torus; the shards of a ring pass whole, without a factor."""
    W = Input("W", 2 * level.bandwidth, "bytes/s", "one ICI link, both directions")
    if load.least < load.share * (1 - SAME):
        M = Input("M", 1 / (2 * share), "", "rings at once")
        return BindingLink("M * W", (M, W), None, level)
    M = Input("M", (1 - 1 / load.units) / (2 * share), "", "rings at once; a line is half one")
    X = Input("X", load.units, "chips", "that one group joins")
    return BindingLink("M * W", (M, W), X, level)


# Words


def bottleneck_words(candidate: Candidate, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`; prefixed if latency takes longer."""
    level, load = candidate.busiest.level, candidate.busiest.load
    each = format_size(bytes * load.share / load.groups)
    groups = f"{load.groups} groups x " if load.groups > 1 else ""
    text = f"{level.name}: {groups}{each} over {format_rate(level.bandwidth)}"
    if level.staged or candidate.busiest.transport == "host":
        text += ", through host memory"
    return f"latency, then {text}" if candidate.is_late(bytes) else text


@dataclass(frozen=True)
class LevelTime:
    """The busiest links of a level in one call, as if no other level bound it."""

    level: str
    bytes: float  # over them, one direction
    bandwidth: float  # bytes/s, at their full rate
    time: float  # s, of the bytes alone


def level_times(candidate: Candidate | None, bytes: float) -> tuple[LevelTime, ...]:
    """Every level that an algorithm loads in one call, from the chips outwards.

    None without a candidate, where a machine was measured instead.
    """
    loaded = candidate.loaded if candidate else ()
    sent = [(one.level, bytes * one.load.share) for one in loaded]
    return tuple(LevelTime(lvl.name, n, lvl.bandwidth, n / lvl.bandwidth) for lvl, n in sent)
