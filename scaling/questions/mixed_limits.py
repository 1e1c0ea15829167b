"""Two axes at once: fsdp beside tensor, and stages of a pipeline.

    fsdp x tensor   X x Y = N chips: gathers of weights shrink with Y, of activations with X
                    X_opt = sqrt(B / F * (Mx / My) * N),  B / N > (C / W)^2 / (Mx My F)
    pipeline        (P - 1) / (V M + P - 1) of a step is bubble: P stages, M microbatches

The closed forms are the guide's ("How to Scale Your Model", training.md, 2026-06) for a torus,
where an axis has Mx or My dimensions for itself; the bubble is Megatron-LM's (arXiv 2104.04473,
section 2.2). Everywhere, all splits are priced on the links of the cluster as well.
"""

from collections.abc import Mapping
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
from scaling.questions.block import WeightShards
from scaling.questions.exchanges import (
    FORWARD,
    exchange_time,
    hidden_from,
    of_activations,
    of_weights,
    times_hidden,
)
from scaling.run.parallelism.rules import is_sequence_parallel

SECTION = "training: mixed fsdp and tensor parallelism"
BEYOND = 2.0  # times the largest tensor axis that is hidden: no larger one is tried
BUBBLE = 0.05  # of a step, that microbatches are sought for; chosen by this project
STAGES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Split:
    """A mesh fsdp x tensor with what it needs and takes; ideal and fitted."""

    mesh: MeshShape
    groups: np.ndarray  # of fsdp, device ids [groups, members]
    hidden: tuple[bool, bool]  # activations, behind the products
    tokens: tuple[float, float]  # per device from which gathers of weights are hidden
    seconds: tuple[float, float]  # of the slower of the two exchanges, at the run's batch

    @property
    def least(self) -> tuple[float | None, float | None]:
        """Tokens per device from which both exchanges are hidden; None: at no batch."""
        textbook, fitted = zip(self.hidden, self.tokens, strict=True)
        return textbook[1] if textbook[0] else None, fitted[1] if fitted[0] else None


def mixed_limit(s: LimitsContext) -> Answer | None:
    """Return the fewest tokens per device of any mesh fsdp x tensor; None: none can be priced."""
    splits = _splits(s)
    if not splits:
        return None
    able = [split for split in splits if split.hidden[0]] or splits[:1]
    best = min(able, key=lambda split: split.tokens[0])
    cut = WeightShards(tensor=best.mesh.tensor)
    found = weights_limit(s, "fewest tokens with fsdp and tensor", best.groups, cut, FORWARD)
    fastest = min(splits, key=lambda split: split.seconds[0])
    fitted = min(splits, key=lambda split: split.seconds[1])
    batch = Answer(
        "fsdp axis of the least communication",
        fitted.mesh.fsdp,
        "devices",
        ideal=fastest.mesh.fsdp,
        fitted=fitted.mesh.fsdp,
        notes=(f"at the run's {s.run.batch.tokens:,} tokens a step",),
    )
    closed: list[Answer] = []
    if s.cluster.torus and (dims := sum(size > 1 for size in torus_shape(s.cluster))) > 1:
        chips = _chips(s.cluster)  # one dimension for tensor, the rest for fsdp
        closed = best_split(s, chips, s.cluster.devices / chips, dims - 1, 1)
    able = [split for split in splits if split.hidden[1]] or splits[:1]
    other = min(able, key=lambda split: split.tokens[1])
    rows = [
        {
            "fsdp": split.mesh.fsdp,
            "tensor": split.mesh.tensor,
            "textbook (tokens)": split.least[0],
            "fitted (tokens)": split.least[1],
            "slower exchange (s)": split.seconds[1],
        }
        for split in splits
    ]
    return replace(
        found,
        answer=other.tokens[1],
        fitted=other.tokens[1],
        parts=(batch, *closed),
        rows=tuple(rows),
        notes=(f"by the textbook on mesh {best.mesh}, by fitted figures on {other.mesh}",),
        section=SECTION,
    )


