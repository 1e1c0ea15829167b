"""What each mesh axis exchanges, the work that hides it, and the solve for where both are equal.

    axis      exchanged                           hidden by           unknown
    data      sums of gradients                   backward products   rows: tokens of its share
    fsdp      gathers, and scatters of gradients  products            rows: tokens of its share
    tensor    activations [rows, D], two ways     products            devices that share them
    expert    tokens, there and back              experts' products   F of an expert
    context   keys and values, which grow with t  scores              t: tokens of a device

T_math = T_comms with `kernel_time` and `collective_time` of one profile: that of `ideal()` gives
the textbook's number, a chip's own the fitted one ("How to Scale Your Model", gpus.md and
training.md, 2026-06). Products are those of the MLP of one layer:

    D, F       width of the model, of the MLP (of one expert)
    products   2, as the guide counts: D x F and F x D; 3 with the gate of a SwiGLU
    E, k       experts, and those that a token takes; 1 and 1 without experts

FLOPs and bytes of the weights grow alike with D, F and the number of products, so that limits on
the batch are those of whole layers, but for the scores of attention.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from scaling.collectives.contention import place_groups
from scaling.collectives.cost import collective_time
from scaling.collectives.explain import BindingLink, binding_link
from scaling.meshes.accelerator import Accelerator
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.context import exchanged_width
from scaling.models.accounting.matrices import BYTES, expert_width, query_key_dim, value_dim
from scaling.models.config import ModelConfig
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind
from scaling.program.ops import TRAINING, attention, matmul
from scaling.questions.answer import Input
from scaling.questions.least import least_where
from scaling.questions.roofline import peak_input
from scaling.run import Run
from scaling.simulate.kernels import kernel_time

Call = tuple[CollectiveKind, float]  # with its bytes
BF16 = 2.0  # bytes of a number in the guide's rules: C / W holds for them
VISIBLE = 0.5  # of the scores, under a causal mask whose work is spread evenly
PassKind = int  # 1: forward; 2: backward, with twice the FLOPs
UNSHARDED = MeshShape()


@dataclass(frozen=True)
class MlpShape:
    """The MLP of one layer."""

    width: int  # D
    inner: int  # F, of one expert
    products: int = 2
    experts: int = 1  # E
    chosen: int = 1  # k, of a token
    dtype: str = "bf16"  # of the products
    bytes: float = 2.0  # of a number that is gathered or exchanged
    reduce_bytes: float = 2.0  # of a gradient that is summed

    @property
    def weights(self) -> float:
        """Number of weights of the layer's MLP, all experts together."""
        return float(self.products * self.width * self.inner * self.experts)

    def bytes_in(self, kind: CollectiveKind) -> float:
        """Return the bytes of a number that is gathered, or that is summed."""
        return self.bytes if kind == "all-gather" else self.reduce_bytes


def mlp_of(run: Run) -> MlpShape:
    """Return the MLP of a run's model, its experts where it has some, in the run's formats."""
    model, precision, moe = run.model, run.precision, run.model.moe
    sent = BYTES[precision.between]
    return MlpShape(
        width=model.d_model,
        inner=expert_width(model) if moe else model.d_ff,
        products=3 if model.is_gated else 2,
        experts=moe.n_experts if moe else 1,
        chosen=moe.experts_per_token if moe else 1,
        dtype=precision.compute,
        bytes=float(sent),
        reduce_bytes=float(BYTES["fp32"] if precision.reduce == "fp32" else sent),
    )


def math_time(
    mlp: MlpShape,
    rows: float,
    cut: MeshShape,
    chip: Accelerator,
    profile: Profile,
    passes: PassKind = 1,
) -> float:
    """Return the seconds of the products of one layer's MLP on one device.

    Args:
        rows: tokens of its share of the batch; devices along tensor have the same ones, those along
            expert their own, whose products are grouped, of even load.
        cut: axes that cut the weights.
        passes: 1 forward; 2 backward: gradients of what goes in, and of the weights.
    """
    experts, F = max(1.0, mlp.experts / cut.expert), mlp.inner / cut.tensor
    m = rows * mlp.chosen / experts
    up, down = (experts, m, F, mlp.width), (experts, m, mlp.width, F)
    shapes = [(up, mlp.products - 1), (down, 1)]
    if passes > 1:
        shapes = [(down, mlp.products - 1), (up, 1), ((experts, mlp.width, F, m), mlp.products)]
    product = lambda dims: matmul("product", dims, mlp.dtype, grouped=mlp.experts > 1)
    return sum(float(kernel_time(product(d), chip, profile).time) * n for d, n in shapes)


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The textbook's amount from which an exchange is hidden."""

    unit: str
    formula: Callable[[BindingLink], str]
    inputs: tuple[Input, ...]  # beside those of the links
    factors: str = ""  # before the formula, that the guide's rule leaves out


