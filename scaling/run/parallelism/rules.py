"""The rules that shard a run's tensors; every misfit is found here, before any device work.

Imports no jax: planning and the simulator use the same rules.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scaling.meshes.errors import InputError, reworded
from scaling.meshes.rules import DEFAULT, Rules, check_divisible, make_rules
from scaling.meshes.shape import AnyMesh, AxisSize, MeshShape, check_devices
from scaling.models.accounting.matrices import expert_width, n_dense_layers
from scaling.models.config import ModelConfig
from scaling.run import OURS, Run
from scaling.run.parallelism.pipeline import check_stages
from scaling.run.parallelism.sequence import check_chunks


def resolved_mesh(run: Run, devices: int | None) -> MeshShape:
    """The run's mesh, or all `devices` as fsdp where it names none.

    Where the devices present are not known (None), the mesh is taken as it is.

    Raises:
        InputError: the mesh does not use exactly the devices present.
    """
    if run.mesh is None:
        return MeshShape(fsdp=devices or 1, device_order=run.device_order)
    if devices is not None:
        check_devices(run.mesh, devices)
    return run.mesh


def is_sequence_parallel(run: Run, mesh: MeshShape) -> bool:
    """True if the residual stream is sharded over `tensor`."""
    setting = run.sharding.sequence_parallel
    return (mesh.tensor > 1 and run.software == OURS) if setting is None else setting


def zero_stage(run: Run, mesh: MeshShape) -> int:
    """The ZeRO stage of a run on `mesh`: as it says; else 1 in the trainer's pipelines, where 3
    would gather weights again in every iteration, and 3 without stages."""
    if run.sharding.zero_stage is not None:
        return run.sharding.zero_stage
    return 1 if run.software == OURS and mesh.stage > 1 and weight_shards(run, mesh) > 1 else 3


def with_zero_stage(run: Run, mesh: MeshShape) -> Run:
    """The run with its ZeRO stage on `mesh` written down."""
    return replace(run, sharding=replace(run.sharding, zero_stage=zero_stage(run, mesh)))


def rules_for(run: Run, mesh: MeshShape) -> Rules:
    """The sharding rules of `run` on `mesh`.

    Raises:
        InputError: heads, hidden units, d_model, layers, batch or sequence do not divide; the
            message has the numbers and the fix.
    """
    model = run.model
    replicated = ("vocab",) if model.vocab_size % mesh.tensor else ()
    sequences = run.batch.global_batch // (run.batch.microbatches * mesh.batch_shards)
    cuts = weight_axes(run, mesh), latent_axes(run, mesh)
    rules = make_rules(mesh, is_sequence_parallel(run, mesh), replicated, sequences or 1, *cuts)
    _check_batch(run, mesh)
    _check_sequence(run, rules)
    for name, size, axis in _sharded_dims(model):
        check_divisible(f"model.{name}", size, (axis,), mesh)
    check_stages(run, rules)
    return rules


def weight_axes(run: Run, mesh: AnyMesh) -> tuple[str, ...]:
    """The mesh axes that shard d_model of weights: fsdp; in our trainer context and expert as well.

    One that does not divide d_model together with the others copies the weights, as `data` does.
    The same for all meshes of one `scaling.analytic.step.structure`.
    """
    if run.software != OURS:
        return ("fsdp",)
    return _dividing(run.model.d_model, mesh, ("fsdp", "context", "expert"))


def latent_axes(run: Run, mesh: AnyMesh) -> tuple[str, ...]:
    """Those of `weight_axes` that shard the matrices whose inputs are latents, of a length of their
    own; without latents the same."""
    mla, axes = run.model.mla, weight_axes(run, mesh)
    if mla is None or run.software != OURS:
        return axes
    lengths = math.gcd(mla.q_lora_rank or 0, mla.kv_lora_rank)  # what divides it divides both
    return _dividing(lengths, mesh, [a for a in ("fsdp", "context", "expert") if a in axes])


def _dividing(divided: int, mesh: AnyMesh, wanted: Iterable[str]) -> tuple[str, ...]:
    """fsdp, and those axes of which each divides a length together with those before it."""
    axes, parts = list[str](), 1
    for axis in wanted:
        size = getattr(mesh, axis)
        size = size if isinstance(size, int) else int(size[0])
        if axis == "fsdp" or divided % (parts * size) == 0:
            axes, parts = [*axes, axis], parts * size
    return tuple(axis for axis in DEFAULT["embed"] if axis in axes)


def weight_shards(run: Run, mesh: AnyMesh) -> AxisSize:
    """Shards of a dense weight along these axes."""
    return mesh.size(weight_axes(run, mesh))


def rows_of_shard(run: Run, mesh: MeshShape) -> int:
    """What the microbatches of a batch shard share out: its sequences, or pairs of them."""
    return -(-run.batch.global_batch // (mesh.batch_shards * (2 if run.train.pairs else 1)))


def _sharded_dims(model: ModelConfig) -> Iterator[tuple[str, int, str]]:
    """Name and size of each dim that must divide, and its mesh axis."""
    yield "n_heads", model.n_heads, "tensor"
    yield "n_kv_heads", model.n_kv_heads, "tensor"
    if n_dense_layers(model):
        yield "d_ff", model.d_ff, "tensor"
    if model.moe:
        yield "moe.d_ff_expert", expert_width(model), "tensor"
        yield "moe.n_experts", model.moe.n_experts, "expert"
    yield "d_model", model.d_model, "fsdp"
    if model.mla:
        yield "mla.q_lora_rank", model.mla.q_lora_rank or 0, "fsdp"
        yield "mla.kv_lora_rank", model.mla.kv_lora_rank, "fsdp"


def notes(run: Run, rules: Rules) -> list[str]:
    """Lines for the user about tensors that the rules replicate against the mesh."""
    mesh, vocab, lines = rules.mesh, run.model.vocab_size, []
    if not rules.axes("vocab") and mesh.tensor > 1:
        padded = -(-vocab // mesh.tensor) * mesh.tensor
        lines.append(
            f"model.vocab_size={vocab} is not divisible by tensor={mesh.tensor}: the embedding and "
            f"the output head stay whole on each tensor device; vocab_size={padded} would cut them"
        )
    cut = {"embed": (f"d_model={run.model.d_model}", "weights")}
    if mla := run.model.mla:
        ranks = f"mla.kv_lora_rank={mla.kv_lora_rank}"
        ranks += f" or q_lora_rank={mla.q_lora_rank}" if mla.q_lora_rank else ""
        cut["latent"] = ranks, "the matrices that take latents"
    for axis in DEFAULT["embed"]:
        whole = next((dim for dim in cut if axis not in rules.axes(dim)), None)
        if whole and (size := getattr(mesh, axis)) > 1:
            product = " x ".join(f"{a}={getattr(mesh, a)}" for a in (*rules.axes(whole), axis))
            lines.append(
                f"model.{cut[whole][0]} is not divisible by {product}: each of the {size} devices "
                f"along {axis} stores the same shards of {cut[whole][1]}"
            )
    return lines


def _check_batch(run: Run, mesh: MeshShape) -> None:
    batch = run.batch
    check_divisible("batch.global_batch", batch.global_batch, ("data", "fsdp", "expert"), mesh)
    local = batch.global_batch // mesh.batch_shards
    if run.train.pairs and local % (2 * batch.microbatches):
        raise InputError(
            f"batch.global_batch={batch.global_batch} sequences, of which dpo takes two for a "
            f"pair, are not a multiple of 2 x {mesh.batch_shards} batch shards (data x fsdp x "
            f"expert) x {batch.microbatches} microbatches"
        )
    if local % batch.microbatches:
        raise InputError(
            f"batch.global_batch={batch.global_batch} gives {local} sequences to each of "
            f"{mesh.batch_shards} batch shards (data x fsdp x expert), not divisible by "
            f"batch.microbatches={batch.microbatches}; use global_batch a multiple of "
            f"{mesh.batch_shards * batch.microbatches}"
        )


def _check_sequence(run: Run, rules: Rules) -> None:
    axes = rules.axes("residual")
    if rules.mesh.context > 1:
        check_chunks(run, rules.mesh, "tensor" in axes)
        return
    if "tensor" not in axes:
        return
    with reworded(after="; or switch sharding.sequence_parallel off"):
        check_divisible("batch.seq_len", run.batch.seq_len, axes, rules.mesh)
