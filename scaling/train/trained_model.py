"""The model of a run folder, on one device whatever mesh it was trained on."""

from dataclasses import replace
from pathlib import Path

import jax

from scaling.meshes.devices import present_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.transformer import Transformer
from scaling.optimizers import optimizer_of
from scaling.parallelism.rules import rules_for
from scaling.run import Run, load_run
from scaling.train.checkpoint.checkpoints import Checkpoints
from scaling.train.checkpoint.layer_order import reorder_layers
from scaling.train.checkpoint.steps import latest_step
from scaling.train.execution import execution_for, flash_platform
from scaling.train.run_folder import TOKENIZER
from scaling.train.step import abstract_state
from scaling.weights.naming import from_dict, to_dict


def run_of_folder(folder: Path) -> Run:
    """The run of a folder, put on one device, with the folder's copy of its tokenizer.

    Raises:
        InputError: no run.json.
    """
    if not (folder / "run.json").exists():
        raise InputError(f"{folder} is not a run folder: it has no run.json")
    run = load_run(folder / "run.json")
    if (folder / TOKENIZER).is_dir():
        run = replace(run, train=replace(run.train, tokenizer=str(folder / TOKENIZER)))
    return replace(run, mesh=MeshShape())


def newest_model(run: Run, folder: Path, device: jax.Device | None = None) -> Transformer:
    """The parameters of a run's newest intact checkpoint, on one device (None: the first).

    Raises:
        InputError: there is none.
    """
    device = device or jax.local_devices()[0]
    execution = execution_for(run, rules_for(run, MeshShape()), flash_platform(device))
    with jax.set_mesh(present_mesh(MeshShape(), [device])):
        like = abstract_state(run.model, execution, run.train, optimizer_of(run))
        with Checkpoints(folder / "checkpoints") as checkpoints:
            if latest_step(checkpoints.folder) is None:
                raise InputError(f"{folder} has no finished checkpoint; train the run first")
            arrays, _, saved = checkpoints.restore(to_dict(like))
        return from_dict(like, reorder_layers(arrays, saved, run)).params