@dataclass(frozen=True, eq=False)
class Exchange:
    """Collectives of an axis and the work beside them, both of some amount of the unknown."""

    groups: np.ndarray  # of the axis, all of them at once: device ids [groups, members]
    cluster: Cluster
    calls: Callable[[float], tuple[Call, ...]]
    work: Callable[[float, Profile], float]  # s
    textbook: ClosedForm
    link_kind: CollectiveKind = "all-gather"  # the collective whose links bind
    shared_by: int = 1  # devices that share the amount

    @property
    def links(self) -> BindingLink:
        """The links that bind, in letters."""
        return binding_link(self.link_kind, self.groups, self.cluster)


def exchange_time(
    exchange: Exchange, profile: Profile, amount: float = 1.0, algorithm: str = "auto"
) -> float:
    """Return the seconds of the collectives."""
    groups, cluster = exchange.groups, exchange.cluster
    return sum(
        float(collective_time(kind, size, groups, cluster, profile, algorithm).time)
        for kind, size in exchange.calls(amount)
    )


def times_hidden(exchange: Exchange, profile: Profile, amount: float) -> float:
    """Return T_math / T_comms: from 1 on the exchange is hidden."""
    return exchange.work(amount, profile) / exchange_time(exchange, profile, amount)


def hidden_from(exchange: Exchange, profile: Profile, algorithm: str = "auto") -> float:
    """Return the amount per device from which an exchange is hidden; 0.0: any amount.

    The exchange's work grows faster with the amount than its collectives.

    Raises:
        InputError: an algorithm that cannot run there; a profile or chip without the figures.
    """
    constant = exchange.calls(1.0) == exchange.calls(2.0)
    sent = cache(lambda amount: exchange_time(exchange, profile, amount, algorithm))
    hidden = lambda x: exchange.work(x, profile) >= sent(1.0 if constant else x)
    return least_where(hidden) / exchange.shared_by


# The table of exchanges


@dataclass(frozen=True)
class WeightPass:
    """Collectives over the weights of a layer, and the pass that they run beside."""

    name: str
    kinds: tuple[CollectiveKind, ...]
    passes: PassKind


DATA = WeightPass("data", ("all-reduce",), 2)
FORWARD = WeightPass("fsdp, forward", ("all-gather",), 1)
BACKWARD = WeightPass("fsdp, backward", ("all-gather", "reduce-scatter"), 2)
FSDP = (FORWARD, BACKWARD)


def of_weights(
    mlp: MlpShape, cut: MeshShape, groups: np.ndarray, cluster: Cluster, over: WeightPass = DATA
) -> Exchange:
    """Return what an axis over the weights of one layer exchanges; unknown: rows.

    T_math = 2 t m (k / E) weights / C of one pass; T_comms = b weights over the links, where b is
    the mean size of a number in bytes. `cut` is by the other axes: fsdp cuts what data sums, and is
    1 where fsdp itself is asked.
    """
    weights, chip = mlp.weights / (cut.devices / cut.stage), cluster.accelerator
    calls = tuple((kind, mlp.bytes_in(kind) * weights) for kind in over.kinds)
    work = lambda rows, profile: math_time(mlp, rows, cut, chip, profile, over.passes)
    size = sum(map(mlp.bytes_in, over.kinds)) / len(over.kinds)
    before = f"{'E / k * ' * (mlp.experts > mlp.chosen)}{'b / 2 * ' * (size != BF16)}"
    formula = lambda links: f"{before}C{links.time_suffix}{' / m' * (cut.devices > 1)}"
    m = Input("m", cut.devices, "devices", "that hold one copy of what is sent")
    form = ClosedForm("tokens", formula, (*_letters(replace(mlp, bytes=size), cluster), m))
    shared_by = cut.tensor * cut.stage
    return Exchange(groups, cluster, lambda rows: calls, work, form, shared_by=shared_by)


def of_activations(
    mlp: MlpShape, groups: np.ndarray, cluster: Cluster, products: int = 2
) -> Exchange:
    """Return what tensor parallelism exchanges of some rows, the tokens of one replica.

    T_math = 2 p B D F / (Y C); T_comms = 2 b B D over the links: the activations [rows, D] are
    gathered before the products and scattered behind them. Products count as fast as on one device:
    that thin ones are slower does not make the axis more useful. `times_hidden` so is the number of
    devices up to which the axis is hidden. `products` are 2, as the guide counts, or 3 with a gate.
    """
    dense = replace(mlp, products=products, experts=1, chosen=1)
    kinds: tuple[CollectiveKind, ...] = ("all-gather", "reduce-scatter")
    calls = lambda rows: tuple((kind, mlp.bytes * rows * mlp.width) for kind in kinds)
    work = lambda rows, profile: math_time(dense, rows, UNSHARDED, cluster.accelerator, profile)
    formula = lambda links: f"{'2 / b * ' * (mlp.bytes != BF16)}F / C{links.limit_suffix}"
    inputs, gate = _letters(replace(mlp, products=products), cluster), "p / 2 * " * (products != 2)
    return Exchange(groups, cluster, calls, work, ClosedForm("devices", formula, inputs, gate))


