"""Limits of one axis as answers: formulas in the guide's letters, textbook and fitted numbers."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.contention import place_groups
from scaling.collectives.explain import IDEAL, BindingLink, binding_link, counted_link
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.exchanges import (
    DATA,
    UNSHARDED,
    MlpShape,
    WeightPass,
    expert_copies,
    hidden_from,
    of_activations,
    of_keys,
    of_tokens,
    of_weights,
    times_hidden,
)
from scaling.questions.roofline import peak_input
from scaling.run import Run

STARTED = "fitted: the products of a single token, a whole tile each, already take longer"
BF16 = 2.0  # bytes of a number in the guide's rules: C / W holds for them
IN_SWITCH = tuple(a.name for a in ALGORITHMS.values() if a.in_switch or a.in_network)
HALF = "half the bytes over that link per byte: one way of a sum, of which a ring has two"


@dataclass(frozen=True)
class LimitsContext:
    """What limits are asked of."""

    run: Run
    mlp: MlpShape
    cluster: Cluster
    profile: Profile  # of the fitted numbers

    @property
    def C(self) -> Input:
        """Peak rate of one chip in the run's format."""
        return peak_input(self.cluster.accelerator, self.mlp.dtype)

    @property
    def b(self) -> Input:
        """Bytes of a number that is sent."""
        return Input("b", self.mlp.bytes, "bytes", "of a number that is sent")


def weights_limit(
    s: LimitsContext,
    name: str,
    groups: np.ndarray,
    cut: MeshShape = UNSHARDED,
    over: WeightPass = DATA,
) -> Answer:
    """Return the tokens per device from which an axis over the weights is hidden.

    Its part "rule" is the guide's, without (X - 1) / X; its part "job" the tokens of all devices.
    """
    links = binding_link("all-gather", groups, s.cluster)
    fitted = hidden_from(of_weights(s.mlp, cut, groups, s.cluster, over), s.profile)
    size = sum(map(s.mlp.bytes_in, over.kinds)) / len(over.kinds)
    found = tokens_over(s, name, links, cut, fitted, size)
    rule = tokens_over(s, "rule", links.simplified, cut, size=size)
    job = scaled(found, "job", groups.size, f"tokens of all {groups.size:,} devices")
    return replace(found, parts=(brief(rule), job), notes=() if fitted else (STARTED,))


def switch_limit(s: LimitsContext, groups: np.ndarray, cut: MeshShape = UNSHARDED) -> Answer | None:
    """Return the tokens per device where switches add up what passes; None: no switch can.

    NVLink SHARP adds in a node, SHARP between nodes. In the textbook's number every byte passes
    once, where a ring passes 2 (X - 1) / X of it: half the batch at most. The fitted one is of the
    best algorithm that the libraries have.
    """
    sums, rows = of_weights(s.mlp, cut, groups, s.cluster), list[dict[str, Value]]()
    for name in IN_SWITCH:
        with suppress(InputError):  # an algorithm that cannot run there
            tokens = [hidden_from(sums, profile, name) for profile in (IDEAL, s.profile)]
            row = {"textbook (tokens)": tokens[0], "fitted (tokens)": tokens[1]}
            rows.append({"algorithm": name, **row})
    if not rows:
        return None
    loads = place_groups(groups, s.cluster).loads
    both = (loads(kind)["hierarchical"] for kind in ("all-reduce", "broadcast"))
    least = [
        (level, (once if level.can_reduce else ring).share)
        for (level, ring), (_, once) in zip(*both, strict=True)
    ]
    level, share = max(least, key=lambda pair: pair[1] / pair[0].bandwidth)
    links = counted_link(level, float(share) / 2, HALF)
    fitted = min(float(row["fitted (tokens)"]) for row in rows)  # type: ignore[arg-type]
    found = tokens_over(s, "sums in the switch", links, cut, fitted)
    return replace(found, rows=tuple(rows))


def most_devices(s: LimitsContext, limit: Answer) -> Answer:
    """Return the devices over which the run's batch can be spread at the tokens of a limit."""
    batch = s.run.batch.tokens
    B = Input("B", batch, "tokens", "of a step of the run")
    t = Input("t", float(limit.ideal or 0), "tokens", "that a device needs")
    fitted = batch / limit.fitted if limit.fitted else None  # type: ignore[operator]
    return brief(by_formula("devices for the run's batch", "devices", "B / t", (B, t), fitted))


def brief(answer: Answer) -> Answer:
    """Return the answer as one line: its formula is a note, its parts are left out."""
    whose = "textbook = " * (answer.answer != answer.ideal)
    notes = (whose + answer.formula,) if answer.formula else ()
    return replace(answer, formula="", inputs=(), binds="", parts=(), rows=(), notes=notes)


def scaled(answer: Answer, name: str, factor: float, *notes: str) -> Answer:
    """Return the numbers of an answer multiplied, under another name."""
    values = (answer.answer, answer.ideal, answer.fitted)
    given, ideal, fitted = (None if v is None else float(v) * factor for v in values)
    return Answer(name, given, answer.unit, ideal=ideal, fitted=fitted, notes=notes)


