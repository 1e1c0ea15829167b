"""Limits of one axis as answers: formulas in the guide's letters, textbook and fitted numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.explain import BindingLink, binding_link
from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.block import UNSHARDED, MlpShape, WeightShards
from scaling.questions.exchanges import (
    DATA,
    WeightPass,
    expert_copies,
    hidden_from,
    of_activations,
    of_keys,
    of_tokens,
    of_weights,
    times_hidden,
)
from scaling.questions.kernel_target import peak_input
from scaling.run import Run

STARTED = "fitted: the products of a single token, a whole tile each, already take longer"
BF16 = 2.0  # bytes of a number in the guide's rules: C / W holds for them


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


def weights_limit(
    s: LimitsContext,
    name: str,
    groups: np.ndarray,
    cut: WeightShards = UNSHARDED,
    over: WeightPass = DATA,
) -> Answer:
    """Return the tokens per device from which an axis over the weights is hidden.

    Its part "rule" is the guide's, without (X - 1) / X; its part "job" the tokens of all devices.
    """
    links = binding_link("all-gather", groups, s.cluster)
    fitted = hidden_from(of_weights(s.mlp, cut, groups, s.cluster, over), s.profile)
    sizes = [s.mlp.bytes if kind == "all-gather" else s.mlp.reduce_bytes for kind in over.kinds]
    size = sum(sizes) / len(sizes)
    found = tokens_over(s, name, links, cut, fitted, size)
    rule = tokens_over(s, "rule", links.simplified, cut, size=size)
    whole = float(found.ideal or 0) * groups.size, fitted * groups.size
    note = f"tokens of all {groups.size:,} devices"
    job = Answer("job", whole[1], "tokens", ideal=whole[0], fitted=whole[1], notes=(note,))
    notes = () if fitted else (STARTED,)
    return replace(found, parts=(brief(rule), job), notes=notes)


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


def tokens_over(
    s: LimitsContext,
    name: str,
    links: BindingLink,
    cut: WeightShards = UNSHARDED,
    fitted: float | None = None,
    size: float | None = None,
) -> Answer:
    """Return the tokens per device for weights that pass these links; None: summed gradients.

    T_math = 2 t m (k / E) weights / C of one pass; T_comms = b weights over the links, where b is
    the `size` of a number in bytes.
    """
    size = s.mlp.reduce_bytes if size is None else size
    inputs, formula = [s.C], f"C{links.time_suffix}"
    if size != BF16:
        formula = f"b / 2 * {formula}"
        inputs.append(Input("b", size, "bytes", "of a number that is sent"))
    if s.mlp.experts > s.mlp.chosen:
        formula = f"E / k * {formula}"
        inputs.append(Input("E", s.mlp.experts, "experts"))
        inputs.append(Input("k", s.mlp.chosen, "experts", "of a token"))
    if cut.parts > 1:
        formula += " / m"
        inputs.append(Input("m", cut.parts, "devices", "that hold one copy of what is sent"))
    given = (*inputs, *links.symbols)
    return by_formula(name, "tokens", formula, given, fitted=fitted, binds=links.words)


def tensor_limit(s: LimitsContext, name: str, groups: np.ndarray, rows: float) -> Answer:
    """Return the devices up to which a tensor axis over the links of these groups is hidden.

    T_math = 2 p B D F / (Y C); T_comms = 2 b B D over the links. Its parts are the guide's rule,
    the same with the gate of a SwiGLU, and the F that all devices of a group need.

    Args:
        rows: tokens of one replica, for the fitted number.
    """
    size, sent = _sent(s)
    F = Input("F", s.mlp.inner, "", f"width of {'an expert' if s.mlp.experts > 1 else 'the MLP'}")

    def devices(name: str, links: BindingLink, products: int, fitted: float | None) -> Answer:
        formula, given = ("2 / b * F" if size else "F"), (F, s.C, *sent)
        if products != 2:
            formula = f"p / 2 * {formula}"
            given = (*given, _gated(products))
        formula, given = f"{formula} / C{links.limit_suffix}", (*given, *links.symbols)
        return by_formula(name, "devices", formula, given, fitted=fitted, binds=links.words)

    exchange = lambda products: of_activations(s.mlp, groups, s.cluster, products)
    fitted = lambda products: times_hidden(exchange(products), s.profile, rows)
    links = binding_link("all-gather", groups, s.cluster)
    parts = _rule_and_gate(s, devices, links, fitted)
    Y = Input("Y", groups.shape[1], "devices", "of a group")
    width = (s.C, Y, *sent, *links.symbols)
    parts.append(brief(by_formula("F of all", "", f"{size}Y * C{links.time_suffix}", width)))
    return replace(devices(name, links, 2, fitted(2)), parts=tuple(parts))


def expert_limit(s: LimitsContext, name: str, groups: np.ndarray, tokens: float) -> Answer:
    """Return the F of an expert from which both all-to-alls are hidden; the rule sends k copies.

    T_math = 2 p t k D F / C of two products; T_comms = 2 b t D c over the links.

    Args:
        tokens: that a device routes, for the fitted number.
    """
    size, sent = _sent(s)
    c = expert_copies(s.mlp, groups, s.cluster)
    copies = (
        Input("c", c, "copies", "of a token that are sent, at most one to a node"),
        Input("k", s.mlp.chosen, "experts", "of a token"),
    )

    def width(name: str, links: BindingLink, products: int, fitted: float | None) -> Answer:
        formula, given = f"{size}C{links.time_suffix}", (s.C, *sent, *links.symbols)
        if name != "rule":
            formula, given = f"c / k * {formula}", (*copies, *given)
        if products != 2:
            formula, given = f"2 / p * {formula}", (*given, _gated(products))
        return by_formula(name, "", formula, given, fitted=fitted, binds=links.words)

    exchange = lambda products: of_tokens(s.mlp, tokens, groups, s.cluster, products)
    fitted = lambda products: hidden_from(exchange(products), s.profile)
    links = binding_link("all-to-all", groups, s.cluster)
    parts = tuple(_rule_and_gate(s, width, links, fitted))
    return replace(width(name, links, 2, fitted(2)), parts=parts)


def context_limit(s: LimitsContext, name: str, groups: np.ndarray) -> Answer:
    """Return the tokens per device from which the hops of keys and values are hidden.

    T_math = 2 t^2 N H / C of a device's keys; T_comms = 2 b t K H over the links. Its part is the
    same where they are gathered at once.
    """
    model = s.run.model

    def tokens(name: str, ring: bool) -> Answer:
        exchange = of_keys(model, s.mlp, groups, s.cluster, ring)
        links = binding_link("permute" if ring else "all-gather", exchange.groups, s.cluster)
        heads = model.n_heads if model.mla else model.n_kv_heads
        given = (
            Input("b", s.mlp.bytes, "bytes", "of a number"),
            s.C,
            Input("K", heads, "heads", "of keys and values"),
            Input("N", model.n_heads, "heads", "of queries"),
            *links.symbols,
        )
        formula, fitted = f"b * C{links.time_suffix} * K / N", hidden_from(exchange, s.profile)
        return by_formula(name, "tokens", formula, given, fitted=fitted, binds=links.words)

    return replace(tokens(name, ring=True), parts=(brief(tokens("by all-gather", ring=False)),))


def _rule_and_gate(
    s: LimitsContext,
    answer: Callable[[str, BindingLink, int, float | None], Answer],
    links: BindingLink,
    fitted: Callable[[int], float],
) -> list[Answer]:
    """The guide's rule, and the answer with the third product of a gate where there is one."""
    parts = [brief(answer("rule", links.simplified, 2, None))]
    if s.mlp.products > 2:
        gated = answer("with the gate", links, s.mlp.products, fitted(s.mlp.products))
        parts.append(brief(gated))
    return parts


def _gated(products: int) -> Input:
    return Input("p", products, "", "products, the gate among them")


def _sent(s: LimitsContext) -> tuple[str, tuple[Input, ...]]:
    """The bytes of a number as a factor, and its input; nothing for the guide's two."""
    if s.mlp.bytes == BF16:
        return "", ()
    return "b / 2 * ", (Input("b", s.mlp.bytes, "bytes", "of a number that is sent"),)
