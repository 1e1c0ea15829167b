"""Limits of one axis as answers: formulas in the guide's letters, textbook and fitted numbers."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.contention import place_groups
from scaling.collectives.explain import IDEAL, BindingLink, counted_link
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.exchanges import (
    BF16,
    DATA,
    UNSHARDED,
    ClosedForm,
    Exchange,
    MlpShape,
    WeightPass,
    hidden_from,
    of_activations,
    of_keys,
    of_tokens,
    of_weights,
    times_hidden,
)
from scaling.run import Run

STARTED = "fitted: the products of a single token, a whole tile each, already take longer"
IN_SWITCH = tuple(a.name for a in ALGORITHMS.values() if a.in_switch or a.in_network)
HALF = "half the bytes over that link per byte: one way of a sum, of which a ring has two"


@dataclass(frozen=True)
class LimitsContext:
    """What limits are asked of."""

    run: Run
    mlp: MlpShape
    cluster: Cluster
    profile: Profile  # of the fitted numbers


def limit(name: str, form: ClosedForm, links: BindingLink, fitted: float | None = None) -> Answer:
    """Return the amount from which an exchange over these links is hidden, by its formula."""
    inputs, formula = (*form.inputs, *links.symbols), form.factors + form.formula(links)
    return by_formula(name, form.unit, formula, inputs, fitted=fitted, binds=links.words)


def rule(form: ClosedForm, links: BindingLink) -> Answer:
    """Return the guide's rule: for many units, without (X - 1) / X."""
    return brief(limit("rule", replace(form, factors=""), links.simplified))


def weights_limit(
    s: LimitsContext,
    name: str,
    groups: np.ndarray,
    cut: MeshShape = UNSHARDED,
    over: WeightPass = DATA,
) -> Answer:
    """Return the tokens per device from which an axis over the weights is hidden.

    Its part "rule" is the guide's, its part "job" the tokens of all devices.
    """
    exchange = of_weights(s.mlp, cut, groups, s.cluster, over)
    links, fitted = exchange.links, hidden_from(exchange, s.profile)
    answer = limit(name, exchange.textbook, links, fitted)
    job = scaled(answer, "job", groups.size, f"tokens of all {groups.size:,} devices")
    notes, parts = () if fitted else (STARTED,), (rule(exchange.textbook, links), job)
    return replace(answer, parts=parts, notes=notes)


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
    return replace(limit("sums in the switch", sums.textbook, links, fitted), rows=tuple(rows))


def tensor_limit(s: LimitsContext, name: str, groups: np.ndarray, rows: float) -> Answer:
    """Return the devices up to which a tensor axis over the links of these groups is hidden.

    Its parts are the guide's rule, the same with the gate of a SwiGLU, and the F that all devices
    of a group need. `rows` are tokens of one replica, for the fitted number.
    """
    exchange_of = lambda products: of_activations(s.mlp, groups, s.cluster, products)
    answer = _with_gate(s, name, exchange_of, lambda each: times_hidden(each, s.profile, rows))
    exchange = exchange_of(2)
    Y = Input("Y", groups.shape[1], "devices", "of a group")
    formula = f"{'b / 2 * ' * (s.mlp.bytes != BF16)}Y * C{exchange.links.time_suffix}"
    F, C, b, *_ = exchange.textbook.inputs
    width = by_formula("F of all", "", formula, (C, Y, b, *exchange.links.symbols))
    return replace(answer, parts=(*answer.parts, brief(width)))


def expert_limit(s: LimitsContext, name: str, groups: np.ndarray, tokens: float) -> Answer:
    """Return the F of an expert from which both all-to-alls are hidden.

    Its parts are the guide's rule, and the same with a gate. `tokens` are those that a device
    routes, for the fitted number.
    """
    exchange_of = lambda products: of_tokens(s.mlp, tokens, groups, s.cluster, products)
    return _with_gate(s, name, exchange_of, lambda each: hidden_from(each, s.profile))


def context_limit(s: LimitsContext, name: str, groups: np.ndarray) -> Answer:
    """Return the tokens per device from which the hops of keys and values are hidden.

    Its part is the same where they are gathered at once.
    """
    hops, gather = (
        of_keys(s.run.model, s.mlp, groups, s.cluster, ring=ring) for ring in (True, False)
    )
    over = lambda name, each: limit(name, each.textbook, each.links, hidden_from(each, s.profile))
    found = over(name, hops)
    none = "0: by fitted figures the scores of any chunk take longer than a hop"
    parts, notes = (brief(over("by all-gather", gather)),), (none,) * (found.fitted == 0)
    return replace(found, parts=parts, notes=notes)


def _with_gate(
    s: LimitsContext,
    name: str,
    exchange_of: Callable[[int], Exchange],
    fitted: Callable[[Exchange], float],
) -> Answer:
    """The limit of two products; parts are the rule, and the limit with a gate if there is one."""
    exchange = exchange_of(2)
    links, parts = exchange.links, [rule(exchange.textbook, exchange.links)]
    if s.mlp.products > 2:
        gated = exchange_of(s.mlp.products)
        parts.append(brief(limit("with the gate", gated.textbook, links, fitted(gated))))
    return replace(limit(name, exchange.textbook, links, fitted(exchange)), parts=tuple(parts))


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
