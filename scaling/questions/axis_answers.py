"""Limits of one axis as answers: formulas in the guide's letters, textbook and fitted numbers."""

from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.explain import BindingLink, binding_link
from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.questions import axis_limits as limits
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.axis_limits import DATA, Exchange
from scaling.questions.block import WHOLE, Cut, Mlp
from scaling.questions.kernel_target import peak_input
from scaling.run import Run

STARTED = "fitted: the products of a single token, a whole tile each, already take longer"
BF16 = 2.0  # bytes of a number in the guide's rules: C / W holds for them


@dataclass(frozen=True)
class LimitsContext:
    """What limits are asked of."""

    run: Run
    mlp: Mlp
    cluster: Cluster
    profile: Profile  # of the fitted numbers

    @property
    def C(self) -> Input:
        """Peak rate of one chip in the run's format."""
        return peak_input(self.cluster.accelerator, self.mlp.dtype)


def weights_limit(
    s: LimitsContext, name: str, groups: np.ndarray, cut: Cut = WHOLE, exchange: Exchange = DATA
) -> Answer:
    """Return the tokens per device from which an axis over the weights is hidden.

    Its part "rule" is the guide's, without (X - 1) / X; its part "job" the tokens of all devices.
    """
    links = binding_link("all-gather", groups, s.cluster)
    fitted = limits.critical_tokens(s.mlp, cut, groups, s.cluster, s.profile, exchange)
    sizes = [s.mlp.bytes if kind == "all-gather" else s.mlp.reduce_bytes for kind in exchange.kinds]
    found = _tokens(s, name, sum(sizes) / len(sizes), cut, links, fitted)
    rule = _tokens(s, "rule", sum(sizes) / len(sizes), cut, links.simplified, None)
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


def tokens_over(
    s: LimitsContext, name: str, links: BindingLink, cut: Cut = WHOLE, fitted: float | None = None
) -> Answer:
    """Return the tokens per device for gradients that are summed over these links."""
    return _tokens(s, name, s.mlp.reduce_bytes, cut, links, fitted)


def brief(answer: Answer) -> Answer:
    """Return the answer as one line: its formula is a note, its parts are left out."""
    whose = "textbook = " * (answer.answer != answer.ideal)
    notes = (whose + answer.formula,) if answer.formula else ()
    return replace(answer, formula="", inputs=(), binds="", parts=(), rows=(), notes=notes)


