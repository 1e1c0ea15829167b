"""`scaling collective`: the time of one collective on a cluster."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from scaling.cli.options import Command, File, KeyValues, Number, Real, Switch, Text
from scaling.meshes.errors import InputError

DEFAULT_SIZE = "1GiB"


@dataclass(frozen=True)
class CollectiveCommand(Command):
    """Print the time of one collective on a cluster, as nccl-tests would.

    Example: scaling collective all-reduce --bytes 1GiB --cluster dgx-h100 --nodes 4
    """

    kind: Annotated[Positional[str], arg(metavar="KIND")]
    """all-reduce, all-gather, reduce-scatter, all-to-all, permute or broadcast."""
    cluster: Annotated[str, arg(metavar="TEXT")]
    """Catalogue name or TOML file."""
    bytes: Text = None
    """Size as nccl-tests counts it, or several: 65536,1MiB,1GiB (default: 1GiB)."""
    nodes: Annotated[int, arg(metavar="N")] = 1
    """Number of hosts."""
    mesh: Text = None
    """Axis sizes on the first devices; without it, one group of all devices."""
    axis: Text = None
    """Axes of the mesh that the collective runs over, joined by commas (default: all)."""
    device_order: Text = None
    """Axes joined by commas, outermost first."""
    algorithm: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, ring, tree, nvls, nvls-tree, sharp, hierarchical, pairwise or pat."""
    dtype: Text = None
    """Format of the numbers; sizes are in bytes, so it only stands in the heading."""
    sweep: Text = None
    """FIRST:LAST, every power of two between: 1KiB:8GiB."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=400Gb/s."""
    calibration: File = None
    """File of scaling calibrate to price with."""
    ideal: Switch = False
    """No latency, every link at its full bandwidth, the fastest algorithm that they can run: the
    textbook's rule."""
    plot: File = None
    """File for bandwidth against size, with the bound drawn in (.svg or .png)."""
    json: Switch = False
    """Print one JSON document (a list for several sizes)."""
    skew: Real = None
    """Of an all-to-all: what the busiest member of each group receives over the mean, 1 to the
    number of members."""

    devices: Text = None
    """Device ids of one group, 1,2, or of several at once, 0,1:2,3; instead of --mesh."""
    active: Number = None
    """Of an all-to-all: destinations that each member sends to, as experts of a token."""
    random: Switch = False
    """With --active: those destinations are drawn at random, some of them twice."""
    hops: Switch = False
    """With --ideal: take at least the latency of the hops, max(T_hop x hops, V/W)."""
    switches: Switch = False
    """Also print the bytes over the busiest links of every level, and through its switches."""

    def execute(self) -> int:
        """Price every size, print and plot."""
        from scaling.api.collective import price_sizes
        from scaling.meshes import catalog
        from scaling.report.collective import (
            choice_lines,
            heading,
            level_lines,
            switch_lines,
            table,
        )

        prices, cluster, warnings = price_sizes(
            *(self.kind, self._sizes(), self.cluster, self.nodes, self.mesh, self.axis),
            *(self.algorithm, self.device_order, self.override, self.calibration, self.ideal),
            self.skew,
            **{name: getattr(self, name) for name in ("devices", "active", "random", "hops")},
        )
        if self.cluster.endswith(".toml"):
            for finding in catalog.check(self.cluster):
                print(finding, file=sys.stderr)
        for text in warnings:
            print(f"warning: {text}", file=sys.stderr)
        title = heading(prices, cluster, self.dtype)
        if self.plot is not None:
            from scaling.report.plots import plot_bandwidth

            plot_bandwidth(prices, title, self.plot)
        if self.json:
            documents = [price.to_dict() for price in prices]
            several = self.sweep is not None or "," in (self.bytes or "")
            print(json.dumps(documents if several else documents[0]))
        else:
            more = level_lines(prices[-1]) + switch_lines(prices[-1]) if self.switches else []
            print("\n".join([title, *table(prices), *choice_lines(prices), *more]))
        return 0

    def _sizes(self) -> list[int]:
        """Return the sizes in bytes."""
        from scaling.meshes.units import parse_sizes, parse_sweep

        if self.bytes is not None and self.sweep is not None:
            raise InputError(f"--bytes {self.bytes} and --sweep {self.sweep}: give one of them")
        if self.sweep is not None:
            return parse_sweep(self.sweep)
        return parse_sizes(DEFAULT_SIZE if self.bytes is None else self.bytes)
