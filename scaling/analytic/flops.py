"""FLOPs of matrix products that a step executes beyond those that its model asks for."""

from scaling.meshes.shape import MeshShape
from scaling.models.accounting import Flops, forward_flops, train_flops
from scaling.models.accounting.expert_buffers import buffer_rows, tile_count, tile_size
from scaling.run import Run
from scaling.run.parallelism.pipeline import computes_again, pipeline_schedule

BUFFERS = "empty rows of the experts' buffers are multiplied too"
TILES = "experts' rows are multiplied in tiles that are filled up: grouped products have no kernel"


def flops_in_ticks(run: Run, shape: MeshShape, groups: dict[str, float]) -> dict[str, float]:
    """FLOPs of a step as a pipeline executes them: in bubble ticks too, and ticks computed again.

    `groups`: `scaling.models.accounting.Flops.groups` of all devices, without a pipeline.
    """
    if shape.stage == 1:
        return groups
    overhead, again = pipeline_schedule(run, shape).overhead, _again(run, shape).groups
    in_ticks = lambda name, flops: overhead * (flops + again[name])
    return {name: n if name == "head" else in_ticks(name, n) for name, n in groups.items()}


def _again(run: Run, shape: MeshShape) -> Flops:
    """What ticks compute again, of all devices without a bubble: of a part of one layer not its
    last products."""
    forward = forward_flops(run.model, run.batch.global_batch, run.batch.seq_len)
    one_layer = run.model.n_layers == shape.stage * run.pipeline.virtual_stages
    runs = lambda name: computes_again(run, shape) and not (one_layer and name.endswith("down"))
    return Flops({name: flops * runs(name) for name, flops in forward.components.items()})


def buffer_flops(run: Run, shape: MeshShape) -> dict[str, float]:
    """FLOPs on one device beyond those asked for, by reason: of the experts' fixed buffers.

    Batched products take empty rows along. Grouped ones do where they have no kernel
    (`scaling.models.moe.grouped_matmul`).
    """
    moe = run.model.moe
    if moe is None:
        return {}
    batch, again = run.batch, _again(run, shape).components
    train = train_flops(run.model, batch.global_batch, batch.seq_len, run.remat).components
    experts = sum(train[name] + again[name] for name in train if name.startswith("expert_"))
    experts *= pipeline_schedule(run, shape).overhead / shape.devices
    tokens = batch.tokens // batch.microbatches // shape.batch_shards // shape.context
    filled = tokens * moe.experts_per_token
    rows, local = buffer_rows(moe, tokens, shape.expert), moe.n_experts // shape.expert
    if moe.capacity_factor is not None:
        return {BUFFERS: experts * (rows / filled - 1)}
    tile = tile_size(rows, local)
    return {TILES: experts * (tile_count(rows, local, tile) * tile / filled - 1)}