def _splits(s: LimitsContext) -> list[Split]:
    """All splits of the devices, of one slice on TPUs, up to tensor axes that are too large."""
    chips = _chips(s.cluster)
    whole = np.arange(s.cluster.devices)[None]
    hidden = lambda groups: times_hidden(of_activations(s.mlp, groups, s.cluster), IDEAL, 1.0)
    few = hidden(whole)
    node = np.arange(min(s.cluster.devices, s.cluster.devices_per_node))[None]
    if node.shape[1] > 1 and s.cluster.torus is None:
        few = max(few, hidden(node))
    found = []
    for tensor in divisors(chips):
        if tensor <= max(1.0, BEYOND * few) and tensor < chips:  # or there is no fsdp
            data = s.cluster.devices // chips
            mesh = MeshShape(data=data, fsdp=chips // tensor, tensor=tensor)
            try:
                groups = groups_on(mesh, ["fsdp"], s.cluster)
                both = [_priced(s, mesh, groups, profile) for profile in (IDEAL, s.profile)]
            except InputError:  # no box of the torus
                continue
            found.append(Split(mesh, groups, *zip(*both, strict=True)))
    return found


def _priced(
    s: LimitsContext, mesh: MeshShape, groups: np.ndarray, profile: Profile
) -> tuple[bool, float, float]:
    """Whether activations are hidden, the tokens of weights, and seconds of the slower exchange."""
    gathers = of_weights(s.mlp, WeightShards(tensor=mesh.tensor), groups, s.cluster, FORWARD)
    tokens, gather = hidden_from(gathers, profile), exchange_time(gathers, profile)
    if mesh.tensor == 1:
        return True, tokens, gather
    rows = s.run.batch.tokens / (mesh.data * mesh.fsdp)
    sent = of_activations(s.mlp, groups_on(mesh, ["tensor"], s.cluster), s.cluster)
    most, moved = times_hidden(sent, profile, rows), exchange_time(sent, profile, rows)
    return mesh.tensor <= most * (1 + SAME), tokens, max(gather, moved)


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
    W = Input("W", 2 * levels(s.cluster)[0].bandwidth, "bytes/s", "one ICI link, both directions")
    optimum = "sqrt(B / F * (Mx / My) * N)"
    least = "(C / W) ** 2 / (Mx * My * F)"
    return [
        by_formula("X_opt", "devices", optimum, (B, F, Mx, My, N)),
        by_formula("B over N", "tokens", least, (s.C, W, Mx, My, F)),
    ]


# Pipelines


def bubble(s: LimitsContext, stages: int) -> Answer:
    """Return the share of a step that is bubble, and the microbatches for a small one."""
    schedule = s.run.pipeline
    P = Input("P", stages, "stages")
    M = Input("M", s.run.batch.microbatches, "microbatches", "of a step")
    V = Input("V", schedule.virtual_stages, "", "virtual stages of a device")
    x = Input("x", BUBBLE, "", "the bubble that is sought")
    needed = by_formula(
        "microbatches for a bubble of 5 %",
        "microbatches",
        "ceil((P - 1) * (1 - x) / (x * V))",
        (P, x, V),
    )
    share = "(P - 1) / (V * M + P - 1)"
    notes: tuple[str, ...] = ()
    if schedule.schedule == "zero_bubble":
        notes = ("the schedule zero_bubble fills most of this with gradients of weights",)
    return by_formula("bubble of the pipeline", "", share, (P, M, V), parts=(needed,), notes=notes)


def bubbles(s: LimitsContext) -> Answer:
    """Return the microbatches per further stage for a small bubble, with a table of stages."""
    V = Input("V", s.run.pipeline.virtual_stages, "", "virtual stages of a device")
    x = Input("x", BUBBLE, "", "the bubble that is sought")
    name = "microbatches for each stage after the first, for a bubble of 5 %"
    rows = []
    for stages in STAGES:
        found = bubble(s, stages)
        needed = found.parts[0].answer
        rows.append({"stages": stages, "bubble": found.answer, "microbatches for 5 %": needed})
    notes = (f"the bubble is that of the run's {s.run.batch.microbatches} microbatches",)
    formula, table = "(1 - x) / (x * V)", tuple[Mapping[str, Value], ...](rows)
    return by_formula(name, "microbatches", formula, (x, V), rows=table, notes=notes)


def hop(s: LimitsContext, mesh: MeshShape, rows: float) -> Answer:
    """Return the seconds in which the activations of a microbatch reach the next stage.

    Sequence-parallel, each device of a tensor group sends its own tokens.

    Args:
        rows: tokens of a microbatch that the devices of one tensor group share.
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
