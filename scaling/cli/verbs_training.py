"""Verbs of runs: train one, sample from it, export it, show how its parameters are cut."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from scaling.cli.verbs_about import about


def train(
    run: Positional[str],
    mesh: str | None = None,
    steps: int | None = None,
    run_dir: Path | None = None,
    resume: bool = False,
    devices: int | None = None,
    record_profile: str | None = None,
    restarts: int = 0,
    stopped_code: int = 0,
    init: Path | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
) -> int:
    """Train a run.

    Example: scaling train demo --mesh data=2,fsdp=2,tensor=2 --devices 8

    Args:
        run: recipe name, file.py:function, or run.json.
        mesh: axis sizes such as data=2,fsdp=4; replaces the run's mesh. Without either, all
            devices are fsdp.
        steps: train to this step instead of the run's.
        run_dir: where everything is written (default: runs/NAME).
        resume: continue from the newest checkpoint in the run folder.
        devices: number of fake host devices, where no accelerator is present.
        record_profile: FROM:TO, steps to record with jax.profiler.
        restarts: start again from the last checkpoint after a crash, up to this many times.
        stopped_code: exit code where a signal stopped the run before its end, for launchers that
            take 0 for the end.
        init: safetensors weights to begin with, in Hugging Face's names: a folder or one file. With
            --resume the checkpoint is taken instead.
        tensorboard: also write TensorBoard events.
        wandb: also log to Weights & Biases.
    """
    from scaling.cli.train import TrainArguments, train_command

    sinks = tuple(n for n, on in (("tensorboard", tensorboard), ("wandb", wandb)) if on)
    given = TrainArguments(
        *(run, mesh, steps, run_dir, resume, devices, record_profile, restarts, sinks),
        *(stopped_code, init),
    )
    return train_command(given)


def sample(
    run_dir: Positional[Path],
    prompt: str,
    tokens: int = 200,
    temperature: float = 0.8,
    seed: int = 0,
) -> int:
    """Print text from a checkpoint.

    Example: scaling sample runs/demo --prompt "def "

    Args:
        run_dir: folder of a byte-level run.
        prompt: how the text begins.
        tokens: bytes to add.
        temperature: 0 is greedy; higher is more random.
        seed: of the sampling.
    """
    from scaling.train.sample import generate, load_model

    run, model = load_model(run_dir)
    print(generate(model, prompt, run.batch.seq_len, tokens, temperature, seed))
    return 0


def export(run_dir: Positional[Path], output: Path, dtype: Literal["fp32", "bf16"] = "fp32") -> int:
    """Write a checkpoint as safetensors in Hugging Face's names, with its config.json.

    Example: scaling export runs/demo --output demo-weights

    Args:
        run_dir: folder of a run.
        output: folder to write; must be empty or new.
        dtype: fp32 keeps every bit, bf16 rounds to nearest.
    """
    from scaling.cli.export import export_command

    return export_command(run_dir, output, dtype)


def sharding(
    run: Positional[str], mesh: str | None = None, devices: int | None = None, json: bool = False
) -> int:
    """Show every parameter's shape, spec and bytes per device on a mesh; needs no devices.

    Example: scaling sharding llama3-70b --mesh fsdp=64,tensor=8

    Args:
        run: recipe name, file.py:function, or run.json.
        mesh: axis sizes; replaces the run's mesh. Without either, `devices` are fsdp.
        devices: number of devices; must be the mesh's, where one is given (default: 1).
        json: print one JSON document instead of a table.
    """
    from scaling.cli.sharding import sharding_command

    with about(run):
        return sharding_command(run, mesh, devices, json)
