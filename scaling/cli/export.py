"""`scaling export`: a checkpoint as safetensors files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from scaling.cli.options import Command, RunFolder, WeightsChoice

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class ExportCommand(Command):
    """Write a checkpoint as safetensors in Hugging Face's names, with config.json and tokenizer.
    Adapters are added to their matrices.

    Example: scaling export runs/demo --output demo-weights
    """

    run_dir: RunFolder
    """Folder of a run."""
    output: Annotated[Path, arg(metavar="PATH")]
    """Folder to write; must be empty or new."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """fp32 keeps every bit, bf16 rounds to nearest."""
    weights: WeightsChoice = None
    """Parameters of the last step, or their running mean (the default with train.ema)."""

    def execute(self) -> int:
        """Export through the host's memory, which is larger than an accelerator's."""
        from scaling.compile.quiet import quiet

        with quiet():
            from scaling.meshes.shape import MeshShape
            from scaling.models.huggingface.export import family_of
            from scaling.training.data.tokenizer import copy_tokenizer
            from scaling.training.trained_model import newest_model, on_mesh, run_of_folder
            from scaling.training.weights.exported import export_weights

            run = run_of_folder(self.run_dir)
            family = family_of(run.model)  # refused before anything is read
            place = on_mesh(run, MeshShape())
            model, _ = newest_model(place, self.run_dir, _host(), self.weights)
            files = export_weights(model, self.output, run.batch.seq_len, self.dtype)
            if run.train.tokenizer is not None:
                copy_tokenizer(run.train.tokenizer, self.output)
        size = sum(file.stat().st_size for file in files)
        print(
            f"wrote {self.output}: config.json ({family}) and {len(files)} file(s) of weights, "
            f"{size:,} bytes in {self.dtype}"
        )
        return 0


def _host() -> "list[jax.Device] | None":
    """Return the CPU as a device; None where JAX_PLATFORMS leaves it out."""
    import jax

    try:
        return jax.devices("cpu")[:1]
    except RuntimeError:
        return None
