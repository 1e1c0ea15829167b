"""Limits of one mesh axis: where the time of its collectives is that of the products beside them.

    critical_tokens    data and fsdp   tokens per device from which sums and gathers are hidden
    tensor_limit       tensor          devices up to which activations are hidden
    expert_width       expert          F from which both all-to-alls are hidden
    context_tokens     context         tokens per device from which keys and values are hidden

Each solves T_math = T_comms with `kernel_time` and `collective_time` of one profile: that of
`ideal()` gives the textbook's number, a chip's own the fitted one ("How to Scale Your Model",
gpus.md and training.md, 2026-06).
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.contention import place_groups
from scaling.collectives.cost import collective_time
from scaling.meshes.cluster import Cluster
from scaling.models.accounting.context import exchanged_width
from scaling.models.accounting.matrices import query_key_dim, value_dim
from scaling.models.config import ModelConfig
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind, Kernel
from scaling.questions.block import Cut, Mlp, Passes, math_time, solve
from scaling.simulate.kernels import kernel_time

RING, GATHER = "ring", "all-gather"  # methods of context parallelism
VISIBLE = 0.5  # of the scores, under a causal mask whose work is spread evenly


@dataclass(frozen=True)
class Exchange:
    """Collectives over the weights of a layer, and the pass that they run beside."""

    name: str
    kinds: tuple[CollectiveKind, ...]
    passes: Passes


DATA = Exchange("data", ("all-reduce",), 2)
FORWARD = Exchange("fsdp, forward", ("all-gather",), 1)
BACKWARD = Exchange("fsdp, backward", ("all-gather", "reduce-scatter"), 2)


def critical_tokens(
    mlp: Mlp,
    cut: Cut,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    exchange: Exchange = DATA,
    algorithm: str = "auto",
) -> float:
    """Return the tokens per device from which an axis over the weights is hidden.

    Args:
        cut: by the other axes; fsdp cuts what data sums, and must be 1 where fsdp itself is asked.
        groups: of the axis, device ids [groups, members], all of them at once.
        algorithm: of the collectives.

    Raises:
        InputError: an algorithm that cannot run there; a profile or chip without the figures.
    """
    time = exchange_time(mlp, cut, groups, cluster, profile, exchange, algorithm)
    return hiding_tokens(mlp, cut, cluster, profile, time, exchange.passes)


def exchange_time(
    mlp: Mlp,
    cut: Cut,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    exchange: Exchange,
    algorithm: str = "auto",
) -> float:
    """Return the seconds of an exchange of the weights of one layer."""
    weights = mlp.weights / (cut.parts / cut.stage)
    item = {"all-gather": mlp.bytes}
    return sum(
        float(
            collective_time(
                kind,
                item.get(kind, mlp.reduce_bytes) * weights,
                groups,
                cluster,
                profile,
                algorithm,
            ).time
        )
        for kind in exchange.kinds
    )


def hiding_tokens(
    mlp: Mlp, cut: Cut, cluster: Cluster, profile: Profile, seconds: float, passes: Passes
) -> float:
    """Return the tokens per device whose products take as long."""
    chip = cluster.accelerator
    rows = solve(lambda rows: math_time(mlp, rows, cut, chip, profile, passes), seconds)
    return rows / (cut.tensor * cut.stage)


def tensor_limit(
    mlp: Mlp, rows: float, groups: np.ndarray, cluster: Cluster, profile: Profile, products: int = 2
) -> float:
    """Return the devices up to which tensor parallelism is hidden, by the wire of these groups.

    The activations [rows, D] are gathered before the products and scattered behind them. Products
    count as fast as on one device: that thin ones are slower does not make the axis more useful.

    Args:
        rows: tokens of one replica.
        groups: of the tensor axis.
        products: 2, as the guide counts, or 3 with a gate.
    """
    dense = Mlp(mlp.width, mlp.inner, products, dtype=mlp.dtype, bytes=mlp.bytes)
    compute = math_time(dense, rows, Cut(), cluster.accelerator, profile)
    return compute / tensor_time(mlp, rows, groups, cluster, profile)


def tensor_time(
    mlp: Mlp, rows: float, groups: np.ndarray, cluster: Cluster, profile: Profile
) -> float:
    """Return the seconds in which activations [rows, D] are gathered and scattered again."""
    size = mlp.bytes * rows * mlp.width
    kinds: tuple[CollectiveKind, ...] = ("all-gather", "reduce-scatter")
    return sum(float(collective_time(k, size, groups, cluster, profile).time) for k in kinds)


def expert_copies(mlp: Mlp, groups: np.ndarray, cluster: Cluster) -> int:
    """Return the copies of a token that are sent: to each node with one of its experts, once.

    Of a group inside a node to each chip; nodes of one NVLink domain count as one.
    """
    nodes = place_groups(groups.astype(int, copy=False), cluster).nodes
    return min(mlp.chosen, nodes if nodes > 1 else groups.shape[1])


def expert_width(
    mlp: Mlp,
    tokens: float,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    products: int = 2,
) -> float:
    """Return the F of an expert from which its products hide both all-to-alls.

    Args:
        tokens: that a device routes.
        groups: of the expert axis.
    """
    sent = mlp.bytes * tokens * mlp.width * expert_copies(mlp, groups, cluster)
    seconds = 2 * float(collective_time("all-to-all", sent, groups, cluster, profile).time)
    of_width = lambda inner: Mlp(
        mlp.width, inner, products, max(mlp.experts, 2), mlp.chosen, mlp.dtype
    )
    cut, chip = Cut(expert=groups.shape[1]), cluster.accelerator
    return solve(lambda inner: math_time(of_width(inner), tokens, cut, chip, profile), seconds)


def context_tokens(
    model: ModelConfig,
    mlp: Mlp,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    method: str = RING,
) -> float:
    """Return the tokens per device from which the exchange of keys and values is hidden.

    In each hop of a ring a device sends those of its tokens, and scores its queries with those it
    has got (Ring Attention, arXiv 2310.01889); or all of them are gathered beside all scores. Under
    a causal mask, dealt out evenly, half of all pairs count.

    Args:
        groups: of the context axis; in a ring each member sends to the next.
        method: "ring" or "all-gather".
    """
    kind: CollectiveKind = "permute" if method == RING else "all-gather"
    met = 1 if method == RING else groups.shape[1]  # devices whose keys are met at once
    size = mlp.bytes * exchanged_width(model) * met
    ways = in_a_ring(groups) if method == RING else groups
    sent = lambda t: float(collective_time(kind, size * t, ways, cluster, profile).time)
    scores = lambda t: _scores_time(model, t, met * t, cluster, profile, mlp.dtype)
    return solve(lambda t: scores(t) / sent(t), 1.0)


def in_a_ring(groups: np.ndarray) -> np.ndarray:
    """Return groups whose members each send to the next: of two, either sends to the other."""
    return np.concatenate([groups, groups[:, ::-1]]) if groups.shape[1] == 2 else groups


def _scores_time(
    model: ModelConfig, queries: float, keys: float, cluster: Cluster, profile: Profile, dtype: str
) -> float:
    """Seconds of one sequence's attention, half of the pairs of queries and keys, forward."""
    heads, of_keys, of_values = model.n_heads, query_key_dim(model), value_dim(model)
    kernel = Kernel(
        "scores",
        kind="attention",
        flops=2 * queries * keys * heads * (of_keys + of_values) * VISIBLE,
        visible=1.0,
        dtype="bf16" if dtype == "fp8" else dtype,
        dims=(1.0, heads, queries, keys, float(of_keys)),
    )
    return float(kernel_time(kernel, cluster.accelerator, profile).time)
