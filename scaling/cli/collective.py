"""`scaling collective`: the time of one collective on a cluster."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from scaling.cli.options import (
    Command,
    File,
    KeyValues,
    Number,
    Pictures,
    Real,
    Switch,
    Text,
    Whole,
)
from scaling.meshes.errors import InputError, check_keys

if TYPE_CHECKING:
    from scaling.meshes.cluster import Cluster
    from scaling.simulate.collective import CollectivePrice

DEFAULT_SIZE = "1GiB"
MOST_MEMBERS = 8  # of a ring that is drawn: 14 frames of 64 squares


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
    nodes: Whole = 1
    """Number of hosts."""
    mesh: Text = None
    """Axis sizes on the first devices; without it, one group of all devices."""
    axis: Text = None
    """Axes of the mesh that the collective runs over, joined by commas (default: all)."""
    device_order: Text = None
    """Axes joined by commas, outermost first."""
    algorithm: Annotated[str, arg(metavar="NAME")] = "auto"
    """auto, ring, tree, nvls, nvls-tree, sharp, hierarchical, pairwise, pat or one-way-ring."""
    dtype: Text = None
    """Format of the numbers; sizes are in bytes, so it only stands in the heading."""
    sweep: Text = None
    """FIRST:LAST, every power of two between: 1KiB:8GiB."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    calibration: File = None
    """File of scaling calibrate to price with."""
    ideal: Switch = False
    """No latency, every link at its full bandwidth, the fastest algorithm that they can run: the
    textbook's rule."""
    plot: Pictures = ()
    """FILE (.svg or .png): bandwidth over size, with the bound and what others measured; ring=FILE:
    the steps of the collective around a ring."""
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
        from scaling.report.cluster import numbering
        from scaling.report.collective import (
            choice_lines,
            heading,
            level_lines,
            switch_lines,
            table,
        )

        pictures = self._pictures()
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
        if "bandwidth" in pictures:
            from scaling.pictures.plots import plot_bandwidth

            measured = self._measured(prices, cluster)
            plot_bandwidth(prices, title, pictures["bandwidth"], measured)
        if "ring" in pictures:
            self._plot_ring(prices[0].ranks, pictures["ring"])
        if self.json:
            documents = [price.to_dict() for price in prices]
            several = self.sweep is not None or "," in (self.bytes or "")
            print(json.dumps(documents if several else documents[0]))
        else:
            more = level_lines(prices[-1]) + switch_lines(prices[-1]) if self.switches else []
            more += numbering(cluster) if self.devices else []
            print("\n".join([title, *table(prices), *choice_lines(prices), *more]))
        return 0

    def _pictures(self) -> dict[str, Path]:
        """Return the pictures to write, by kind."""
        from scaling.api.output_paths import check_outputs
        from scaling.api.plots import picture_paths

        if not self.plot:
            return {}
        found = picture_paths("--plot", self.plot, ("bandwidth", "ring"), default="bandwidth")
        check_outputs({f"--plot {kind}": path for kind, path in found.items()})
        if "ring" in found:
            from scaling.pictures.drawing.frames import KINDS

            check_keys([self.kind], KINDS, "--plot ring", "collective")
        return found

    def _measured(
        self, prices: "list[CollectivePrice]", cluster: "Cluster"
    ) -> dict[str, list[tuple[float, float]]]:
        """Return who measured this collective over a whole cluster of the catalogue, and points."""
        from scaling.course.learn.measured import measured_sweep

        if self.override or self.devices or self.mesh or self.active or self.skew:
            return {}
        first, last = prices[0], prices[-1]
        factor = first.bus_bandwidth * first.time / first.bytes
        found: dict[str, list[tuple[float, float]]] = {}
        sweep = measured_sweep(self.kind, cluster.name, first.ranks, cluster.nodes)
        for size, one in sweep.items():
            if first.bytes <= size <= last.bytes:
                points = found.setdefault(f"measured: {one.machine} ({one.date})", [])
                points.append((size, factor * size / one.seconds))
        return found

    def _plot_ring(self, members: int, path: Path) -> None:
        """Draw the steps of the collective around a ring of its members."""
        from scaling.pictures.drawing.frames import frames
        from scaling.pictures.plots import plot_ring

        if not 2 <= members <= MOST_MEMBERS:
            raise InputError(
                f"--plot ring={path}: a group has {members:,} members, a ring of 2 to "
                f"{MOST_MEMBERS} is drawn; choose a smaller one by --devices 0,1,2,3"
            )
        title = f"{self.kind} around a ring of {members}"
        plot_ring(frames(self.kind, members), title, path)

    def _sizes(self) -> list[int]:
        """Return the sizes in bytes."""
        from scaling.meshes.units import parse_sizes, parse_sweep

        if self.bytes is not None and self.sweep is not None:
            raise InputError(f"--bytes {self.bytes} and --sweep {self.sweep}: give one of them")
        if self.sweep is not None:
            return parse_sweep(self.sweep)
        return parse_sizes(DEFAULT_SIZE if self.bytes is None else self.bytes)
