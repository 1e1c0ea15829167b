"""The links that bind a collective, as parts of a formula: seconds per byte = factor / rate.

    rate     factor        links of W bytes/s
    W        (X - 1) / X   X units are joined: chips by NVLink, nodes by their NICs
    W / G    (X - 1) / X   G arrays, of groups side by side, share those of one unit
    M * W    none          a torus: M rings work at once, W both directions of one link
    M * W    (X - 1) / X   lines of a torus, each half a ring
    W / s    none          else: s bytes pass the busiest link per byte of the call

The guide drops (X - 1) / X in most of its rules. The shares are those that the engine counts
(`scaling.collectives.contention`), for the algorithm that `ideal()` takes.
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.candidates import Candidate
from scaling.collectives.contention import LinkLoad
from scaling.collectives.cost import collective_time
from scaling.meshes.cluster import Cluster
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate
from scaling.profiles.io import ideal
from scaling.program.ir import CollectiveKind
from scaling.questions.answer import Input

IDEAL = ideal()
SAME = 1e-9  # relative: floats that stand for the same number
UNEVEN: tuple[CollectiveKind, ...] = ("permute", "all-to-all")  # on a torus


@dataclass(frozen=True)
class Wire:
    """The links that bind, in symbols."""

    rate: str
    inputs: tuple[Input, ...]  # of the rate
    units: Input | None  # X; None: without a factor
    level: NetworkLevel

    @property
    def binds(self) -> str:
        """The links with their bandwidth: `NICs of a node, 400 GB/s`."""
        return f"{self.level.name}, {format_rate(self.level.bandwidth)}"

    @property
    def over(self) -> str:
        """What time grows with, behind a number of bytes: ` / W * (X - 1) / X`."""
        factor = " * (X - 1) / X" if self.units else ""
        return f" / {self._atom}{factor}"

    @property
    def under(self) -> str:
        """What fits into a time, behind a number: ` * W / ((X - 1) / X)`."""
        factor = " / ((X - 1) / X)" if self.units else ""
        return f" * {self.rate}{factor}"

    @property
    def symbols(self) -> tuple[Input, ...]:
        """All inputs."""
        return (*self.inputs, self.units) if self.units else self.inputs

    @property
    def rule(self) -> "Wire":
        """The same as the guide rounds it, for many units."""
        return Wire(self.rate, self.inputs, None, self.level)

    @property
    def _atom(self) -> str:
        return self.rate if self.rate.isidentifier() else f"({self.rate})"


def wire(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> Wire:
    """Return the links that bind a collective in all `groups` (device ids [groups, members])."""
    best = binding(kind, groups, cluster)
    return wire_of(
        kind, best.busiest.level, best.busiest.load, units_joined(groups, best.busiest.level)
    )


def binding(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> Candidate:
    """Return the algorithm that is fastest with ideal links, with its busiest level."""
    candidates = collective_time(kind, 1.0, groups, cluster, IDEAL).candidates
    return min(candidates, key=lambda candidate: candidate.per_byte)


def wire_of(kind: CollectiveKind, level: NetworkLevel, load: LinkLoad, joined: int) -> Wire:
    """Return one level's links with what a collective puts on them.

    `joined` is the number of units that a group has there.
    """
    one_way = f"{level.name}, one direction"
    if level.grid is not None and kind not in UNEVEN:
        return _of_torus(level, load)
    W = Input("W", level.bandwidth, "bytes/s", one_way)
    if kind == "permute" or joined < 2 or level.grid is not None:
        s = Input("s", float(load.share), "", "bytes over that link per byte of the call")
        return Wire("W / s", (W, s), None, level)
    X = Input("X", joined, unit_word(level), "that one group joins")
    G = load.share * joined / (joined - 1)
    if abs(G - 1) < SAME:
        return Wire("W", (W,), X, level)
    if G < 1:  # part of what units gather comes over other links
        s = Input("s", float(load.share), "", "bytes over that link per byte of the call")
        return Wire("W / s", (W, s), None, level)
    shared = Input("G", float(G), "", f"arrays over the links of one of these {unit_word(level)}")
    return Wire("W / G", (W, shared), X, level)


def units_joined(groups: np.ndarray, level: NetworkLevel) -> int:
    """Return the units that one group joins in one region of a level, at most."""
    ordered = np.sort(groups, axis=1)
    distinct = lambda labels: 1 + (np.diff(labels[ordered], axis=1) != 0).sum(axis=1)
    return int((distinct(level.labels.unit) // distinct(level.labels.region)).max())


def unit_word(level: NetworkLevel) -> str:
    """Return the plural of what a level's links leave: "chips", "nodes", "leaf groups"."""
    _, _, word = level.name.replace(" of an ", " of a ").partition(" of a ")
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return plural if word and "few" not in word else "units"


def _of_torus(level: NetworkLevel, load: LinkLoad) -> Wire:
    """Rings and lines of a torus; the shards of a ring pass whole, without a factor."""
    W = Input("W", 2 * level.bandwidth, "bytes/s", "one ICI link, both directions")
    least = load.share if load.min_share is None else load.min_share
    if least < load.share * (1 - SAME):
        return Wire(
            "M * W", (Input("M", 1 / (2 * load.share), "", "rings at once"), W), None, level
        )
    M = Input("M", (1 - 1 / load.units) / (2 * load.share), "", "rings at once; a line is half one")
    X = Input("X", load.units, "chips", "that one group joins")
    return Wire("M * W", (M, W), X, level)
