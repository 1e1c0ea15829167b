"""`scaling budget`: what a whole training takes."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

import scaling as sc
from scaling.cli.options import Factor, KeyValues, Number, QuestionCommand, Real, Text, TextOrNone
from scaling.cli.serve import OptionalModel
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class BudgetCommand(QuestionCommand):
    """Budget a training: time, devices, MFU or tokens, what is left out; energy, money, failures.

    Example: scaling budget llama3-70b --tokens 15T --cluster dgx-h100 --nodes 512 --mfu 0.45
    """

    model: OptionalModel = None
    """Recipe, run.json or Hugging Face config.json; or leave it out and give --parameters."""
    tokens: Text = None
    """Tokens of the whole training: 15T or 15e12 (default: asks how many can be trained)."""
    cluster: Annotated[str, arg(metavar="TEXT")] = "dgx-h100"
    """Catalogue name or TOML file."""
    nodes: Number = None
    """Number of hosts (default: 1, where no option says how many devices there are)."""
    devices: Number = None
    """Number of devices."""
    mesh: Text = None
    """Axis sizes; all axes but data share one copy of weights and optimizer."""
    tokens_per_device: Real = None
    """Tokens of a step on a device; with --batch it says how many devices there are."""
    days: Real = None
    """Days that the training may take: asks for the devices, or for the MFU."""
    device_hours: Text = None
    """Hours of all devices together: asks for the MFU."""
    mfu: Real = None
    """Model FLOPs over the peak, such as 0.4 (default: predicted, of the best mesh)."""
    batch: Text = None
    """Tokens of a step: 4M, 4Mi or 4e6 (default: the recipe's)."""
    bytes_per_parameter: Factor = 10.0
    """Weights with their optimizer: 10 has bf16 weights and fp32 moments, 16 mixed precision."""
    compute: Annotated[TextOrNone, arg(metavar="FORMAT", help_behavior_hint="")] = None
    """Format of the products, one that the chip multiplies (default: bf16, or its first)."""
    price: Real = None
    """Dollars for an hour of a device (default: of the dated table, where it has the chip)."""
    mtbf_hours: Real = None
    """Hours between two failures of one device (default: as in Llama 3's training)."""
    save_seconds: Real = None
    """Seconds of a checkpoint (default: all of the state at 2 TB/s)."""
    restart_seconds: Factor = 0.0
    """Seconds from a failure until the job trains again."""
    parameters: Text = None
    """Parameters of a model that has no name, such as 70e9 or 70B (without it and MODEL: asks for
    the most)."""
    active: Text = None
    """How many of --parameters a token uses."""
    set: KeyValues = ()
    """Any value of run.json by dotted key, such as batch.seq_len=4096."""
    override: KeyValues = ()
    """A figure of the cluster or its chip, such as peak_fp8=1.5e15."""

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.budget(
            self.model,
            self.tokens,
            self.cluster,
            self.nodes,
            self.mesh,
            devices=self.devices,
            tokens_per_device=self.tokens_per_device,
            days=self.days,
            device_hours=self.device_hours,
            mfu=self.mfu,
            batch=self.batch,
            bytes_per_parameter=self.bytes_per_parameter,
            compute=self.compute,
            price=self.price,
            mtbf_hours=self.mtbf_hours,
            save_seconds=self.save_seconds,
            restart_seconds=self.restart_seconds,
            parameters=self.parameters,
            active=self.active,
            set=self.set,
            overrides=self.override,
        )
