"""What a model costs by counting: FLOPs of a token, its cache, what training keeps, whole runs.

    forward      2 A + 2 M + 2 D V + 2 c L N T (q + v)     FLOPs of a token at context T
    training     3 forward                                  the rule: 6 x parameters
    KV cache     2 L K H z                                  bytes of a token
    run          6 P tokens                                 FLOPs; Chinchilla: 20 tokens a parameter

A and M are the weights of attention and MLP that a token passes (`scaling.questions.parameters`).
"""

from dataclasses import replace

from scaling.models.accounting.flops import FORWARD_AND_BACKWARD
from scaling.models.accounting.matrices import STORED_BYTES
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.parameters import COUNT, CountedModel, parameters
from scaling.questions.training_memory import CountQuery, training_memory
from scaling.run import Run

TOKENS_PER_PARAMETER = 20  # Hoffmann et al., arXiv 2203.15556, table 3: about 20 in every row
SECTION = "transformers: counting FLOPs"
FORWARD = "forward FLOPs of a token"
PASSES = Input("r", FORWARD_AND_BACKWARD, "", "products: forward, two backward")
CORE = "2 * c * L * N * (q + v)"  # FLOPs of attention's core for every token of the context


def count(run: Run, query: CountQuery) -> Answer:
    """Return the parameters of a model, with FLOPs, caches, memory and training as parts."""
    model, seq = CountedModel(run.model), run.batch.seq_len
    answer = parameters(model)
    parts = (
        *answer.parts,
        *_flops(model, seq, query.causal),
        *_cache(model, seq, query),
        *training_memory(run, model, query),
    )
    forward = next(part for part in parts if part.name == FORWARD)
    parts = (*parts, *_whole_run(model, forward, query))
    return replace(answer, name=f"parameters of {run.name}", parts=parts)


def _flops(model: CountedModel, seq: int, causal: bool) -> list[Answer]:
    """The matrix FLOPs of one token in a forward pass, in training, and where attention rules.

    A sliding window that is shorter bounds the context. With `causal` half of the scores count, as
    a kernel that skips masked ones computes them.
    """
    A = Input("A", float(model.attention), COUNT, "attention")
    M = Input("M", model.active_mlp, COUNT, "MLP, as far as a token passes it")
    T = Input("T", min(seq, model.config.sliding_window or seq), "tokens", "context")
    c = Input("c", 0.5 if causal else 1, "", "of the scores that count")
    of = lambda name, formula: model.answer(name, "FLOPs", formula, A, M, T, c)
    parts = (
        of("projections", "2 * A"),
        of("MLP", "2 * M"),
        of("attention core", f"T * {CORE}"),
        of("head", "2 * D * V"),
    )
    forward = of(FORWARD, f"2 * A + 2 * M + T * {CORE} + 2 * D * V")
    forward = replace(forward, section=SECTION, parts=parts)
    own = letters(
        Input("f", float(forward), "FLOPs", "forward"),
        Input("core", float(forward["attention core"]), "FLOPs", "attention core"),
        Input("P", model.count.active, COUNT, "that a token uses"),
        PASSES,
    )
    as_much = "context at which the attention core costs as much as"
    context = lambda what, sums: model.answer(
        f"{as_much} {what}", "tokens", f"2 * {sums} / ({CORE})", A, M, c
    )
    return [
        forward,
        by_formula("training FLOPs of a token", "FLOPs", "r * f", own),
        by_formula("6 x parameters", "FLOPs", "6 * P", own),
        by_formula("exact over 6 x parameters", "", "r * f / (6 * P)", own),
        by_formula("attention core's share", "", "core / f", own),
        context("its projections", "A"),
        context("all else in a layer", "(A + M)"),
    ]


def _cache(model: CountedModel, seq: int, query: CountQuery) -> list[Answer]:
    """Bytes of the KV cache of a token, a sequence and a batch: `models.accounting` as text."""
    z = Input("z", STORED_BYTES[query.kv], "bytes", f"{query.kv} cache")
    formula = "L * (C + r) * z" if model.config.mla else "2 * L * K * H * z"
    section = "inference: KV cache"
    of_token = model.answer("KV cache of a token", "bytes", formula, z, section=section)
    sizes = letters(
        Input("kv", float(of_token), "bytes", "of a token"),
        Input("S", min(seq, model.config.sliding_window or seq), "tokens", "kept of a sequence"),
        Input("B", query.tokens_per_step / seq, "", "sequences"),
    )
    return [
        of_token,
        by_formula("KV cache of a sequence", "bytes", "S * kv", sizes),
        by_formula("KV cache of the batch", "bytes", "B * S * kv", sizes),
    ]


def _whole_run(model: CountedModel, forward: Answer, query: CountQuery) -> list[Answer]:
    """Tokens by Chinchilla's rule, and FLOPs of a training by six times the parameters."""
    ratio = Input("ratio", TOKENS_PER_PARAMETER, "tokens", "per parameter")
    P = Input("P", model.count.total, COUNT)
    rule = by_formula("tokens by Chinchilla's rule", "tokens", "ratio * P", (ratio, P))
    own = letters(
        Input("tokens", query.tokens or float(rule), "tokens", "of the training"),
        Input("P", model.count.active, COUNT, "that a token uses"),
        Input("f", float(forward), "FLOPs", "forward, of a token"),
        PASSES,
    )
    name = "FLOPs of the training"
    return [
        rule,
        by_formula(name, "FLOPs", "6 * P * tokens", own, section=SECTION),
        by_formula(f"{name}, exact", "FLOPs", "r * f * tokens", own),
    ]
