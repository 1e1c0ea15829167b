"""Named runs, and how a run is named on the command line.

Every model preset is a recipe of the same name. A run is a recipe name, `file.py:function`
(a function without arguments that returns a `Run`), a run.json or a Hugging Face config.json, or
the folder of one. The defaults of a recipe fit the memory of its `example`. Its model is that of
the preset and of the config.json of the same name: experts drop no token unless the user says so.
"""

import difflib
import math
import os
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar

from scaling.meshes.errors import CLOSE, InputError, whole_number
from scaling.meshes.reading import read_json
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters
from scaling.models.config import ModelConfig, with_positions
from scaling.models.huggingface.read import read_config
from scaling.models.presets import preset, preset_names
from scaling.run import Batch, Precision, Run, Train, read_run
from scaling.run.own import OwnRun
from scaling.run.user_code import described, run_user_code, user_function

Trained = TypeVar("Trained", Run, OwnRun)
# Name of a preset, or of all that begin like it -> (sequences, tokens per sequence) of one step,
# where the training of the model itself used or implies one.
BATCHES = {
    "gpt2-124m": (512, 1024),  # 0.5 M tokens: Radford et al. 2019, batch 512
    "gpt2-1.5b": (512, 1024),
    "gpt-305m": (40, 512),  # 4 sequences on each of ten RTX 3090, as in its measured benchmark
    "gpt3-175b": (1536, 2048),  # 3.2 M tokens: Brown et al. 2020, table 2.1
    "deepseek-v2": (9216, 4096),  # 37.7 M tokens: arXiv 2405.04434, section 3.1.2
    "gpt-oss*": (1024, 4096),  # 4.2 M tokens, assumed
    "deepseek-v3": (15360, 4096),  # 62.9 M tokens: arXiv 2412.19437, section 4.2
    "mixtral-8x7b": (1024, 4096),  # 4 M tokens, assumed: arXiv 2401.04088 states none
    "gpt3-1.3b*": (512, 2048),  # 1 M tokens, and so on: Brown et al. 2020, table 2.1
    "gpt3-2.7b*": (512, 2048),
    "gpt3-6.7b*": (1024, 2048),
    "gpt3-13b*": (1024, 2048),
    "llama2*": (1024, 4096),  # 4 M tokens: arXiv 2307.09288, table 1
    "llama3*": (512, 8192),  # 4.2 M tokens: arXiv 2407.21783, table 4, first stage at 8k tokens
    "llama4*": (1024, 8192),  # 8.4 M tokens, assumed; sequences of a chunk
    "qwen2.5*": (1024, 4096),  # 4,096-token sequences: arXiv 2412.15115, section 3; 4.2 M assumed
    "qwen3*": (1024, 4096),  # 4.2 M tokens; 4,096-token sequences: arXiv 2505.09388, section 3.2
}
KNOWN = ("tiny", "demo", "gpt2-124m", "llama3-8b", "qwen3-8b", "mixtral-8x7b", "deepseek-v3")
LARGE = 1_000_000_000  # parameters from which a recipe recomputes cheap activations by default


@dataclass(frozen=True)
class Example:
    """A cluster and mesh whose memory the defaults of recipes fit."""

    nodes: int
    mesh: MeshShape
    cluster: str = "dgx-h100"
    shard_tokens: int = 8192  # of one microbatch, on each batch shard
    remat: Literal["selective", "full"] = "selective"


# (parameters below which it is taken, example)
EXAMPLES = (
    (20e9, Example(8, MeshShape(fsdp=64))),
    (100e9, Example(64, MeshShape(fsdp=64, tensor=8), shard_tokens=16384)),
    (600e9, Example(128, MeshShape(fsdp=128, tensor=8))),
    (math.inf, Example(256, MeshShape(fsdp=256, tensor=8))),
)
EXPERT_EXAMPLES = (
    (100e9, Example(8, MeshShape(fsdp=8, expert=8), "dgx-h100", 4096, "full")),
    (300e9, Example(64, MeshShape(fsdp=64, expert=8), "dgx-h100", 4096, "full")),
    (math.inf, Example(128, MeshShape(fsdp=64, expert=16), "dgx-h100", 4096, "full")),
)
OTHER_EXAMPLES = {
    **dict.fromkeys(("tiny", "tiny-moe", "demo"), Example(1, MeshShape(fsdp=8))),
    "gpt-305m": Example(1, MeshShape(data=10), "rtx3090-10"),
}


def tiny() -> Run:
    """Two small layers: seconds per run, for tests."""
    return Run(
        name="tiny",
        model=preset("tiny"),
        batch=Batch(global_batch=8, seq_len=32),
        precision=Precision(compute="fp32"),
        train=Train(steps=20, learning_rate=1e-2, warmup_steps=5, eval_every=10, eval_batches=1),
    )


def demo() -> Run:
    """A byte-level model that learns Python's own sources in minutes on a laptop's CPU."""
    return Run(
        name="demo",
        model=preset("demo"),
        batch=Batch(global_batch=32, seq_len=128),
        precision=Precision(compute="fp32"),  # CPUs emulate bf16 slowly
        train=Train(
            steps=200,
            learning_rate=3e-3,
            warmup_steps=30,
            eval_every=100,
            eval_batches=4,
            checkpoint_every=100,
        ),
    )


def recipe(name: str) -> Run:
    """Return the recipe called `name`."""
    if name in SPECIAL:
        return SPECIAL[name]()
    if name not in preset_names():
        raise InputError(
            f"unknown recipe {name!r}, and no folder with a run.json or a Hugging Face "
            f"config.json; {_nearest_recipes(name)}"
        )
    return _with_defaults(name, preset(name))


