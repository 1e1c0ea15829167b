"""What ZeRO stage 1 moves over fsdp instead of what stage 3 moves (`communication.table`).

    W L + E + P: matrices of all layers, tables (a tied one once), position table

    kind             elements       why
    all-gather       W L + E + P    gathered once per step, in compute format
    reduce-scatter   W L + E + P    after the last microbatch; float32 if it is a sum

In a pipeline a device has the layers of its stage, L / S, and gradients are sums over ticks, so
float32 always. Gradients of weights that meet each tensor device's own tokens (a table, positions,
routers, matrices of latents) are all-reduced over tensor before they are scattered: whole, in each
microbatch, for each use. Routers are float32. The shards of gradients are summed over the other
replicas as in stage 3.
"""

from collections.abc import Iterator

from scaling.analytic.communication.transfers import FLOAT32, StepSizes, Transfer


def gathers_once(step: StepSizes) -> bool:
    """True if a step all-gathers its weights once (ZeRO stage 1), not for each product."""
    return step.shape.fsdp > 1 and step.run.sharding.zero_stage == 1


def zero_1_lines(
    step: StepSizes,
    what: str,
    elements: float,
    stored: float,
    uses: float,
    over_tensor: bool,
    itemsize: int | None = None,
) -> Iterator[Transfer]:
    """The table above for `stored` equal weights.

    Args:
        elements: of one of them on one device, whole over fsdp.
        uses: gradients of them per step, counted where they arise; in a pipeline in each tick.
        over_tensor: whether these are summed over tensor.
        itemsize: bytes of an element; None: those of the compute format.
    """
    fsdp, size = step.over("fsdp"), elements * (itemsize or step.itemsize)
    yield Transfer(fsdp, "all-gather", size, stored, what)
    if over_tensor:
        yield Transfer(step.over("tensor"), "all-reduce", size, uses, what)
    is_sum = step.shape.stage > 1 or step.microbatches > 1
    yield Transfer(fsdp, "reduce-scatter", elements * FLOAT32 if is_sum else size, stored, what)
