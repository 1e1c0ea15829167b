"""What ZeRO stages 1 and 2 move over fsdp instead of what stage 3 does
(`analytic.communication.table`).

    W L + E + P: matrices of all layers, tables (a tied one once), positions; M microbatches

    stage  kind             elements             why
    1, 2   all-gather       W L + E + P          held whole for the step, in compute format
    1      reduce-scatter   W L + E + P          after the last microbatch; float32 if it is a sum
    2      reduce-scatter   M (W L + E + P)      each gradient where it arises

In a pipeline a device holds the layers of its stage, L / S. Gradients of stage 1 are sums over
ticks, so float32 always; stage 2 scatters them in each tick, and those of a tied table in each
microbatch twice, for input and head.

What meets each tensor device's own tokens (a table, positions, routers, matrices of latents) is
summed over tensor before it is scattered: whole, in each microbatch, for each use. Routers are held
in float32. The shards of gradients are summed over the other replicas as in stage 3.
"""

from collections.abc import Iterator

from scaling.analytic.communication.transfers import FLOAT32, Asked, Line

HELD = (1, 2)  # stages that hold whole matrices during a step


def holds(step: Asked) -> bool:
    """Whether a step holds matrices that are whole over fsdp."""
    return step.shape.fsdp > 1 and step.run.sharding.zero_stage in HELD


def held_lines(
    step: Asked,
    what: str,
    elements: float,
    stored: float,
    uses: float,
    over_tensor: bool,
    itemsize: int | None = None,
) -> Iterator[Line]:
    """The table above for `stored` equal weights.

    Args:
        elements: of one of them on one device, whole over fsdp.
        uses: gradients of them per step, counted where they arise; in a pipeline in each tick.
        over_tensor: whether these are summed over tensor.
        itemsize: bytes of an element; None: those of the compute format.
    """
    fsdp, size, M = step.over("fsdp"), elements * (itemsize or step.itemsize), step.microbatches
    yield Line(fsdp, "all-gather", size, stored, what)
    if over_tensor:
        yield Line(step.over("tensor"), "all-reduce", size, uses, what)
    stages = step.shape.stage > 1
    if step.run.sharding.zero_stage == 2:
        yield Line(fsdp, "reduce-scatter", size, uses if stages else M * stored, what)
    else:
        summed = elements * FLOAT32 if stages or M > 1 else size
        yield Line(fsdp, "reduce-scatter", summed, stored, what)