def _nearest_recipes(name: str) -> str:
    """A phrase with the recipes of that name, whoever published it: meta-llama/Meta-Llama-3-8B."""
    plain = lambda text: re.sub(r"[^a-z0-9.]", "", text.rpartition("/")[2].lower())
    recipes = {plain(recipe): recipe for recipe in preset_names()}
    close = difflib.get_close_matches(plain(name), recipes, n=3, cutoff=CLOSE)
    if not close:
        more = len(recipes) - len(KNOWN)
        return f"known: {', '.join(KNOWN)} and {more} more (docs/reference.md)"
    first, *others = [recipes[one] for one in close]
    return f"did you mean {first!r}?" + (f" (or {', '.join(others)})" if others else "")


def _with_defaults(name: str, model: ModelConfig) -> Run:
    """Return a run of `model` with its family's batch, and the remat of its example if large."""
    batch = default_batch(name, model)
    model = with_positions(model, batch.seq_len)
    large = count_parameters(model).total >= LARGE
    remat = example(name, model).remat if large else "none"
    return Run(name=name, model=model, batch=batch, remat=remat)


def example(name: str, model: ModelConfig | None = None) -> Example:
    """Return the cluster and mesh that the defaults of the recipe `name` fit."""
    if name in OTHER_EXAMPLES:
        return OTHER_EXAMPLES[name]
    model = model or preset(name)
    size = count_parameters(model).total
    examples = EXPERT_EXAMPLES if model.moe else EXAMPLES
    return next(item for most, item in examples if size < most)


def default_batch(name: str, model: ModelConfig) -> Batch:
    """Return the batch of the recipe `name`, in microbatches that its example has memory for."""
    length = model.max_positions or 2048
    half_a_million = max(1, (1 << 19) // length), length  # tokens, as GPT-2
    stated = (batch for pattern, batch in BATCHES.items() if fnmatchcase(name, pattern))
    sequences, length = next(stated, half_a_million)
    target = example(name, model)
    local = max(1, sequences // target.mesh.batch_shards)
    least = -(-local * length // target.shard_tokens)
    count = next(n for n in divisors(local) if n >= min(least, local))
    return Batch(sequences, length, count)


def with_dividing_microbatches(run: Run, mesh: MeshShape) -> tuple[Run, list[str]]:
    """Return the run with default microbatches that divide the batch of a shard, and a note.

    Only a recipe's own default is lowered; other microbatches are left to the checks.
    """
    batch, shards = run.batch, mesh.batch_shards
    local = batch.global_batch // shards
    if batch.global_batch % shards or local % batch.microbatches == 0:
        return run, []
    if batch != default_batch(run.name, run.model):
        return run, []
    count = max(n for n in divisors(local) if n < batch.microbatches)
    note = (
        f"batch.microbatches is {count} instead of the recipe's {batch.microbatches}, which does "
        f"not divide the {local} sequence(s) of each of {shards} batch shards of mesh {mesh}"
    )
    return replace(run, batch=replace(batch, microbatches=count)), [note]


def resolve(text: str) -> Run:
    """Return the run that `text` names on the command line.

    Raises:
        InputError: no such recipe, file or function, or a run.json that does not describe a run.
    """
    if text in preset_names():  # also where a folder of that name holds a run
        return recipe(text)
    if ".py:" in text:
        path, make = user_function(text)
        run = run_user_code(path, make)
        if not isinstance(run, Run):
            raise InputError(
                f"{text} returned {described(run)}; return a scaling.Run, or, to train a model of "
                f"your own, take the mesh: def {make.__name__}(mesh)"
            )
        return run
    path = Path(text)
    if path.suffix == ".py":
        raise InputError(f"{text}: name the function in it that returns the run: {text}:FUNCTION")
    if path.suffix == ".json":
        return _from_json(path)
    if path.suffix == ".jsonl":
        raise InputError(f"{text}: a file of many runs can be predicted, not trained")
    for file in (path / "run.json", path / "config.json"):
        if os.path.exists(file):
            return _from_json(file)
    return recipe(text)


def _from_json(path: Path) -> Run:
    data = read_json(path)
    if _is_model_alone(data):
        name = path.absolute().parent.name if path.stem == "config" else path.stem
        return _with_defaults(name.lower() or "model", read_config(path))
    return read_run(data, str(path))


def _is_model_alone(data: Any) -> bool:
    """Whether a document is a Hugging Face config.json, which describes no batch."""
    return isinstance(data, dict) and "model_type" in data and "batch" not in data


def has_default_batch(text: str) -> bool:
    """Whether `resolve` gives what `text` names a batch by default: a recipe, or a config.json."""
    file = file_of(text)
    return file is None or (file.suffix == ".json" and _is_model_alone(read_json(file)))


def file_of(text: str) -> Path | None:
    """Return the file that `resolve` reads; None for a recipe."""
    if text in preset_names():
        return None
    path = Path(text.rpartition(":")[0] if ".py:" in text else text)
    if os.path.isdir(path):
        return path / ("run.json" if os.path.exists(path / "run.json") else "config.json")
    return path


def with_steps(run: Trained, steps: int | None) -> Trained:
    """Return the run with another number of steps (None: unchanged)."""
    if steps is None:
        return run
    return replace(run, train=replace(run.train, steps=whole_number("--steps", steps)))


SPECIAL = {
    "tiny": tiny,
    # Eight experts of which a token takes two
    "tiny-moe": lambda: replace(tiny(), name="tiny-moe", model=preset("tiny-moe")),
    "demo": demo,
}