def _tokens(
    s: LimitsContext, name: str, size: float, cut: Cut, links: BindingLink, fitted: float | None
) -> Answer:
    """T_math = 2 t m (k / E) weights / C of one pass; T_comms = b weights over the links."""
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

    Its parts are the guide's rule, the same with the gate of a SwiGLU, and the F that all devices
    of a group need.

    Args:
        rows: tokens of one replica, for the fitted number.
    """
    links = binding_link("all-gather", groups, s.cluster)
    asked = (s.mlp, rows, groups, s.cluster)
    fitted = limits.tensor_limit(*asked, s.profile)
    parts = [brief(_ways(s, "rule", links.simplified, 2, None))]
    if s.mlp.products > 2:
        gated = limits.tensor_limit(*asked, s.profile, s.mlp.products)
        parts.append(brief(_ways(s, "with the gate", links, s.mlp.products, gated)))
    Y = Input("Y", groups.shape[1], "devices", "of a group")
    size, inputs = _sent(s)
    width = (s.C, Y, *inputs, *links.symbols)
    parts.append(brief(by_formula("F of all", "", f"{size}Y * C{links.time_suffix}", width)))
    return replace(_ways(s, name, links, 2, fitted), parts=tuple(parts))


def _ways(
    s: LimitsContext, name: str, links: BindingLink, products: int, fitted: float | None
) -> Answer:
    """T_math = 2 p B D F / (Y C); T_comms = 2 b B D over the links."""
    size, inputs = _sent(s)
    F = Input(
        "F", s.mlp.inner, "", "width of an expert" if s.mlp.experts > 1 else "width of the MLP"
    )
    formula = "F" if not size else "2 / b * F"
    if products != 2:
        formula = f"p / 2 * {formula}"
        inputs = (*inputs, Input("p", products, "", "products, the gate among them"))
    formula = f"{formula} / C{links.limit_suffix}"
    given = (F, s.C, *inputs, *links.symbols)
    return by_formula(name, "devices", formula, given, fitted=fitted, binds=links.words)


def expert_limit(s: LimitsContext, name: str, groups: np.ndarray, tokens: float) -> Answer:
    """Return the F of an expert from which both all-to-alls are hidden; T_math of two products.

    Args:
        tokens: that a device routes, for the fitted number.
    """
    links = binding_link("all-to-all", groups, s.cluster)
    asked = (s.mlp, tokens, groups, s.cluster)
    fitted = limits.expert_width(*asked, s.profile)
    c = limits.expert_copies(s.mlp, groups, s.cluster)
    given = (Input("c", c, "copies", "of a token that are sent, at most one to a node"),)
    parts = [brief(_width(s, "rule", links.simplified, 2, None, ()))]
    if s.mlp.products > 2:
        gated = limits.expert_width(*asked, s.profile, s.mlp.products)
        parts.append(brief(_width(s, "with the gate", links, s.mlp.products, gated, given)))
    return replace(_width(s, name, links, 2, fitted, given), parts=tuple(parts))


def _width(
    s: LimitsContext,
    name: str,
    links: BindingLink,
    products: int,
    fitted: float | None,
    copies: tuple[Input, ...],
) -> Answer:
    """T_math = 2 p t k D F / C; T_comms = 2 b t D c over the links."""
    size, inputs = _sent(s)
    formula, given = f"{size}C{links.time_suffix}", (s.C, *inputs, *links.symbols)
    if copies:
        formula = f"c / k * {formula}"
        given = (*copies, Input("k", s.mlp.chosen, "experts", "of a token"), *given)
    if products != 2:
        formula = f"2 / p * {formula}"
        given = (*given, Input("p", products, "", "products, the gate among them"))
    return by_formula(name, "", formula, given, fitted=fitted, binds=links.words)


def context_limit(s: LimitsContext, name: str, groups: np.ndarray) -> Answer:
    """Return the tokens per device from which the hops of keys and values are hidden.

    Its part is the same where they are gathered at once.
    """
    ring = binding_link("permute", limits.in_a_ring(groups), s.cluster)
    gather = binding_link("all-gather", groups, s.cluster)
    other = brief(_tokens_of_sequence(s, "by all-gather", groups, gather, limits.GATHER))
    return replace(_tokens_of_sequence(s, name, groups, ring, limits.RING), parts=(other,))


def _tokens_of_sequence(
    s: LimitsContext, name: str, groups: np.ndarray, links: BindingLink, method: str
) -> Answer:
    """T_math = 2 t^2 N H / C of a device's keys; T_comms = 2 b t K H over the links."""
    model = s.run.model
    fitted = limits.context_tokens(model, s.mlp, groups, s.cluster, s.profile, method)
    heads = model.n_heads if model.mla else model.n_kv_heads
    given = (
        Input("b", s.mlp.bytes, "bytes", "of a number"),
        s.C,
        Input("K", heads, "heads", "of keys and values"),
        Input("N", model.n_heads, "heads", "of queries"),
        *links.symbols,
    )
    formula = f"b * C{links.time_suffix} * K / N"
    return by_formula(name, "tokens", formula, given, fitted=fitted, binds=links.words)


def _sent(s: LimitsContext) -> tuple[str, tuple[Input, ...]]:
    """The bytes of a number as a factor, and its input; nothing for the guide's two."""
    if s.mlp.bytes == BF16:
        return "", ()
    return "b / 2 * ", (Input("b", s.mlp.bytes, "bytes", "of a number that is sent"),)
