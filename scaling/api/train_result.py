"""How a training ended, and what to do next."""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.result import Result
from scaling.run import Run


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """The end of a run; prints as `scaling train` ends."""

    run: Run
    folder: Path
    step: int  # finished steps
    new_steps: int  # of them, in this process
    loss: float  # of the last one; NaN if there was none
    stopped_by: str = ""  # name of the signal that ended it early

    def to_dict(self) -> dict[str, Any]:
        """Return the figures; the loss is None if no step was made."""
        figures = {k: getattr(self, k) for k in ("step", "new_steps", "stopped_by")}
        loss = None if math.isnan(self.loss) else self.loss
        return {"name": self.run.name, "folder": str(self.folder), **figures, "loss": loss}

    def __str__(self) -> str:
        if self.stopped_by:
            saved = f"saved at step {self.step}" if self.new_steps else "before the first step"
            again = " with --resume" if self.step else ""  # else nothing was ever saved
            return f"stopped by {self.stopped_by}: {saved}\nnext: the same command{again}"
        if not self.new_steps:
            return (
                f"already trained to step {self.step}: {self.folder}\nnext: give a larger --steps"
            )
        lines = [f"{self.line()}: {self.folder}", f"next: {self._use_of_checkpoint()}"]
        if (self.folder / "predicted.json").is_file():
            lines.append(f"next: {shlex.join(['scaling', 'compare', str(self.folder)])}")
        return "\n".join(lines)

    def line(self) -> str:
        return f"trained to step {self.step}, loss {self.loss:.4f}"

    def _use_of_checkpoint(self) -> str:
        """Return the command that samples from a run on text, or exports another."""
        from scaling.training.trained_model import tokenizer_of

        folder = str(self.folder)
        try:
            tokenizer_of(self.run)
        except InputError:
            return shlex.join(["scaling", "export", folder, "--output", f"{folder}-weights"])
        prompt = "def " if self.run.train.data == "stdlib" else "The "
        return shlex.join(["scaling", "sample", folder, "--prompt", prompt])
