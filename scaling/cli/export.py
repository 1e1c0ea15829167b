"""`scaling export`: a checkpoint as safetensors files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.models.huggingface.export import family_of

if TYPE_CHECKING:
    import jax


def export_command(run_dir: Path, output: Path, dtype: str) -> int:
    """Write the newest checkpoint of a run folder; returns the exit code.

    It goes through the host's memory, which is larger than an accelerator's.
    """
    from scaling.train.trained_model import newest_model, run_of_folder
    from scaling.weights.exported import export_weights

    run = run_of_folder(run_dir)
    family = family_of(run.model)  # refused before anything is read
    files = export_weights(newest_model(run, run_dir, _host()), output, run.batch.seq_len, dtype)
    size = sum(file.stat().st_size for file in files)
    print(
        f"wrote {output}: config.json ({family}) and {len(files)} file(s) of weights, "
        f"{size:,} bytes in {dtype}",
        file=sys.stdout,
    )
    return 0


def _host() -> "jax.Device | None":
    """The CPU as a device; None where JAX_PLATFORMS leaves it out."""
    import jax

    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None
