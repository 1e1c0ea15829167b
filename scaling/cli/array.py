"""`scaling array`: sharded arrays in the guide's notation."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import File, KeyValues, Number, QuestionCommand, Switch, Text
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class ArrayCommand(QuestionCommand):
    """Answer for a sharded array, a resharding or a product: bytes, FLOPs, collectives, times.

    Example: scaling array "A[I_X,J] -> A[I,J]" --mesh X=8 --shape I=1024,J=4096 --cluster dgx-h100
    """

    expression: Annotated[Positional[str], arg(metavar="EXPRESSION")]
    """A[I_X,J], A[I_X,J] -> A[I,J], or A[I,J_X] @ B[J_X,K] -> C[I,K]; I_X is dimension I split over
    axis X, {U_X} behind an array says that it holds terms of a sum."""
    mesh: Text = None
    """Axes of any names with their sizes, outermost first: X=4,Y=8; without it one device."""
    shape: Text = None
    """Sizes of the dimensions: I=1024,J=4096."""
    dtype: Annotated[str, arg(metavar="NAME")] = "bf16"
    """Number format of arrays that state none (int8 A[I,J] does)."""
    cluster: Text = None
    """Catalogue name or TOML file; without it bytes and FLOPs, no times."""
    nodes: Number = None
    """Number of hosts (default: as many as the mesh needs)."""
    device_order: Text = None
    """Axes joined by commas, outermost first."""
    override: KeyValues = ()
    """A figure of the cluster, such as node_network_bandwidth=3200Gb/s (all NICs of a node)."""
    calibration: File = None
    """File of scaling calibrate to price with."""

    hops: Switch = False
    """The textbook's collectives take at least their hops' latency: max(T_hop x hops, V/W)."""
    compile: Switch = False
    """Also show which collectives XLA puts in, beside ours."""
    tile: Text = None
    """Also print an array's bytes with its last dimensions padded to whole tiles, such as 8,128."""

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.array(
            self.expression,
            self.mesh,
            self.shape,
            self.cluster,
            self.nodes,
            dtype=self.dtype,
            device_order=self.device_order,
            overrides=self.override,
            calibration=self.calibration,
            ideal=self.ideal,
            hops=self.hops,
            compile=self.compile,
            tile=self.tile,
        )
