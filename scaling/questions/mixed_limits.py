"""Two axes at once: fsdp beside tensor, and stages of a pipeline.

    fsdp x tensor   X x Y = N chips: gathers of weights shrink with Y, of activations with X
                    X_opt = sqrt(B / F * (Mx / My) * N),  B / N > (C / W)^2 / (Mx My F)
    pipeline        (P - 1) / (V M + P - 1) of a step is bubble: P stages, M microbatches

The closed forms are the guide's ("How to Scale Your Model", training.md, 2026-06) for a torus,
where an axis has Mx or My dimensions for itself; the bubble is Megatron-LM's (arXiv 2104.04473,
section 2.2). Everywhere, all splits are priced on the links of the cluster as well.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.collectives.explain import IDEAL, SAME, binding_link
from scaling.meshes.cluster import Cluster, torus_shape
from scaling.meshes.errors import InputError
from scaling.meshes.levels import levels
from scaling.meshes.placement import groups_on
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.axis_answers import LimitsContext, weights_limit
from scaling.questions.exchanges import (
    FORWARD,
    exchange_time,
    hidden_from,
    of_activations,
    of_weights,
    times_hidden,
)
from scaling.questions.roofline import peak_input
from scaling.run.parallelism.rules import is_sequence_parallel

SECTION = "training: mixed fsdp and tensor parallelism"
BEYOND = 2.0  # times the largest tensor axis that is hidden: no larger one is tried
BUBBLE = 0.05  # of a step, that microbatches are sought for; chosen by this project
STAGES = (2, 4, 8, 16)


@dataclass(frozen=True)
class MixedMesh:
    """What a mesh fsdp x tensor needs and takes, with one profile."""

    mesh: MeshShape
    groups: np.ndarray  # of fsdp, device ids [groups, members]
    is_hidden: bool  # activations, behind the products
    tokens: float  # per device from which gathers of weights are hidden
    seconds: float  # of the slower of the two exchanges, at the run's batch


def mixed_limit(s: LimitsContext) -> Answer | None:
    """Return the fewest tokens per device of any mesh fsdp x tensor; None: none can be priced."""
    pairs = _splits(s)
    if not pairs:
        return None
    textbook, fitted = zip(*pairs, strict=True)
    best, best_fitted = _fewest_tokens(textbook), _fewest_tokens(fitted)
    cut = MeshShape(tensor=best.mesh.tensor)
    answer = weights_limit(s, "fewest tokens with fsdp and tensor", best.groups, cut, FORWARD)
    fastest, fitted_axis = (
        min(splits, key=lambda split: split.seconds).mesh.fsdp for splits in (textbook, fitted)
    )
    parts = [
        Answer(
            "fsdp axis of the least communication",
            fitted_axis,
            "devices",
            ideal=fastest,
            fitted=fitted_axis,
            notes=(f"at the run's {s.run.batch.tokens:,} tokens a step",),
        )
    ]
    if s.cluster.torus and (dims := sum(size > 1 for size in torus_shape(s.cluster))) > 1:
        chips = _chips(s.cluster)  # one dimension for tensor, the rest for fsdp
        parts += best_split(s, chips, s.cluster.devices / chips, dims - 1, 1)
    rows = [
        {
            "fsdp": ideal.mesh.fsdp,
            "tensor": ideal.mesh.tensor,
            "textbook (tokens)": ideal.tokens if ideal.is_hidden else None,
            "fitted (tokens)": real.tokens if real.is_hidden else None,
            "slower exchange (s)": real.seconds,
        }
        for ideal, real in pairs
    ]
    return replace(
        answer,
        answer=best_fitted.tokens,
        fitted=best_fitted.tokens,
        parts=tuple(parts),
        rows=tuple(rows),
        notes=(f"by the textbook on mesh {best.mesh}, by fitted figures on {best_fitted.mesh}",),
        section=SECTION,
    )


def _fewest_tokens(splits: tuple[MixedMesh, ...]) -> MixedMesh:
    """The best mesh whose activations are hidden; the first one if they are nowhere."""
    able = [split for split in splits if split.is_hidden] or splits[:1]
    return min(able, key=lambda split: split.tokens)


def _splits(s: LimitsContext) -> list[tuple[MixedMesh, MixedMesh]]:
    """All splits of the devices, of one slice on TPUs, up to tensor axes that are too large.

    Each by the textbook, and with the fitted figures.
    """
    chips = _chips(s.cluster)
    whole = np.arange(s.cluster.devices)[None]
    hidden = lambda groups: times_hidden(of_activations(s.mlp, groups, s.cluster), IDEAL, 1.0)
    few = hidden(whole)
    node = whole[:, : s.cluster.devices_per_node]
    if node.shape[1] > 1 and s.cluster.torus is None:
        few = max(few, hidden(node))
    pairs = []
    for tensor in divisors(chips):
        if tensor <= max(1.0, BEYOND * few) and tensor < chips:  # or there is no fsdp
            data = s.cluster.devices // chips
            mesh = MeshShape(data=data, fsdp=chips // tensor, tensor=tensor)
            with suppress(InputError):  # no box of the torus
                groups = groups_on(mesh, ["fsdp"], s.cluster)
                pairs.append((_split(s, mesh, groups, IDEAL), _split(s, mesh, groups, s.profile)))
    return pairs


def _split(s: LimitsContext, mesh: MeshShape, groups: np.ndarray, profile: Profile) -> MixedMesh:
    gathers = of_weights(s.mlp, MeshShape(tensor=mesh.tensor), groups, s.cluster, FORWARD)
    tokens, seconds = hidden_from(gathers, profile), exchange_time(gathers, profile)
    if mesh.tensor == 1:
        return MixedMesh(mesh, groups, True, tokens, seconds)
    rows = s.run.batch.tokens / (mesh.data * mesh.fsdp)
    sent = of_activations(s.mlp, groups_on(mesh, ["tensor"], s.cluster), s.cluster)
    most, moved = times_hidden(sent, profile, rows), exchange_time(sent, profile, rows)
    return MixedMesh(mesh, groups, mesh.tensor <= most * (1 + SAME), tokens, max(seconds, moved))


def _chips(cluster: Cluster) -> int:
    """Devices that fsdp and tensor share: all, or those of one slice."""
    if cluster.torus is None:
        return cluster.devices
    return cluster.domain_nodes * cluster.devices_per_node


def best_split(
    s: LimitsContext, chips: int, replicas: float, along_x: float, along_y: float
) -> list[Answer]:
    """Return X_opt and the least tokens per chip of fsdp x tensor on a torus.

    Args:
        chips: that fsdp and tensor share; the run's batch is spread over `replicas` of them.
        along_x, along_y: dimensions of the torus, Mx and My.
    """
    F = Input("F", s.mlp.inner, "", "width of the MLP")
    Mx = Input("Mx", along_x, "", "dimensions of the torus along fsdp")
    My = Input("My", along_y, "", "along tensor")
    N = Input("N", chips, "chips", "of fsdp x tensor")
    B = Input("B", s.run.batch.tokens / replicas, "tokens", "of these chips")
    C = peak_input(s.cluster.accelerator, s.mlp.dtype)
    W = Input("W", 2 * levels(s.cluster)[0].bandwidth, "bytes/s", "one ICI link, both directions")
    optimum = "sqrt(B / F * (Mx / My) * N)"
    least = "(C / W) ** 2 / (Mx * My * F)"
    return [
        by_formula("X_opt", "devices", optimum, (B, F, Mx, My, N)),
        by_formula("B over N", "tokens", least, (C, W, Mx, My, F)),
    ]


# Pipelines


def bubble(s: LimitsContext, stages: int) -> Answer:
    """Return the share of a step that is bubble, and the microbatches for a small one."""
    name, formula = "microbatches for a bubble of 5 %", "ceil((P - 1) * (1 - x) / (x * V))"
    inputs = _pipeline_letters(s, stages)
    needed = by_formula(name, "microbatches", formula, inputs)
    notes: tuple[str, ...] = ()
    if s.run.pipeline.schedule == "zero_bubble":
        notes = ("the schedule zero_bubble fills most of this with gradients of weights",)
    share = "(P - 1) / (V * M + P - 1)"
    return by_formula("bubble of the pipeline", "", share, inputs, parts=(needed,), notes=notes)


def bubbles(s: LimitsContext) -> Answer:
    """Return the microbatches per further stage for a small bubble, with a table of stages."""
    name = "microbatches for each stage after the first, for a bubble of 5 %"
    answers = {stages: bubble(s, stages) for stages in STAGES}
    rows: tuple[dict[str, Value], ...] = tuple(
        {"stages": n, "bubble": each.answer, "microbatches for 5 %": each.parts[0].answer}
        for n, each in answers.items()
    )
    notes = (f"the bubble is that of the run's {s.run.batch.microbatches} microbatches",)
    inputs = _pipeline_letters(s)
    return by_formula(name, "microbatches", "(1 - x) / (x * V)", inputs, rows=rows, notes=notes)


def _pipeline_letters(s: LimitsContext, stages: int = 1) -> tuple[Input, ...]:
    return (
        Input("P", stages, "stages"),
        Input("M", s.run.batch.microbatches, "microbatches", "of a step"),
        Input("x", BUBBLE, "", "the bubble that is sought"),
        Input("V", s.run.pipeline.virtual_stages, "", "virtual stages of a device"),
    )


def hop(s: LimitsContext, mesh: MeshShape, rows: float) -> Answer:
    """Return the seconds in which the activations of a microbatch reach the next stage.

    Sequence-parallel, each device of a tensor group sends its own tokens.
    """
    groups = groups_on(mesh, ["stage"], s.cluster)
    links = binding_link("permute", groups, s.cluster)
    shards = mesh.tensor if is_sequence_parallel(s.run, mesh) else 1
    size = s.mlp.bytes * rows / shards * s.mlp.width
    fitted = float(collective_time("permute", size, groups, s.cluster, s.profile).time)
    given = (
        Input("b", s.mlp.bytes, "bytes", "of a number"),
        Input("B", rows, "tokens", "of a microbatch in one tensor group"),
        Input("Y", shards, "devices", "of a tensor group, each with its own tokens"),
        Input("D", s.mlp.width, "", "width of the model"),
        *links.symbols,
    )
    formula = f"b * B / Y * D{links.time_suffix}"
    return by_formula("hop to the next stage", "s", formula, given, fitted, binds=links.words)


def all_hops(s: LimitsContext, stages: int, one: Answer) -> list[Answer]:
    """Return what the hops of a forward pass take together, the last microbatch behind the first.

    The backward pass hops as often.
    """
    h = Input("h", float(one.ideal or 0), "s", "of a hop")
    layers = Input("L", s.run.model.n_layers, "layers")
    given = (*_pipeline_letters(s, stages), h, layers)
    figures = {"h": float(one.answer or 0)}
    hops = "(V * M + P - 2)"
    return [
        by_formula("pipeline: hops one after another", "hops", hops, given),
        by_formula("pipeline: all hops of a forward pass", "s", f"h * {hops}", given, figures),
        by_formula("pipeline: hops over microbatches", "", f"{hops} / M", given),
        by_formula("pipeline: hops for a layer", "s", f"h * {hops} / L", given, figures),
    ]
