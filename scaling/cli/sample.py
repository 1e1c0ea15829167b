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
    """Folder of a byte-level run."""
    prompt: Annotated[str, arg(metavar="TEXT")]
    """How the text begins."""
    tokens: Annotated[int, arg(metavar="N")] = 200
    """Bytes to add."""
    temperature: Annotated[float, arg(metavar="X")] = 0.8
    """0 is greedy; higher is more random."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the sampling."""

    def execute(self) -> int:
        """Load the newest checkpoint and print text."""
        from scaling.compile.quiet import quiet

        with quiet():
            from scaling.train.sample import generate, load_model

            run, model = load_model(self.run_dir)
            options = (run.batch.seq_len, self.tokens, self.temperature, self.seed)
            text = generate(model, self.prompt, *options)
        print(text)
        return 0
