"""`scaling chip`: what one accelerator can do."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

import scaling as sc
from scaling.cli.options import KeyValues, Number, QuestionCommand, Text, Whole
from scaling.meshes import catalog
from scaling.questions.answer import Answer


@dataclass(frozen=True)
class ChipCommand(QuestionCommand):
    """Show an accelerator: peaks, memory, and the intensity at which it becomes compute bound.

    Example: scaling chip h100-sxm
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """An accelerator of the catalogue, a TOML file, or list."""
    dtype: Text = None
    """Number format of the peak that the intensity is of; else bf16, or fp16 or fp32 where the chip
    does not multiply that."""
    devices: Whole = 1
    """So many chips have their peaks, memory and power added up."""
    registers: Number = None
    """32-bit registers of a thread, to ask how many warps fit a core."""
    override: KeyValues = ()
    """A figure in place of the catalogue's, such as clock=1.59GHz or peak_bf16=400e12."""

    def execute(self) -> int:
        """Show one accelerator, or list all."""
        if self.name != "list":
            return super().execute()
        chips = [catalog.accelerator(name) for name in catalog.accelerator_names()]
        width = max(len(chip.name) for chip in chips)
        document = [{"name": chip.name, "title": chip.title} for chip in chips]
        lines = (f"{chip.name.ljust(width)}  {chip.title}" for chip in chips)
        print(json.dumps(document) if self.json else "\n".join(lines))
        return 0

    def ask(self) -> Answer:
        """Return the answer."""
        return sc.chip(
            self.name,
            dtype=self.dtype,
            devices=self.devices,
            registers=self.registers,
            override=self.override,
        )
