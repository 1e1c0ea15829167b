"""`scaling eval`: loss, perplexity and multiple-choice accuracy of a trained model."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import UseAppendAction, arg

import scaling as sc
from scaling.cli.options import Switch, TrainedCommand

Repeated = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="PATH", help_behavior_hint="(repeatable)")
]


@dataclass(frozen=True)
class EvalCommand(TrainedCommand):
    """Measure a trained model: loss per token of whole files, accuracy on multiple choice.

    Example: scaling eval runs/demo --data notes.txt --choices questions.jsonl
    """

    data: Repeated = ()
    """What training takes: text, a folder, .jsonl, .parquet, .bin. Without --data and --choices the
    part of the run's data that was held out."""
    choices: Repeated = ()
    """.jsonl of {"question": TEXT, "choices": [TEXT, ...], "answer": NUMBER}."""
    chat: Switch = False
    """A user asks the questions of --choices, and choices are the assistant's answers."""
    json: Switch = False
    """Print one JSON document."""

    def execute(self) -> int:
        """Print what was measured."""
        found = sc.evaluate(
            self.run_dir, self.data, self.choices, chat=self.chat, **self.placement()
        )
        print(json.dumps(found.to_dict(), allow_nan=False) if self.json else found)
        return 0