def of_tokens(
    mlp: MlpShape, tokens: float, groups: np.ndarray, cluster: Cluster, products: int = 2
) -> Exchange:
    """Return both all-to-alls of the tokens that a device routes; unknown: F of an expert.

    T_math = 2 p t k D F / C; T_comms = 2 b t D c over the links, of c copies: a token is sent to
    each node with one of its experts, once, and in a group inside a node to each chip. Nodes of one
    NVLink domain count as one. The guide's rule sends k copies.
    """
    nodes = place_groups(groups.astype(int, copy=False), cluster).nodes
    copies = min(mlp.chosen, nodes if nodes > 1 else groups.shape[1])
    cut = MeshShape(expert=groups.shape[1])
    sent, chip = mlp.bytes * tokens * mlp.width * copies, cluster.accelerator
    moe = replace(mlp, products=products, experts=max(mlp.experts, 2))
    calls: tuple[Call, ...] = (("all-to-all", sent),) * 2
    work = lambda inner, profile: math_time(replace(moe, inner=inner), tokens, cut, chip, profile)
    formula = lambda links: f"{'b / 2 * ' * (mlp.bytes != BF16)}C{links.time_suffix}"
    c = Input("c", copies, "copies", "of a token that are sent, at most one to a node")
    F, C, b, E, k, p = _letters(moe, cluster)
    factors = f"{'2 / p * ' * (products != 2)}c / k * "
    form = ClosedForm("", formula, (c, k, C, b, p), factors)
    return Exchange(groups, cluster, lambda inner: calls, work, form, "all-to-all")


def of_keys(
    model: ModelConfig, mlp: MlpShape, groups: np.ndarray, cluster: Cluster, ring: bool = True
) -> Exchange:
    """Return what context parallelism exchanges; unknown: tokens of a device.

    T_math = 2 t^2 N H / C of a device's keys; T_comms = 2 b t K H over the links. In each hop of a
    ring a device sends the keys and values of its tokens, and scores its queries with those it has
    got (Ring Attention, arXiv 2310.01889); or all of them are gathered beside all scores. Under a
    causal mask, dealt out evenly, half of all pairs count. In a ring each member of a group sends
    to the next: of two, either sends to the other.
    """
    kind: CollectiveKind = "permute" if ring else "all-gather"
    met = 1 if ring else groups.shape[1]  # devices whose keys are met at once
    size = mlp.bytes * exchanged_width(model) * met
    if ring and groups.shape[1] == 2:
        groups = np.concatenate([groups, groups[:, ::-1]])
    heads, of_keys, of_values = model.n_heads, query_key_dim(model), value_dim(model)

    def scores(t: float, profile: Profile) -> float:
        """Seconds of one sequence's attention, half of the pairs of queries and keys, forward."""
        kernel = attention(
            "scores",
            (1.0, heads, t, met * t, float(of_keys)),
            of_values,
            moved=0.0,
            dtype="bf16" if mlp.dtype == "fp8" else mlp.dtype,
            scores=t * (met * t) * heads * VISIBLE,
            visible=1.0,
            library=TRAINING,
        )
        return float(kernel_time(kernel, cluster.accelerator, profile).time)

    F, C, b, *_ = _letters(mlp, cluster)
    K = Input("K", heads if model.mla else model.n_kv_heads, "heads", "of keys and values")
    inputs = (replace(b, meaning="of a number"), C, K, Input("N", heads, "heads", "of queries"))
    formula = lambda links: f"b * C{links.time_suffix} * K / N"
    form = ClosedForm("tokens", formula, inputs)
    return Exchange(groups, cluster, lambda t: ((kind, size * t),), scores, form, kind)


def _letters(mlp: MlpShape, cluster: Cluster) -> tuple[Input, ...]:
    return (
        Input("F", mlp.inner, "", f"width of {'an expert' if mlp.experts > 1 else 'the MLP'}"),
        peak_input(cluster.accelerator, mlp.dtype),
        Input("b", mlp.bytes, "bytes", "of a number that is sent"),
        Input("E", mlp.experts, "experts"),
        Input("k", mlp.chosen, "experts", "of a token"),
        Input("p", mlp.products, "", "products, the gate among them"),
    )
