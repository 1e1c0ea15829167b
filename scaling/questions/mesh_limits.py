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
    tensor_limit,
    weights_limit,
)
from scaling.questions.block import WeightShards
from scaling.questions.exchanges import BACKWARD, FORWARD
from scaling.questions.mixed_limits import best_split, bubble, hop
from scaling.questions.switch_limits import switch_limit

NOTHING = "no axis of the mesh sums or gathers weights"


def limits_of_mesh(s: LimitsContext, mesh: MeshShape) -> Answer:
    """Return the tokens per device from which all sums and gathers of weights are hidden.

    Raises:
        InputError: the mesh does not fit, or cannot be laid on the torus.
    """
    check_fits(mesh, s.cluster)
    own = s.run.batch.tokens / mesh.devices
    weights = list(_weights(s, mesh))
    parts = [*weights, *_others(s, mesh)]
    rows = tuple(_row(part, mesh, s) for part in parts if part.name in _NEEDS)
    name = f"tokens per device from which mesh {mesh} is hidden"
    if not weights:
        return Answer(name, None, "tokens", binds=NOTHING, parts=tuple(parts), rows=rows)
    worst = max(weights, key=lambda part: float(part.ideal or 0))
    ratio = own / float(worst)
    verdict = f"{ratio:.3g} times what {worst.name} needs by fitted figures"
    note = f"the run has {own:,.0f} tokens per device ({s.run.batch.tokens:,} in all): {verdict}"
    return replace(
        worst,
        name=name,
        binds=f"{worst.name}: {worst.binds}",
        parts=(*worst.parts, *parts),
        rows=rows,
        notes=(note,),
    )


def _weights(s: LimitsContext, mesh: MeshShape) -> Iterator[Answer]:
    """The axes over which weights are gathered and gradients summed."""
    cut = _cut(s, mesh)
    if summed := _summed(s, mesh):
        groups = groups_on(mesh, summed, s.cluster)
        yield weights_limit(s, "data", groups, replace(cut, fsdp=mesh.fsdp))
    if mesh.fsdp > 1:
        groups = groups_on(mesh, ["fsdp"], s.cluster)
        yield from (weights_limit(s, p.name, groups, cut, p) for p in (FORWARD, BACKWARD))


def _cut(s: LimitsContext, mesh: MeshShape) -> WeightShards:
    """What cuts the weights beside data and fsdp."""
    experts = mesh.expert if s.mlp.experts > 1 else 1
    return WeightShards(tensor=mesh.tensor, stage=mesh.stage, expert=experts)


def _summed(s: LimitsContext, mesh: MeshShape) -> list[str]:
    """Axes over which the gradients of the MLP are summed.

    Those of experts have seen the tokens of all devices along expert already.
    """
    axes = [axis for axis in REPLICAS if axis != "expert" or s.mlp.experts == 1]
    return [axis for axis in axes if getattr(mesh, axis) > 1]


def _others(s: LimitsContext, mesh: MeshShape) -> Iterator[Answer]:
    """The axes over which activations, tokens, keys and values travel."""
    batch = s.run.batch  # rows: of a microbatch, that one device multiplies with its weights
    rows = batch.tokens / batch.microbatches / mesh.batch_shards / mesh.context
    if summed := _summed(s, mesh):
        cut = replace(_cut(s, mesh), fsdp=mesh.fsdp)
        if (switched := switch_limit(s, groups_on(mesh, summed, s.cluster), cut)) is not None:
            yield switched
    if mesh.tensor > 1:
        yield tensor_limit(s, "tensor", groups_on(mesh, ["tensor"], s.cluster), rows)
    if mesh.expert > 1 and s.mlp.experts > 1:
        yield expert_limit(s, "expert", groups_on(mesh, ["expert"], s.cluster), rows / mesh.tensor)
    if mesh.context > 1:
        yield context_limit(s, "context", groups_on(mesh, ["context"], s.cluster))
    if s.cluster.torus is not None and mesh.tensor > 1 and mesh.fsdp > 1:
        yield from _best_split(s, mesh)
    if mesh.stage > 1:
        yield bubble(s, mesh.stage)
        yield hop(s, mesh, rows)


def _best_split(s: LimitsContext, mesh: MeshShape) -> list[Answer]:
    """The guide's optimum, where both axes lie in a slice: M rings of each as they are laid."""
    groups = [groups_on(mesh, [axis], s.cluster) for axis in ("fsdp", "tensor")]
    links = [binding_link("all-gather", one, s.cluster) for one in groups]
    if any(link.level.grid is None for link in links):
        return []
    rings = [next(i.value for i in link.inputs if i.symbol == "M") for link in links]
    chips = mesh.fsdp * mesh.tensor
    return best_split(s, chips, mesh.devices / chips, *rings)


_NEEDS = {  # part -> axis, what it needs
    "data": ("data", "tokens per device, at least"),
    FORWARD.name: ("fsdp", "tokens per device, at least"),
    BACKWARD.name: ("fsdp", "tokens per device, at least"),
    "tensor": ("tensor", "devices, at most"),
    "expert": ("expert", "width F, at least"),
    "context": ("context", "tokens of a sequence on a device, at least"),
}


def _row(part: Answer, mesh: MeshShape, s: LimitsContext) -> dict[str, Value]:
    """One axis: what it needs, what the run has, and how many times that is enough."""
    axis, needs = _NEEDS[part.name]
    axes = _summed(s, mesh) if axis == "data" else [axis]
    size = mesh.size(axes)
    has = {
        "tensor": float(size),
        "expert": float(s.mlp.inner),
        "context": s.run.batch.seq_len / mesh.context,
    }.get(axis, s.run.batch.tokens / mesh.devices)
    wanted = float(part)
    return {
        "axis": "+".join(axes) if axis == "data" else part.name,
        "devices": size,
        "link": part.binds,
        "needs": needs,
        "textbook": part.ideal,
        "fitted": part.fitted,
        "has": has,
        "margin, fitted": (wanted / has if axis == "tensor" else has / wanted) if wanted else None,
    }
