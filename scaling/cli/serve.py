"""`scaling serve`: what serving a model takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import (
    File,
    KeyValues,
    Number,
    QuestionCommand,
    Real,
    Text,
    TextOrNone,
    Whole,
)
from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer

OptionalModel = Annotated[Positional[TextOrNone], arg(metavar="[MODEL]", help_behavior_hint="")]
Format = Annotated[str, arg(metavar="FORMAT")]


@dataclass(frozen=True)
class ServeCommand(QuestionCommand):
    """Time a decode step: tokens per second, memory, critical batch, prompts, servers and money.

    Example: scaling serve llama3-70b --cluster dgx-h100 --batch 32 --context 8192 --weights int8
    """

    model: OptionalModel = None
    """Recipe, run.json or Hugging Face config.json; or leave it out and give --parameters."""
    cluster: Annotated[str, arg(metavar="TEXT")] = "dgx-h100"
    """Catalogue name or TOML file."""
    nodes: Number = None
    """Number of hosts (default: as many as --devices or --mesh need, else 1)."""
    devices: Number = None
    """Number of devices that serve."""
    mesh: Text = None
    """Axis sizes of data, expert and tensor (default: all devices are tensor)."""
    batch: Whole = 1
    """Sequences that are decoded at once, on all devices."""
    context: Number = None
    """Tokens of each sequence in the KV cache (default: prompt and answer, else the recipe's)."""
    prompt: Number = None
    """Tokens of a request's prompt."""
    generate: Number = None
    """Tokens that are generated after it."""
    weights: Format = "bf16"
    """Format of the weights in memory: bf16, fp8, int8, fp4, int4, fp32."""
    kv: Format = "bf16"
    """Format of the KV cache, likewise."""
    compute: Annotated[TextOrNone, arg(metavar="FORMAT", help_behavior_hint="")] = None
    """Format of the products, one that the chip multiplies (default: bf16, or its first)."""
    mfu: Real = None
    """Share of the peak that prefill reaches, such as 0.4 (default: as its kernels are priced)."""
    step_time: Text = None
    """Time that a step may take, such as 20ms: asks for the largest batch within it."""
    price: Real = None
    """Dollars for an hour of a device (default: of the dated table, where it has the chip)."""
    parameters: Text = None
    """Parameters of a model that has no name, such as 30e9 or 30B."""
    active: Text = None
    """How many of --parameters a token uses."""
    kv_per_token: Text = None
    """Bytes of a token's keys and values in all layers, of --parameters: 100kB."""
    set: KeyValues = ()
    """Any value of run.json by dotted key, such as model.n_kv_heads=1."""
    override: KeyValues = ()
    """A figure of the cluster, such as memory=16GB."""
    calibration: File = None
    """File of scaling calibrate to price with."""

    def ask(self) -> Answer:
        """Return the answer."""
        from scaling.meshes.units import parse_count, parse_quantity

        return sc.serve(
            self.model,
            self.cluster,
            self.nodes,
            self.mesh,
            devices=self.devices,
            batch=self.batch,
            context=self.context,
            prompt=self.prompt,
            generate=self.generate,
            weights=self.weights,
            kv=self.kv,
            compute=self.compute,
            mfu=self.mfu,
            step_time=_read("--step-time", self.step_time, lambda t: parse_quantity(t, "s")),
            price=self.price,
            parameters=_read("--parameters", self.parameters, parse_count),
            active=_read("--active", self.active, parse_count),
            kv_per_token=self.kv_per_token,
            set=self.set,
            overrides=self.override,
            calibration=self.calibration,
        )


def _read(option: str, text: str | None, parse: Callable[[str], float]) -> float | None:
    """Return the number of an option's text; InputError names the option."""
    try:
        return None if text is None else parse(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
