"""The model of a run folder, or of Hugging Face's files, on any mesh of the devices here.

    run = on_mesh(run_of_folder(folder), MeshShape(fsdp=4, tensor=2))
    model, step = newest_model(run, folder)

It is used over data, fsdp, expert and tensor, whatever mesh it was trained on: sequences and layers
stay whole, and the stream between blocks is not cut over tensor. Experts have room for every token,
so that a result does not depend on what is computed beside it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jax

from scaling.meshes.devices import present_mesh, use_host_devices
from scaling.meshes.errors import InputError, check_range, reworded
from scaling.meshes.rules import check_divisible
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters
from scaling.models.adapters import merged
from scaling.models.config import with_positions
from scaling.models.transformer import Transformer
from scaling.run import Batch, Pipeline, Run, Sharding, read_run
from scaling.run.parallelism.checks import check_device, check_trainable
from scaling.run.parallelism.rules import rules_for
from scaling.run.recipes import resolve
from scaling.run.reference import reference_model
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.read import run_of_checkpoint
from scaling.training.data.tokenizer import BYTES, FILE, Tokenizer, open_tokenizer
from scaling.training.execution import execution_on
from scaling.training.launch.gpu import avoid_absent_gpus, reserve_gpu_memory
from scaling.training.run_folder.folder import TOKENIZER
from scaling.training.run_folder.steps import latest_step, step_path
from scaling.training.step import abstract_state
from scaling.training.weights.imported import import_weights, open_weights
from scaling.training.weights.naming import from_dict, reorder_layers, to_dict

LEAST_TOKENS = 4096  # at once on a device: without gradients they take little memory
Weights = Literal["last", "ema"]  # those of the last step, or their running mean


def run_of_folder(folder: Path) -> Run:
    """The run of a folder, with the folder's copy of the tokenizer.

    For a Hugging Face model it is a run of that model.

    Raises:
        InputError: neither run.json nor config.json; a model of Hugging Face's without tokenizer.
    """
    of_ours, copy = (folder / "run.json").exists(), folder / TOKENIZER
    if not of_ours and not (folder / "config.json").exists():
        raise InputError(
            f"{folder} is not a run folder: it has no run.json (nor a Hugging Face config.json)"
        )
    run = resolve(str(folder))
    if not of_ours and run.model.vocab_size != BYTES.size:  # of bytes `scaling export` writes none
        copy = folder
        if not (folder / FILE).is_file():
            raise InputError(f"{folder} has no {FILE}: put that of its model there")
    if copy.is_dir():
        run = replace(run, train=replace(run.train, tokenizer=str(copy)))
    return run


def check_teacher(run: Run) -> None:
    """Raise InputError for a teacher of `train.loss` without weights of its shape, if there is one.

    Reads no weights and needs no devices.
    """
    loss = run.train.loss
    if loss is None or loss.teacher is None:
        return
    folder, model = Path(loss.teacher), reference_model(run)
    with reworded("train.loss.teacher: "):
        there = run_of_folder(folder)
        saves = folder / "checkpoints"
        if not (folder / "run.json").exists():
            open_weights(folder, there.model)
        elif (step := latest_step(saves)) is None:
            raise InputError(f"{folder} has no finished checkpoint; train it first")
        elif saved := run_of_checkpoint(step_path(saves, step)):
            there = read_run(saved)
        if there.model != model:
            assert model is not None
            here, size = (count_parameters(m).total for m in (model, there.model))
            raise InputError(
                f"the weights in {folder} are of another model ({size:,} parameters) than its "
                f"description or train.loss.teacher_model ({here:,})"
            )


def tokenizer_of(run: Run) -> Tokenizer:
    """The tokenizer of a run's text.

    Raises:
        InputError: it was trained on ids whose tokenizer the run does not name.
    """
    data, vocab_size = run.train.data, run.model.vocab_size
    files = [data] if isinstance(data, str) else data
    ids = next((file for file in files if file.endswith(".bin")), None)
    if run.train.tokenizer is None and (ids or vocab_size < BYTES.size):
        raise InputError(
            f"{run.name} was trained on tokens of {ids or data!r} (vocab_size {vocab_size}); text "
            "needs train.tokenizer, the tokenizer that made them"
        )
    return open_tokenizer(run.train.tokenizer, vocab_size)


def on_mesh(
    run: Run, mesh: MeshShape | None, batch: int | None = None, seq_len: int | None = None
) -> Run:
    """The run as its model is used on `mesh`, `batch` sequences at once; without remat.

    Args:
        mesh: None: all devices as fsdp.
        batch: None: on each device as many as in a microbatch of training, or `LEAST_TOKENS`.
        seq_len: tokens that the model sees at most; None: as in training.

    Raises:
        InputError: the mesh has other axes or more devices than there are, or does not divide the
            model or the batch; more tokens than learned positions.
    """
    mesh = mesh or MeshShape(fsdp=jax.device_count())
    if mesh.context > 1 or mesh.stage > 1:
        raise InputError(
            f"mesh {mesh}: a trained model is used over data, fsdp, expert and tensor, whatever it "
            "was trained on; leave context and stage out"
        )
    if mesh.devices > jax.device_count():
        raise InputError(
            f"mesh {mesh} needs {mesh.devices} devices, but {jax.device_count()} are present; use "
            f"fewer, or fake host devices: --devices {mesh.devices}"
        )
    trained, seq_len = run.batch, run.batch.seq_len if seq_len is None else seq_len
    check_range("--seq-len", seq_len, 1)
    if batch is None:
        shards = trained.microbatches * run.mesh.batch_shards if run.mesh else trained.global_batch
        each = max(trained.global_batch // shards, LEAST_TOKENS // seq_len, 1)
        batch = each * mesh.batch_shards
    check_range("--batch", batch, 1)
    check_divisible("--batch", batch, ("data", "fsdp", "expert"), mesh)
    moe = run.model.moe
    dropless = moe and replace(moe, capacity_factor=None, device_capacity_factor=None)
    train = replace(run.train, loss=None)
    run = replace(
        run,
        train=train,
        precision=replace(
            run.precision, frozen="fp32" if train.trains_all else run.precision.frozen
        ),
        model=replace(run.model, moe=dropless),
        batch=Batch(batch, seq_len),
        mesh=mesh,
        device_order=mesh.device_order,
        sharding=Sharding(sequence_parallel=False),
        pipeline=Pipeline(),
        remat="none",
    )
    with_positions(run.model, run.batch.seq_len)
    check_trainable(run, mesh, "a trained model")
    rules_for(run, mesh)
    return run


def open_run(
    folder: Path,
    mesh: MeshShape | None = None,
    devices: int | None = None,
    batch: int | None = None,
    seq_len: int | None = None,
) -> Run:
    """`on_mesh` of `run_of_folder`, before jax has made devices; fake ones where they are wanted.

    Raises:
        InputError: as both.
    """
    avoid_absent_gpus()
    reserve_gpu_memory()
    run = run_of_folder(folder)
    if devices is not None:
        use_host_devices(devices)
    return on_mesh(run, mesh, batch, seq_len)


def newest_model(
    run: Run,
    folder: Path,
    devices: Sequence[jax.Device] | None = None,
    weights: Weights | None = None,
) -> tuple[Transformer, int | None]:
    """The parameters of the newest intact checkpoint on the run's mesh, and its step.

    A folder without run.json gives those of its safetensors files, and None. Adapters are added to
    their matrices.

    Args:
        devices: as many as the mesh has; None: the first ones.
        weights: None: the running mean if the run keeps one.

    Raises:
        InputError: there is no checkpoint or running mean, it is of another model, or the devices
            cannot compute in the run's format.
    """
    if weights == "ema" and run.train.ema is None:
        raise InputError(f"{folder} keeps no running mean (train.ema is null); use --weights last")
    mesh = run.mesh or MeshShape()
    devices = jax.devices()[: mesh.devices] if devices is None else devices
    check_device(run, devices[0])
    execution = execution_on(devices[0], run, rules_for(run, mesh))
    with jax.set_mesh(present_mesh(mesh, devices)):
        like = abstract_state(run, execution)
        if not (folder / "run.json").exists():
            return import_weights(folder, like.params), None
        # Moments of the optimiser stay on the disk, as do parameters that have a running mean.
        state = to_dict(like)
        mean = {n: x for n, x in state.items() if n.startswith("ema/") and weights != "last"}
        has_mean = lambda name: name.replace("params/", "ema/", 1) in mean
        last = {n: x for n, x in state.items() if n.startswith("params/") and not has_mean(n)}
        needed = {"step": state["step"], **last, **mean}
        with Checkpoints(folder / "checkpoints") as checkpoints:
            if latest_step(checkpoints.folder) is None:
                raise InputError(f"{folder} has no finished checkpoint; train the run first")
            arrays, _, saved = checkpoints.restore(needed, partial=True)
        step = int(arrays["step"])
        arrays = {n.partition("/")[2]: x for n, x in arrays.items()}
        params = from_dict(like.params, reorder_layers(arrays, saved, run))
        return params if run.train.lora is None else jax.jit(merged)(params), step
