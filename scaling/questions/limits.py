"""How far can each axis of a mesh be cut before communication decides? On a cluster, or for a mesh.

Without a mesh the answer is data parallelism over all devices, its rows are the places on the
cluster, smallest first, and its parts the limits of the other axes. With a mesh
(`scaling.questions.mesh_limits`) the rows are its axes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from scaling.collectives.contention import place_groups
from scaling.collectives.explain import link_of
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Value
from scaling.questions.axis_answers import (
    LimitsContext,
    brief,
    context_limit,
    expert_limit,
    limit,
    most_devices,
    scaled,
    switch_limit,
    tensor_limit,
    weights_limit,
)
from scaling.questions.exchanges import FSDP, UNSHARDED, mlp_of, of_weights
from scaling.questions.mesh_limits import limits_of_mesh
from scaling.questions.mixed_limits import bubbles, mixed_limit
from scaling.questions.places import AxisLayout, between, inside
from scaling.run import Run

MOST_DEVICES = 2**20  # in about 1 GB and half a minute; chosen by this project
GPUS = "gpus: rooflines for LLM scaling"
TPUS = "training: limits of each way to scale"


def limits(run: Run, cluster: Cluster, profile: Profile) -> Answer:
    """Return the tokens per device from which communication is hidden, and the other limits.

    Args:
        run: whose model, batch and formats are asked; with a mesh, its axes.
        cluster: of two devices or more.

    Raises:
        InputError: one device or too many, a mesh that does not fit, links or formats without
            figures.
    """
    devices = run.mesh.devices if run.mesh else cluster.devices
    if devices < 2:
        raise InputError(
            f"one device of {cluster.name} sends nothing, so that nothing limits it; use more "
            "--nodes, or a mesh of two devices or more"
        )
    if cluster.devices > MOST_DEVICES:
        raise InputError(
            f"limits are computed for up to {MOST_DEVICES:,} devices, and {cluster.nodes} nodes of "
            f"{cluster.name} are {cluster.devices:,}; use fewer --nodes: from there on limits "
            "differ by (X - 1) / X only"
        )
    s = LimitsContext(run, mlp_of(run), cluster, profile)
    answer = limits_of_mesh(s, run.mesh) if run.mesh else _limits_of_cluster(s)
    return replace(answer, section=GPUS if cluster.torus is None else TPUS)


def _limits_of_cluster(s: LimitsContext) -> Answer:
    """Data parallelism over everything, with all places; the other axes."""
    layouts, everything = inside(s.cluster), np.arange(s.cluster.devices)[None]
    title = f"tokens per device from which data parallelism over {s.cluster.devices:,} is hidden"
    data = weights_limit(s, title, everything)
    parts = [brief(weights_limit(s, over.name, everything, over=over)) for over in FSDP]
    parts += [_levels(s, everything), most_devices(s, data)]
    parts += filter(None, [switch_limit(s, everything), _between(s)])
    parts += [*_other_axes(s, layouts), *filter(None, [mixed_limit(s), bubbles(s)])]
    answers = [weights_limit(s, layout.name, layout.groups) for layout in layouts]
    rows = tuple(
        _row(layout, answer) | {"of a group (tokens)": float(answer) * layout.devices}
        for layout, answer in zip(layouts, answers, strict=True)
    )
    return replace(data, parts=(*data.parts, *parts), rows=rows)


def _levels(s: LimitsContext, everything: np.ndarray) -> Answer:
    """What the links of each level would need by themselves; the largest binds."""
    rows, form = [], of_weights(s.mlp, UNSHARDED, everything, s.cluster).textbook
    for level, load in place_groups(everything, s.cluster).loads("all-gather")["hierarchical"]:
        if load.share:
            links = link_of("all-gather", everything, level, load)
            both = (links, links.simplified)
            need, rule = (limit(level.name, form, one).ideal for one in both)
            rows.append({"link": links.words, "rule (tokens)": rule, "textbook (tokens)": need})
    most = max(float(row["textbook (tokens)"]) for row in rows)  # type: ignore[arg-type]
    notes = ("the most of them binds",)
    return Answer("each level by itself", most, "tokens", ideal=most, rows=tuple(rows), notes=notes)


def _between(s: LimitsContext) -> Answer | None:
    """Data parallelism between units of which each holds one copy: nodes, leaf groups, slices."""
    rows = []
    for layout in between(s.cluster):
        unit = s.cluster.devices // layout.devices
        answer = weights_limit(s, layout.name, layout.groups, MeshShape(fsdp=unit))
        rows.append(_row(layout, answer) | {"of a unit (tokens)": unit * float(answer)})
    if not rows:
        return None
    whole = scaled(answer, "tokens of a unit", unit)  # the outermost
    parts = (*answer.parts, whole, scaled(answer["rule"], "rule of a unit", unit))
    name = f"data parallelism between {layout.name}"
    return replace(answer, name=name, parts=parts, rows=tuple(rows))


def _other_axes(s: LimitsContext, layouts: list[AxisLayout]) -> Iterator[Answer]:
    """The limits of tensor, expert and context, each of one place with a table of all.

    Those of tensor and context are of the smallest place, tensor's of an NVLink domain where there
    is one; that of expert is over everything.
    """
    rows, head = s.run.batch.tokens / s.cluster.devices, 0  # tokens of a device
    if s.cluster.torus is None and s.cluster.domain_nodes > 1:
        joined = s.cluster.domain_nodes * s.cluster.devices_per_node
        head = max(i for i, layout in enumerate(layouts) if layout.devices <= joined)
    tensor = lambda at: tensor_limit(s, at.name, at.groups, rows * at.devices)
    yield _headed("largest tensor axis", layouts, tensor, "F of all", head=head)
    if s.mlp.experts > 1:
        expert = lambda at: expert_limit(s, at.name, at.groups, rows)
        yield _headed("smallest expert width F", layouts[::-1], expert)
    context = lambda at: context_limit(s, at.name, at.groups)
    yield _headed("tokens per device from which a ring over context is hidden", layouts, context)


def _headed(
    name: str,
    layouts: list[AxisLayout],
    limit_at: Callable[[AxisLayout], Answer],
    *more: str,
    head: int = 0,
) -> Answer:
    """The answer of one place, the first, under another name, with a table of all."""
    answers = [limit_at(layout) for layout in layouts]
    rows = tuple(_row(p, answer, *more) for p, answer in zip(layouts, answers, strict=True))
    where = f"{layouts[head].name}: {answers[head].binds}"
    return replace(answers[head], name=name, binds=where, rows=rows)


def _row(layout: AxisLayout, answer: Answer, *more: str) -> dict[str, Value]:
    """One place in a table; `more` names parts of the answer that are columns of their own."""
    named = lambda text, of=answer.unit: f"{text} ({of})" if of else text
    rule = next((part.answer for part in answer.parts if part.name.startswith("rule")), None)
    columns: dict[str, Value] = {
        "place": layout.name,
        "devices": layout.devices,
        "link": answer.binds,
        **({named("rule"): rule} if rule is not None else {}),
        named("textbook"): answer.ideal,
        named("fitted"): answer.fitted,
    }
    return columns | {named(name, answer[name].unit): answer[name].answer for name in more}
