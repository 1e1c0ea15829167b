"""The limits of one mesh: what each of its axes needs, what the run has, and the margin.

    axis             needs, for its communication to be hidden
    data, fsdp       tokens per device
    tensor           at most so many devices
    expert           F of an expert
    context          tokens of a sequence on one device
    stage            microbatches for a small bubble

Groups are those of the mesh on its cluster: axes that leave a node share its NICs.
"""

from collections.abc import Iterator
from dataclasses import replace

from scaling.collectives.explain import binding_link
from scaling.meshes.placement import check_fits, groups_on
from scaling.meshes.rules import REPLICAS
from scaling.meshes.shape import MeshShape
from scaling.questions.answer import Answer, Value
from scaling.questions.axis_answers import (
    LimitsContext,
    context_limit,
    expert_limit,
    switch_limit,
    tensor_limit,
    weights_limit,
)
from scaling.questions.exchanges import BACKWARD, DATA, FORWARD, FSDP
from scaling.questions.mixed_limits import all_hops, best_split, bubble, hop
from scaling.run.parallelism.rules import weight_axes

NOTHING = "no axis of the mesh sums or gathers weights"
OF_WEIGHTS = {DATA.name: "data", FORWARD.name: "fsdp", BACKWARD.name: "fsdp"}
NEEDS = {  # part -> what its axis needs
    **dict.fromkeys(OF_WEIGHTS, "tokens per device, at least"),
    "tensor": "devices, at most",
    "expert": "width F, at least",
    "context": "tokens of a sequence on a device, at least",
}


def limits_of_mesh(s: LimitsContext, mesh: MeshShape) -> Answer:
    """Return the tokens per device from which all sums and gathers of weights are hidden.

    Raises:
        InputError: the mesh does not fit, or cannot be laid on the torus.
    """
    check_fits(mesh, s.cluster)
    # Experts are dealt out over `expert`, and have seen the tokens of all devices along it.
    own = ("expert",) if s.mlp.experts > 1 else ()
    is_free = lambda axis: getattr(mesh, axis) > 1 and axis not in own
    sharded = [axis for axis in weight_axes(s.run, mesh) if is_free(axis)]
    summed = [axis for axis in REPLICAS if is_free(axis) and axis not in sharded]
    parts = tuple(_axes(s, mesh, summed, sharded))
    along = {"data": summed, "fsdp": sharded}
    rows = tuple(_row(part, mesh, along, s) for part in parts if part.name in NEEDS)
    name = f"tokens per device from which mesh {mesh} is hidden"
    weights = [part for part in parts if part.name in OF_WEIGHTS]
    if not weights:
        return Answer(name, None, "tokens", binds=NOTHING, parts=parts, rows=rows)
    worst = max(weights, key=lambda part: float(part.ideal or 0))
    has = s.run.batch.tokens / mesh.devices
    verdict = f"{has / float(worst):.3g} times what {worst.name} needs by fitted figures"
    note = f"the run has {has:,.0f} tokens per device ({s.run.batch.tokens:,} in all): {verdict}"
    binds, parts = f"{worst.name}: {worst.binds}", (*worst.parts, *parts)
    return replace(worst, name=name, binds=binds, parts=parts, rows=rows, notes=(note,))


def _axes(
    s: LimitsContext, mesh: MeshShape, summed: list[str], sharded: list[str]
) -> Iterator[Answer]:
    """The axes over which weights are gathered and gradients summed, then those of activations."""
    groups = lambda *axes: groups_on(mesh, axes, s.cluster)
    has_experts = s.mlp.experts > 1 and mesh.expert > 1
    cut = MeshShape(tensor=mesh.tensor, stage=mesh.stage, expert=mesh.expert if has_experts else 1)
    beside_data, switched = replace(cut, fsdp=mesh.size(sharded)), None
    if summed:
        yield weights_limit(s, "data", groups(*summed), beside_data)
        switched = switch_limit(s, groups(*summed), beside_data)
    if sharded:
        yield from (weights_limit(s, over.name, groups(*sharded), cut, over) for over in FSDP)
    if switched is not None:
        yield switched
    batch = s.run.batch  # rows: of a microbatch, that one device multiplies with its weights
    rows = batch.tokens / batch.microbatches / mesh.batch_shards / mesh.context
    if mesh.tensor > 1:
        yield tensor_limit(s, "tensor", groups("tensor"), rows)
    if has_experts:
        yield expert_limit(s, "expert", groups("expert"), rows / mesh.tensor)
    if mesh.context > 1:
        yield context_limit(s, "context", groups("context"))
    if s.cluster.torus is not None and mesh.tensor > 1 and mesh.fsdp > 1:
        # The guide's optimum, where both axes lie in a slice: M rings of each as they are laid.
        links = [binding_link("all-gather", groups(axis), s.cluster) for axis in ("fsdp", "tensor")]
        if all(link.level.grid is not None for link in links):
            rings = [next(i.value for i in link.inputs if i.symbol == "M") for link in links]
            chips = mesh.fsdp * mesh.tensor
            yield from best_split(s, chips, mesh.devices / chips, *rings)
    if mesh.stage > 1:
        yield bubble(s, mesh.stage)
        yield (one := hop(s, mesh, rows))
        yield from all_hops(s, mesh.stage, one)


def _row(
    part: Answer, mesh: MeshShape, along: dict[str, list[str]], s: LimitsContext
) -> dict[str, Value]:
    """One axis: what it needs, what the run has, and how many times that is enough.

    `along` are the axes over which gradients are summed, "data", and weights sharded, "fsdp".
    """
    axis, needed = OF_WEIGHTS.get(part.name, part.name), float(part)
    axes = along.get(axis, [axis])
    has = {
        "tensor": float(mesh.tensor),
        "expert": float(s.mlp.inner),
        "context": s.run.batch.seq_len / mesh.context,
    }.get(axis, s.run.batch.tokens / mesh.devices)
    margin = (needed / has if axis == "tensor" else has / needed) if needed else None
    return {
        "axis": part.name.replace(axis, "+".join(axes), 1),
        "devices": mesh.size(axes),
        "link": part.binds,
        "needs": NEEDS[part.name],
        "textbook": part.ideal,
        "fitted": part.fitted,
        "has": has,
        "margin, fitted": margin,
    }
