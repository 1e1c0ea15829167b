"""A checkpoint as safetensors files in Hugging Face's names."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from scaling.api.public_api import entrance
from scaling.compile.quiet import quiet
from scaling.meshes.errors import check_keys
from scaling.meshes.result import Result
from scaling.meshes.shape import MeshShape

if TYPE_CHECKING:
    import jax

FORMATS = ("fp32", "bf16")


@dataclass(frozen=True, repr=False)
class Export(Result):
    """What was written; prints as a line."""

    output: Path
    family: str  # of Hugging Face: the model_type
    files: tuple[Path, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `scaling export --json`."""
        files = [file.name for file in self.files]
        what = {"output": str(self.output), "model_type": self.family, "files": files}
        return {**what, "bytes": self.bytes, "dtype": self.dtype}

    def line(self) -> str:
        return f"{len(self.files)} file(s) of weights in {self.output}"

    def __str__(self) -> str:
        return (
            f"wrote {self.output}: config.json ({self.family}) and {len(self.files)} file(s) of "
            f"weights, {self.bytes:,} bytes in {self.dtype}"
        )


@entrance
def export(
    run_dir: Path | str,
    output: Path | str,
    *,
    dtype: Literal["fp32", "bf16"] = "fp32",
    weights: Literal["last", "ema"] | None = None,
) -> Export:
    """Write a checkpoint as safetensors in Hugging Face's names, with config.json and tokenizer.

    >>> import scaling as sc
    >>> print(sc.export("runs/demo", "demo-weights"))    # doctest: +SKIP
    wrote demo-weights: config.json (llama) and 1 file(s) of weights, 4,739,256 bytes in fp32

    Adapters are added to their matrices. The weights go through the host's memory, which is larger
    than an accelerator's.

    Args:
        run_dir: folder of a run.
        output: folder to write; must be empty or new.
        dtype: number format of the weights: fp32 keeps every bit, bf16 rounds to nearest.

    Raises:
        InputError: no checkpoint, a model that Hugging Face has no name for, a folder in use.
    """
    check_keys([dtype], FORMATS, "--dtype", "format")
    if weights is not None:
        check_keys([weights], ("last", "ema"), "--weights", "kind")
    folder, output = Path(run_dir), Path(output)
    with quiet():  # imports jax
        from scaling.models.huggingface.export import family_of
        from scaling.training.data.tokenizer import copy_tokenizer
        from scaling.training.trained_model import newest_model, on_mesh, run_of_folder
        from scaling.training.weights.exported import export_weights

        run = run_of_folder(folder)
        family = family_of(run.model)  # refused before anything is read
        place = on_mesh(run, MeshShape())
        model, _ = newest_model(place, folder, _host(), cast(Any, weights))
        files = export_weights(model, output, run.batch.seq_len, dtype)
        if run.train.tokenizer is not None:
            copy_tokenizer(run.train.tokenizer, output)
    return Export(output, family, tuple(files), dtype)


def _host() -> "list[jax.Device] | None":
    """Return the CPU as a device; None where JAX_PLATFORMS leaves it out."""
    import jax

    try:
        return jax.devices("cpu")[:1]
    except RuntimeError:
        return None
