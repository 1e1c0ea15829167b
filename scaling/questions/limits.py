"""How far can each axis of a mesh be cut before communication decides? On a cluster, or for a mesh.

Without a mesh the answer is data parallelism over all devices, its rows are the places on the
cluster, smallest first, and its parts the limits of the other axes. With a mesh
(`scaling.questions.mesh_limits`) the rows are its axes.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scaling.collectives.contention import place_groups
from scaling.collectives.explain import link_of
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Value
from scaling.questions.axis_answers import (
    LimitsContext,
    brief,
    context_limit,
    expert_limit,
    most_devices,
    tensor_limit,
    tokens_over,
    weights_limit,
)
from scaling.questions.block import WeightShards, mlp_of
from scaling.questions.exchanges import BACKWARD, FORWARD
from scaling.questions.mesh_limits import limits_of_mesh
from scaling.questions.mixed_limits import bubbles, mixed_limit
from scaling.questions.places import AxisLayout, between, inside
from scaling.questions.switch_limits import switch_limit
from scaling.run import Run

MOST_DEVICES = 2**20  # in about 1 GB and half a minute; chosen by this project
GPUS = "gpus: rooflines for LLM scaling"
TPUS = "training: limits of each way to scale"


def limits(run: Run, cluster: Cluster, profile: Profile) -> Answer:
    """Return the tokens per device from which communication is hidden, and the other limits.

    Args:
        run: whose model, batch and formats are asked; with a mesh, its axes.
        cluster: of two devices or more.
        profile: of the fitted numbers; the textbook's are always there.

    Raises:
        InputError: one device or too many, a mesh that does not fit, links or formats without
            figures.
    """
    _check_devices(cluster, run.mesh.devices if run.mesh else cluster.devices)
    s = LimitsContext(run, mlp_of(run), cluster, profile)
    found = limits_of_mesh(s, run.mesh) if run.mesh else _limits_of_cluster(s)
    return replace(found, section=GPUS if cluster.torus is None else TPUS)


def _check_devices(cluster: Cluster, devices: int) -> None:
    """Raise InputError for one device, and for more than are priced in reasonable memory."""
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


def _limits_of_cluster(s: LimitsContext) -> Answer:
    """Data parallelism over everything, with all places; the other axes."""
    places, everything = inside(s.cluster), np.arange(s.cluster.devices)[None]
    rows = s.run.batch.tokens / s.cluster.devices  # tokens of a device
    title = f"tokens per device from which data parallelism over {len(everything[0]):,} is hidden"
    found = weights_limit(s, title, everything)
    gathers = (FORWARD, BACKWARD)
    parts = [brief(weights_limit(s, over.name, everything, over=over)) for over in gathers]
    parts += [_levels(s), most_devices(s, found)]
    parts += filter(None, [switch_limit(s, everything), _between(s)])
    parts += [*_other_axes(s, places, rows), *filter(None, [mixed_limit(s), bubbles(s)])]
    table = []
    for place in places:
        answer = weights_limit(s, place.name, place.groups)
        given: dict[str, Value] = {"of a group (tokens)": float(answer) * place.devices}
        table.append(_row(place, answer) | given)
    return replace(found, parts=(*found.parts, *parts), rows=tuple(table))


def _levels(s: LimitsContext) -> Answer:
    """What the links of each level would need by themselves; the largest binds."""
    everything = np.arange(s.cluster.devices)[None]
    rows = []
    for level, load in place_groups(everything, s.cluster).loads("all-gather")["hierarchical"]:
        if load.share:
            links = link_of("all-gather", everything, level, load)
            both = (links, links.simplified)
            need, rule = (tokens_over(s, level.name, one).ideal for one in both)
            rows.append({"link": links.words, "rule (tokens)": rule, "textbook (tokens)": need})
    most = max(float(row["textbook (tokens)"]) for row in rows)  # type: ignore[arg-type]
    notes = ("the most of them binds",)
    return Answer("each level by itself", most, "tokens", ideal=most, rows=tuple(rows), notes=notes)


def _between(s: LimitsContext) -> Answer | None:
    """Data parallelism between units of which each holds one copy: nodes, leaf groups, slices."""
    table = []
    for place in between(s.cluster):
        unit = s.cluster.devices // place.devices
        answer = weights_limit(s, place.name, place.groups, WeightShards(fsdp=unit))
        table.append(_row(place, answer) | {"of a unit (tokens)": unit * float(answer)})
    if not table:
        return None
    name, rule = f"data parallelism between {place.name}", answer["rule"]  # the outermost
    scaled = lambda value: unit * float(value or 0)
    whole = Answer(
        "tokens of a unit",
        scaled(answer.answer),
        "tokens",
        ideal=scaled(answer.ideal),
        fitted=scaled(answer.fitted),
    )
    ruled = Answer("rule of a unit", scaled(rule.ideal), "tokens", ideal=scaled(rule.ideal))
    return replace(answer, name=name, parts=(*answer.parts, whole, ruled), rows=tuple(table))


def _other_axes(s: LimitsContext, places: list[AxisLayout], rows: float) -> Iterator[Answer]:
    """The limits of tensor, expert and context, each of one place with a table of all.

    Those of tensor and context are of the smallest place, tensor's of an NVLink domain where there
    is one; that of expert is over everything. `rows` are the tokens of a device.
    """
    head = 0
    if s.cluster.torus is None and s.cluster.domain_nodes > 1:
        joined = s.cluster.domain_nodes * s.cluster.devices_per_node
        head = max(i for i, place in enumerate(places) if place.devices <= joined)
    found = [tensor_limit(s, p.name, p.groups, rows * p.devices) for p in places]
    yield _headed("largest tensor axis", places, found, "F of all", head=head)
    if s.mlp.experts > 1:
        found = [expert_limit(s, p.name, p.groups, rows) for p in places[::-1]]
        yield _headed("smallest expert width F", places[::-1], found)
    found = [context_limit(s, p.name, p.groups) for p in places]
    yield _headed("tokens per device from which a ring over context is hidden", places, found)


def _headed(
    name: str, places: list[AxisLayout], answers: list[Answer], *more: str, head: int = 0
) -> Answer:
    """The answer of one place, the first, under another name, with a table of all."""
    rows = tuple(_row(p, answer, *more) for p, answer in zip(places, answers, strict=True))
    where = f"{places[head].name}: {answers[head].binds}"
    return replace(answers[head], name=name, binds=where, rows=rows)


def _row(place: AxisLayout, answer: Answer, *more: str) -> dict[str, Value]:
    """One place in a table; `more` names parts of the answer that are columns of their own."""
    named = lambda text, of=answer.unit: f"{text} ({of})" if of else text
    rule = next((part.answer for part in answer.parts if part.name.startswith("rule")), None)
    columns: dict[str, Value] = {
        "place": place.name,
        "devices": place.devices,
        "link": answer.binds,
        **({named("rule"): rule} if rule is not None else {}),
        named("textbook"): answer.ideal,
        named("fitted"): answer.fitted,
    }
    return columns | {named(name, answer[name].unit): answer[name].answer for name in more}
