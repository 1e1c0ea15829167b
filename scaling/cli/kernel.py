"""`scaling kernel`: the time of one kernel on one chip, and which roof binds it."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import File, KeyValues, QuestionCommand, Switch, Text, TextOrNone, Whole
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class KernelCommand(QuestionCommand):
    """Show the time of a kernel: FLOPs, bytes, intensity, what binds, critical batch.

    Example: scaling kernel matmul 512,8192,4096 --dtype fp16 --accelerator b200-sxm
    """

    kind: Annotated[Positional[str], arg(metavar="KIND")]
    """matmul, attention, elementwise, reduce, embedding, read, copy or work."""
    sizes: Annotated[Positional[str], arg(metavar="SIZES")]
    """matmul [b,]m,n,k; attention sequences,heads,queries,keys,head_dim[,kv_heads]; elementwise
    elements[,inputs[,operations]]; reduce elements; embedding tokens,width,vocabulary; read or copy
    bytes; work FLOPs[,bytes]."""
    accelerator: Text = None
    """An accelerator of the catalogue, or a TOML file (default: that of --cluster)."""
    dtype: Annotated[str, arg(metavar="NAME")] = "bf16"
    """Number format of activations, and of all else that is not stated."""
    weights: Text = None
    """Format of a matmul's second operand, or of an embedding's table."""
    output: Text = None
    """Format of a matmul's result."""
    kv: Text = None
    """Format of an attention's keys and values."""
    compute: Text = None
    """Format whose peak rate counts."""
    causal: Switch = False
    """Attention: a query sees no later keys."""
    backward: Switch = False
    """Attention: the backward pass."""
    devices: Whole = 1
    """Chips that the work is divided over, evenly and without communication."""
    from_: Annotated[TextOrNone, arg(name="from", metavar="TEXT", help_behavior_hint="")] = None
    """Weights come over a link: host, or its rate, such as 16GB/s."""
    cluster: Text = None
    """Catalogue name or TOML file, where chips have several links to a host."""
    bandwidth: Text = None
    """Of the memory: 22x that of the chip, or a rate."""
    override: KeyValues = ()
    """A figure of the chip, such as peak_bf16=400e12 or memory_bandwidth=2TB/s."""
    sweep: Text = None
    """A size and its values: m=1:8192 (doubled) or m=1,64,512."""
    plot: File = None
    """File for the roofline with the kernel on it (.svg or .png)."""

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.kernel(
            self.kind,
            self.sizes,
            dtype=self.dtype,
            accelerator=self.accelerator,
            weights=self.weights,
            output=self.output,
            kv=self.kv,
            compute=self.compute,
            causal=self.causal,
            backward=self.backward,
            devices=self.devices,
            cluster=self.cluster,
            source=self.from_,
            bandwidth=self.bandwidth,
            override=self.override,
            sweep=self.sweep,
            plot=self.plot,
        )
