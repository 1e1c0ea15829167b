"""FLOPs of matrix products that a step executes beyond those that its model asks for."""

from scaling.meshes.shape import MeshShape
from scaling.models.accounting import train_flops
from scaling.models.accounting.expert_buffers import buffer_rows, tile_count, tile_size
from scaling.run import Run
from scaling.run.parallelism.pipeline import pipeline_schedule

BUFFERS = "empty rows of the experts' buffers are multiplied too"
TILES = "experts' rows are multiplied in tiles that are filled up: grouped products have no kernel"


def flops_in_ticks(run: Run, shape: MeshShape, groups: dict[str, float]) -> dict[str, float]:
    """FLOPs of a step as a pipeline executes them: in bubble ticks too.

    `groups`: `scaling.models.accounting.Flops.groups` of all devices, without a pipeline.
    """
    overhead = pipeline_schedule(run, shape).overhead
    return {name: n if name == "head" else overhead * n for name, n in groups.items()}


def buffer_flops(run: Run, shape: MeshShape) -> dict[str, float]:
    """FLOPs on one device beyond those asked for, by reason: of the experts' fixed buffers.

    Batched products take empty rows along. Grouped ones do where they have no kernel
    (`scaling.models.moe.grouped_matmul`).
    """
    moe = run.model.moe
    if moe is None:
        return {}
    batch = run.batch
    train = train_flops(run.model, batch.global_batch, batch.seq_len, run.remat).components
    experts = sum(flops for name, flops in train.items() if name.startswith("expert_"))
    experts *= pipeline_schedule(run, shape).overhead / shape.devices
    tokens = batch.tokens // batch.microbatches // shape.batch_shards // shape.context
    filled = tokens * moe.experts_per_token
    rows, local = buffer_rows(moe, tokens, shape.expert), moe.n_experts // shape.expert
    if moe.capacity_factor is not None:
        return {BUFFERS: experts * (rows / filled - 1)}
    tile = tile_size(rows, local)
    return {TILES: experts * (tile_count(rows, local, tile) * tile / filled - 1)}
