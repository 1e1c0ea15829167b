"""`scaling eval`: loss, perplexity and multiple-choice accuracy of a trained model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import UseAppendAction, arg

from scaling.cli.options import Switch, TrainedCommand
from scaling.report.formatting import columns

if TYPE_CHECKING:
    from scaling.train.evaluation.choices import Accuracy
    from scaling.train.evaluation.losses import Loss

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
        """Open all files, then load the newest checkpoint and measure."""
        from scaling.compile.quiet import quiet

        with quiet():
            from scaling.train.evaluation.choices import accuracy, open_questions
            from scaling.train.evaluation.losses import held_out, mean_loss, open_file, total
            from scaling.train.trained_model import newest_model, run_of_folder, tokenizer_of

            run = self.load()
            asked = [
                open_questions(Path(path), run, tokenizer_of(run), self.chat)
                for path in self.choices
            ]
            files = [open_file(path, run) for path in self.data]
            if not self.data and not asked:
                files = list(held_out(run_of_folder(self.run_dir), run))
            model, step = newest_model(run, self.run_dir, weights=self.weights)
            losses = [mean_loss(model, run, file) for file in files]
            if len(losses) > 1:
                losses.append(total(losses))
            found = [accuracy(model, run, questions) for questions in asked]
        if self.json:
            document = {
                "name": run.name,
                "step": step,
                "mesh": str(run.mesh),
                "data": [loss.to_dict() for loss in losses],
                "choices": [result.to_dict() for result in found],
            }
            print(json.dumps(document, allow_nan=False))
        else:
            at = "" if step is None else f", step {step}"
            print("\n".join([f"{run.name}{at}, on {run.mesh}", *_losses(losses), *_choices(found)]))
        return 0


def _losses(losses: "list[Loss]") -> list[str]:
    """Return a table with a line for each file; none without files."""
    head = ("data", "tokens", "loss", "perplexity", "bits per byte")
    rows = [
        (
            loss.data,
            f"{loss.tokens:,}",
            f"{loss.loss:.4f}",
            f"{loss.perplexity:,.5g}",
            "-" if loss.bits_per_byte is None else f"{loss.bits_per_byte:.4f}",
        )
        for loss in losses
    ]
    return columns([head, *rows]) if rows else []


def _choices(found: "list[Accuracy]") -> list[str]:
    """Return a table with a line for each file of questions."""
    head = ("choices", "questions", "acc", "acc_norm")
    rows = [(a.data, f"{a.questions:,}", f"{a.acc:.1%}", f"{a.acc_norm:.1%}") for a in found]
    return columns([head, *rows]) if rows else []