def tokens_over(
    s: LimitsContext,
    name: str,
    links: BindingLink,
    cut: MeshShape = UNSHARDED,
    fitted: float | None = None,
    size: float | None = None,
) -> Answer:
    """Return the tokens per device for weights that pass these links; None: summed gradients.

    T_math = 2 t m (k / E) weights / C of one pass; T_comms = b weights over the links, where b is
    the `size` of a number in bytes.
    """
    size = s.mlp.reduce_bytes if size is None else size
    factors = f"{'E / k * ' * (s.mlp.experts > s.mlp.chosen)}{'b / 2 * ' * (size != BF16)}"
    inputs = (
        s.C,
        replace(s.b, value=size),
        Input("E", s.mlp.experts, "experts"),
        Input("k", s.mlp.chosen, "experts", "of a token"),
        Input("m", cut.devices, "devices", "that hold one copy of what is sent"),
        *links.symbols,
    )
    formula = f"{factors}C{links.time_suffix}{' / m' * (cut.devices > 1)}"
    return by_formula(name, "tokens", formula, inputs, fitted=fitted, binds=links.words)


def tensor_limit(s: LimitsContext, name: str, groups: np.ndarray, rows: float) -> Answer:
    """Return the devices up to which a tensor axis over the links of these groups is hidden.

    T_math = 2 p B D F / (Y C); T_comms = 2 b B D over the links. Its parts are the guide's rule,
    the same with the gate of a SwiGLU, and the F that all devices of a group need.

    Args:
        rows: tokens of one replica, for the fitted number.
    """
    F = Input("F", s.mlp.inner, "", f"width of {'an expert' if s.mlp.experts > 1 else 'the MLP'}")
    Y = Input("Y", groups.shape[1], "devices", "of a group")
    links, is_bf16 = binding_link("all-gather", groups, s.cluster), s.mlp.bytes == BF16
    exchange = lambda products: of_activations(s.mlp, groups, s.cluster, products)
    fitted = lambda products: times_hidden(exchange(products), s.profile, rows)
    formula = lambda links: f"{'2 / b * ' * (not is_bf16)}F / C{links.limit_suffix}"
    asked, inputs = Answer(name, None, "devices"), (F, s.C, s.b)
    found = _with_rule_and_gate(s, asked, links, formula, inputs, fitted, gate="p / 2 * ")
    text = f"{'b / 2 * ' * (not is_bf16)}Y * C{links.time_suffix}"
    width = by_formula("F of all", "", text, (s.C, Y, s.b, *links.symbols))
    return replace(found, parts=(*found.parts, brief(width)))


def expert_limit(s: LimitsContext, name: str, groups: np.ndarray, tokens: float) -> Answer:
    """Return the F of an expert from which both all-to-alls are hidden; the rule sends k copies.

    T_math = 2 p t k D F / C of two products; T_comms = 2 b t D c over the links.

    Args:
        tokens: that a device routes, for the fitted number.
    """
    copies = expert_copies(s.mlp, groups, s.cluster)
    c = Input("c", copies, "copies", "of a token that are sent, at most one to a node")
    k = Input("k", s.mlp.chosen, "experts", "of a token")
    links, size = binding_link("all-to-all", groups, s.cluster), s.mlp.bytes != BF16
    exchange = lambda products: of_tokens(s.mlp, tokens, groups, s.cluster, products)
    fitted = lambda products: hidden_from(exchange(products), s.profile)
    formula = lambda links: f"{'b / 2 * ' * size}C{links.time_suffix}"
    asked, inputs, factors = Answer(name, None), (c, k, s.C, s.b), ("2 / p * ", "c / k * ")
    return _with_rule_and_gate(s, asked, links, formula, inputs, fitted, *factors)


def context_limit(s: LimitsContext, name: str, groups: np.ndarray) -> Answer:
    """Return the tokens per device from which the hops of keys and values are hidden.

    T_math = 2 t^2 N H / C of a device's keys; T_comms = 2 b t K H over the links. Its part is the
    same where they are gathered at once.
    """
    model = s.run.model
    heads = model.n_heads if model.mla else model.n_kv_heads
    K = Input("K", heads, "heads", "of keys and values")
    N = Input("N", model.n_heads, "heads", "of queries")

    def tokens(name: str, ring: bool) -> Answer:
        exchange = of_keys(model, s.mlp, groups, s.cluster, ring)
        links = binding_link("permute" if ring else "all-gather", exchange.groups, s.cluster)
        inputs = (replace(s.b, meaning="of a number"), s.C, K, N, *links.symbols)
        formula, fitted = f"b * C{links.time_suffix} * K / N", hidden_from(exchange, s.profile)
        return by_formula(name, "tokens", formula, inputs, fitted=fitted, binds=links.words)

    return replace(tokens(name, ring=True), parts=(brief(tokens("by all-gather", ring=False)),))


def _with_rule_and_gate(
    s: LimitsContext,
    asked: Answer,
    links: BindingLink,
    formula: Callable[[BindingLink], str],
    inputs: tuple[Input, ...],
    fitted: Callable[[int], float],
    gate: str,
    exact: str = "",
) -> Answer:
    """The limit; parts are the guide's rule, and that with the third product of a gate if any.

    `fitted` is by the number of products, `gate` the factor of a gate, `exact` one that the rule
    does not have.
    """
    inputs = (*inputs, Input("p", s.mlp.products, "", "products, the gate among them"))

    def over(links: BindingLink, factors: str, name: str, products: int | None) -> Answer:
        reached = None if products is None else fitted(products)
        given, text = (*inputs, *links.symbols), factors + formula(links)
        return by_formula(name, asked.unit, text, given, fitted=reached, binds=links.words)

    parts = [brief(over(links.simplified, "", "rule", None))]
    if s.mlp.products > 2:
        parts.append(brief(over(links, gate + exact, "with the gate", s.mlp.products)))
    return replace(over(links, exact, asked.name, 2), parts=tuple(parts))
