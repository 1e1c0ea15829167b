"""`scaling sample`: text from a checkpoint."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from scaling.cli.options import Command, RunFolder


@dataclass(frozen=True)
class SampleCommand(Command):
    """Print text from a checkpoint.

    Example: scaling sample runs/demo --prompt "def "
    """

    run_dir: RunFolder
    """Folder of a run on text."""
    prompt: Annotated[str, arg(metavar="TEXT")]
    """How the text begins."""
    tokens: Annotated[int, arg(metavar="N")] = 200
    """Tokens to add at most; of a byte-level run bytes."""
    temperature: Annotated[float, arg(metavar="X")] = 0.8
    """0 is greedy; higher is more random."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the sampling."""

    chat: bool = False
    """The prompt is a message, and only the answer is printed."""

    def execute(self) -> int:
        """Load the newest checkpoint and print text."""
        from scaling.compile.quiet import quiet

        with quiet():
            from scaling.train.sample import generate, load_model, tokenizer_of

            run, model = load_model(self.run_dir)
            known = tokenizer_of(run) if run.train.tokenizer or self.chat else None
            options = (run.batch.seq_len, self.tokens, self.temperature, self.seed, known)
            text = generate(model, self.prompt, *options, self.chat)
        print(text)
        return 0
