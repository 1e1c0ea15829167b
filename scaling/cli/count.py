"""`scaling count`: parameters, FLOPs, caches and memory of a model, by counting."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import (
    Factor,
    KeyValues,
    Number,
    QuestionCommand,
    Real,
    Switch,
    Text,
    Whole,
)
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class CountCommand(QuestionCommand):
    """Count a model: parameters, FLOPs of a token, KV cache, memory of training, FLOPs of a run.

    Example: scaling count llama3-70b --seq-len 8192 --kv int8 --tokens 15T
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A recipe's name, run.json, a Hugging Face config.json, or custom with all shapes by --set."""
    set: KeyValues = ()
    """Any value of run.json by dotted key, such as model.n_layers=64 or remat=full."""
    batch: Text = None
    """Tokens of a step, such as 4M (default: the recipe's)."""
    seq_len: Number = None
    """Tokens of a sequence, the context of attention (default: the recipe's)."""
    dtype: Text = None
    """Format of activations (default: that of the run's computation)."""
    kv: Text = None
    """Format of the KV cache (default: as activations)."""
    tokens: Text = None
    """Of the whole training, such as 15T (default: 20 a parameter)."""
    checkpoints_per_layer: Real = None
    """Tensors of width d_model that a layer keeps for its backward pass."""
    bytes_per_parameter: Factor = 10
    """Of weights and optimiser: 10, 12, 16 and 18 are usual."""
    devices: Whole = 1
    """Devices that share weights, optimiser and activations evenly."""
    memory: Text = None
    """Of a device, such as 96GB: how many devices weights, optimiser and activations fill."""
    causal: Switch = False
    """Half of the attention's scores count."""

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.count(
            self.model,
            set=self.set,
            batch=self.batch,
            seq_len=self.seq_len,
            dtype=self.dtype,
            kv=self.kv,
            tokens=self.tokens,
            checkpoints_per_layer=self.checkpoints_per_layer,
            bytes_per_parameter=self.bytes_per_parameter,
            devices=self.devices,
            causal=self.causal,
            memory=self.memory,
        )
