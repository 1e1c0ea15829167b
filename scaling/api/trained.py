"""A trained model: its loss on files, and text from it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from scaling.api.inputs import MeshLike, as_mesh
from scaling.api.public_api import entrance
from scaling.compile.quiet import quiet
from scaling.meshes.errors import check_keys
from scaling.meshes.result import Result
from scaling.meshes.shape import AXES
from scaling.report.formatting import columns

if TYPE_CHECKING:  # they import jax, which must wait until the devices are known
    from scaling.training.evaluation.losses import Loss

PathLike = str | Path


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """What was measured; prints as the page of `scaling eval`."""

    name: str  # of the run
    step: int | None  # of the checkpoint; None: weights of Hugging Face
    mesh: str
    data: "tuple[Loss, ...]"  # of several files a last one over all

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `scaling eval --json`."""
        losses = [loss.to_dict() for loss in self.data]
        return {"name": self.name, "step": self.step, "mesh": self.mesh, "data": losses}

    def __str__(self) -> str:
        rows = [("data", "tokens", "loss", "perplexity", "bits per byte")]
        for loss in self.data:
            bits = "-" if loss.bits_per_byte is None else f"{loss.bits_per_byte:.4f}"
            figures = (f"{loss.tokens:,}", f"{loss.loss:.4f}", f"{loss.perplexity:,.5g}", bits)
            rows.append((loss.data, *figures))
        return "\n".join([self.line(), *columns(rows)])

    def line(self) -> str:
        at = "" if self.step is None else f", step {self.step}"
        return f"{self.name}{at}, on {self.mesh}"


@entrance
def evaluate(
    run_dir: PathLike,
    data: PathLike | Iterable[PathLike] = (),
    *,
    mesh: MeshLike | None = None,
    devices: int | None = None,
    batch: int | None = None,
    seq_len: int | None = None,
    weights: Literal["last", "ema"] | None = None,
) -> Evaluation:
    """Return the loss per token of a trained model on whole files.

    >>> import scaling as sc
    >>> found = sc.evaluate("runs/demo", data="notes.txt")    # doctest: +SKIP
    >>> found.data[0].loss, found.data[0].bits_per_byte       # doctest: +SKIP
    (1.62, 2.33)

    Args:
        data: what training takes: text, a folder, .jsonl, .parquet, .bin; none: the part of the
            run's data that was held out.
        mesh: axis sizes over data, fsdp, expert and tensor, whatever the run was trained on; None:
            all devices are fsdp.

    Raises:
        InputError: whatever does not fit, before the model is read.
    """
    if weights is not None:
        check_keys([weights], ("last", "ema"), "--weights", "kind")
    with quiet():  # imports jax
        from scaling.training.evaluation.losses import held_out, mean_loss, open_file, total
        from scaling.training.trained_model import newest_model, open_run, run_of_folder

        shape = None if mesh is None else as_mesh(mesh, AXES)
        run = open_run(Path(run_dir), shape, devices, batch, seq_len)
        several = [data] if isinstance(data, str | os.PathLike) else data
        files = [open_file(os.fspath(path), run) for path in several]
        files = files or list(held_out(run_of_folder(Path(run_dir)), run))
        model, step = newest_model(run, Path(run_dir), weights=cast(Any, weights))
        losses = [mean_loss(model, run, file) for file in files]
        if len(losses) > 1:
            losses.append(total(losses))
    return Evaluation(run.name, step, str(run.mesh), tuple(losses))


@entrance
def sample(
    run_dir: PathLike,
    prompts: str | Iterable[str],
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    chat: bool = False,
    mesh: MeshLike | None = None,
    devices: int | None = None,
    batch: int | None = None,
    seq_len: int | None = None,
    weights: Literal["last", "ema"] | None = None,
) -> list[str]:
    """Return a text after each prompt, from a trained model.

    >>> import scaling as sc
    >>> texts = sc.sample("runs/tiny", ["The", "A"], tokens=4, temperature=0)   # doctest: +SKIP
    >>> len(texts)                                                              # doctest: +SKIP
    2

    Args:
        prompts: how each text begins.
        tokens: tokens to add at most, bytes of a byte-level run; a text ends before where it, or
            the turn of a chat, ends.
        temperature: 0 is greedy; higher is more random.
        top_k: draw from the N likeliest tokens alone.
        top_p: draw from the fewest likeliest tokens that have this probability in all.
        seed: seed of the sampling.
        chat: the prompts are messages, and only the answers are given.
        mesh: axis sizes over data, fsdp, expert and tensor, whatever the run was trained on; None:
            all devices are fsdp.

    Raises:
        InputError: whatever does not fit, before the model is read.
    """
    if weights is not None:
        check_keys([weights], ("last", "ema"), "--weights", "kind")
    with quiet():  # imports jax
        from scaling.training.sample import Sampling, encode_prompts, generate
        from scaling.training.trained_model import newest_model, open_run, tokenizer_of

        sampling = Sampling(tokens, temperature, top_k, top_p, seed)
        shape = None if mesh is None else as_mesh(mesh, AXES)
        run = open_run(Path(run_dir), shape, devices, batch, seq_len)
        tokenizer = tokenizer_of(run)
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        asked = encode_prompts(run, texts, tokenizer, chat)
        model, _ = newest_model(run, Path(run_dir), weights=cast(Any, weights))
        return generate(model, run, asked, sampling, tokenizer, chat)
