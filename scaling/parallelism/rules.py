"""From a run to the rules that cut its tensors; every misfit is found here, before any device work.

Imports no jax: planning and the simulator use the same rules.
"""

from scaling.meshes.errors import InputError
from scaling.meshes.rules import Rules, check_divisible, make_rules
from scaling.meshes.shape import MeshShape, check_devices
from scaling.models.accounting.matrices import expert_width, n_dense_layers
from scaling.parallelism.pipeline import check_stages
from scaling.parallelism.sequence import check_chunks
from scaling.run import Run


def resolved_mesh(run: Run, devices: int | None) -> MeshShape:
    """The run's mesh, or all `devices` as fsdp where it names none.

    Args:
        devices: devices present; None: not known, the mesh is taken as it is.

    Raises:
        InputError: the mesh does not use exactly the devices present.
    """
    if run.mesh is None:
        return MeshShape(fsdp=devices or 1, device_order=run.device_order)
    if devices is not None:
        check_devices(run.mesh, devices)
    return run.mesh


def is_sequence_parallel(run: Run, mesh: MeshShape) -> bool:
    """Whether the residual stream is cut over `tensor` along the sequence."""
    asked = run.sharding.sequence_parallel
    return (mesh.tensor > 1 and run.software == "jax") if asked is None else asked


def rules_for(run: Run, mesh: MeshShape) -> Rules:
    """The sharding rules of `run` on `mesh`.

    Raises:
        InputError: heads, hidden units, d_model, layers, batch or sequence do not divide; the
            message has the numbers and the fix.
    """
    model = run.model
    whole = ("vocab",) if model.vocab_size % mesh.tensor else ()
    rules = make_rules(mesh, is_sequence_parallel(run, mesh), whole)
    _check_batch(run, mesh)
    _check_sequence(run, rules)
    check_divisible("model.n_heads", model.n_heads, ("tensor",), mesh)
    check_divisible("model.n_kv_heads", model.n_kv_heads, ("tensor",), mesh)
    if n_dense_layers(model):
        check_divisible("model.d_ff", model.d_ff, ("tensor",), mesh)
    if model.moe:
        width = expert_width(model)
        check_divisible("model.moe.d_ff_expert", width, ("tensor",), mesh)
        check_divisible("model.moe.n_experts", model.moe.n_experts, ("expert",), mesh)
    check_divisible("model.d_model", model.d_model, ("fsdp",), mesh)
    if model.mla:
        for name in ("q_lora_rank", "kv_lora_rank"):
            check_divisible(f"model.mla.{name}", getattr(model.mla, name) or 0, ("fsdp",), mesh)
    check_stages(run, rules)
    return rules


def notes(run: Run, rules: Rules) -> list[str]:
    """What the rules could not do as asked, in words: one line each, for the user to read."""
    if rules.axes("vocab") == () and rules.mesh.tensor > 1:
        tensor, vocab = rules.mesh.tensor, run.model.vocab_size
        padded = -(-vocab // tensor) * tensor
        return [
            f"model.vocab_size={vocab} is not divisible by tensor={tensor}: the embedding and the "
            f"output head stay whole on each tensor device; vocab_size={padded} would cut them"
        ]
    return []


def _check_batch(run: Run, mesh: MeshShape) -> None:
    batch = run.batch
    check_divisible("batch.global_batch", batch.global_batch, ("data", "fsdp", "expert"), mesh)
    local = batch.global_batch // mesh.batch_shards
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
    try:
        check_divisible("batch.seq_len", run.batch.seq_len, axes, rules.mesh)
    except InputError as error:
        raise InputError(f"{error}; or switch sharding.sequence_parallel off") from None
