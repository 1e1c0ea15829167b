"""`scaling sample`: text from a trained model."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import UseAppendAction, arg

import scaling as sc
from scaling.cli.options import Factor, File, Number, Switch, TrainedCommand, Whole
from scaling.meshes.errors import InputError

BETWEEN = "---"  # line between two texts
SAMPLING = ("tokens", "temperature", "top_k", "top_p", "seed", "chat")  # options of `sc.sample`


@dataclass(frozen=True)
class SampleCommand(TrainedCommand):
    """Print text from a trained model, one after each prompt.

    Example: scaling sample runs/demo --prompt "def "
    """

    prompt: Annotated[
        tuple[str, ...],
        UseAppendAction,
        arg(metavar="TEXT", help_behavior_hint="(repeatable)"),
    ] = ()
    """How a text begins."""
    prompts: File = None
    """File with a prompt a line."""
    tokens: Whole = 200
    """Tokens to add at most; of a byte-level run bytes."""
    temperature: Factor = 0.8
    """0 is greedy; higher is more random."""
    top_k: Number = None
    """Draw from the N likeliest tokens alone."""
    top_p: Factor = 1.0
    """Draw from the fewest likeliest tokens that have this probability in all."""
    seed: Whole = 0
    """Seed of the sampling."""

    chat: Switch = False
    """The prompts are messages, and only the answers are printed."""
    json: Switch = False
    """Print a document with "texts" instead."""

    def execute(self) -> int:
        """Print the texts."""
        drawn = {name: getattr(self, name) for name in SAMPLING}
        texts = sc.sample(self.run_dir, self._prompts(), **drawn, **self.placement())
        print(json.dumps({"texts": texts}) if self.json else f"\n{BETWEEN}\n".join(texts))
        return 0

    def _prompts(self) -> list[str]:
        """Return the prompts of the command line, then those of the file."""
        prompts = list(self.prompt)
        if self.prompts is not None:
            try:
                prompts += filter(None, self.prompts.read_text(encoding="utf-8").splitlines())
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"--prompts {self.prompts} cannot be read: {error}") from None
        if not prompts:
            raise InputError("nothing to continue: give --prompt, or --prompts with a line of text")
        return prompts
