"""What a model costs by counting: FLOPs of a token, its cache, what training keeps, whole runs.

    forward      2 A + 2 M + 2 D V + 2 c L N T (q + v)     FLOPs of a token at context T
    training     3 forward                                  the rule: 6 x parameters
    KV cache     2 L K H z                                  bytes of a token
    run          6 P tokens                                 FLOPs; Chinchilla: 20 tokens a parameter

A and M are the weights of attention and MLP that a token passes (`scaling.questions.parameters`).
"""

from dataclasses import replace

from scaling.models.accounting import count_parameters
from scaling.models.accounting.flops import FORWARD_AND_BACKWARD
from scaling.models.accounting.matrices import (
    STORED_BYTES,
    query_key_dim,
    value_dim,
)
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.kept import Counted, kept
from scaling.questions.parameters import COUNT, active_mlp, attention, parameters
from scaling.run import Run

TOKENS_PER_PARAMETER = 20  # Hoffmann et al., arXiv 2203.15556, table 3: about 20 in every row
BACKWARD_AND_FORWARD = Input("r", FORWARD_AND_BACKWARD, "", "products: forward, two backward")


def count(run: Run, asked: Counted) -> Answer:
    """Return the parameters of a model, with FLOPs, caches, memory and training as parts."""
    config, seq = run.model, run.batch.seq_len
    answer = parameters(config)
    forward = flops_of_token(config, seq, asked.causal)
    parts = (
        *answer.parts,
        forward,
        *_training_flops(config, forward),
        *_crossings(config, asked.causal),
        *_cache(config, seq, asked),
        *kept(run, asked),
        *_whole_run(config, forward, asked),
    )
    return replace(answer, name=f"parameters of {run.name}", parts=parts)


def flops_of_token(config: ModelConfig, seq: int, causal: bool = False) -> Answer:
    """Return the matrix FLOPs of one token in a forward pass at a context of `seq` tokens.

    Args:
        config: the model.
        seq: tokens; a sliding window that is shorter bounds the context.
        causal: half of the scores count, as a kernel that skips masked ones computes them.
    """
    A, M = _weights(config)
    core, inputs = _core(config, causal)
    context = Input("T", min(seq, config.sliding_window or seq), "tokens", "context")
    D, V = (
        Input("D", config.d_model, "", "d_model"),
        Input("V", config.vocab_size, "", "vocabulary"),
    )
    parts = (
        by_formula("projections", "FLOPs", "2 * A", (A,)),
        by_formula("MLP", "FLOPs", "2 * M", (M,)),
        by_formula("attention core", "FLOPs", f"T * {core}", (context, *inputs)),
        by_formula("head", "FLOPs", "2 * D * V", (D, V)),
    )
    formula = f"2 * A + 2 * M + T * {core} + 2 * D * V"
    symbols = {i.symbol: i for i in (A, M, context, *inputs, D, V)}
    name = "forward FLOPs of a token"
    section = "transformers: counting FLOPs"
    return by_formula(name, "FLOPs", formula, tuple(symbols.values()), section=section, parts=parts)


def _weights(config: ModelConfig) -> tuple[Input, Input]:
    """A and M: weights that a token passes in attention and MLP, of all layers."""
    A = Input("A", attention(config).answer, COUNT, "attention")  # type: ignore[arg-type]
    return A, Input("M", active_mlp(config), COUNT, "MLP, as far as a token passes it")


def _core(config: ModelConfig, causal: bool) -> tuple[str, tuple[Input, ...]]:
    """FLOPs of scores and average of values, of one token for every token of its context."""
    inputs = (
        Input("c", 0.5 if causal else 1, "", "of the scores that count"),
        Input("L", config.n_layers, "", "layers"),
        Input("N", config.n_heads, "", "heads"),
        Input("q", query_key_dim(config), "", "head dimension of queries and keys"),
        Input("v", value_dim(config), "", "head dimension of values"),
    )
    return "2 * c * L * N * (q + v)", inputs


def _training_flops(config: ModelConfig, forward: Answer) -> list[Answer]:
    """FLOPs of a token forward and backward, the rule of six, and attention's share."""
    f = Input("f", float(forward), "FLOPs", "forward")
    core = Input("core", float(forward["attention core"]), "FLOPs", "attention core")
    P = Input("P", count_parameters(config).active, COUNT, "that a token uses")
    exact = by_formula("training FLOPs of a token", "FLOPs", "r * f", (BACKWARD_AND_FORWARD, f))
    return [
        exact,
        by_formula("6 x parameters", "FLOPs", "6 * P", (P,)),
        by_formula(
            "exact over 6 x parameters", "", "r * f / (6 * P)", (BACKWARD_AND_FORWARD, f, P)
        ),
        by_formula("attention core's share", "", "core / f", (core, f)),
    ]


def _crossings(config: ModelConfig, causal: bool) -> list[Answer]:
    """Contexts at which the attention core costs as much as projections, and as the block."""
    A, M = _weights(config)
    core, inputs = _core(config, causal)
    return [
        by_formula(
            "context at which the attention core costs as much as its projections", "tokens",
            f"2 * A / ({core})", (A, *inputs),
        ),
        by_formula(
            "context at which the attention core costs as much as all else in a layer", "tokens",
            f"2 * (A + M) / ({core})", (A, M, *inputs),
        ),
    ]  # fmt: skip


def _cache(config: ModelConfig, seq: int, asked: Counted) -> list[Answer]:
    """Bytes of the KV cache: of a token, a sequence, the batch."""
    z = Input("z", STORED_BYTES[asked.kv], "bytes", f"{asked.kv} cache")
    L = Input("L", config.n_layers, "", "layers")
    if config.mla:
        formula, latent = "L * (C + r) * z", config.mla
        own = (
            Input("C", latent.kv_lora_rank, "", "latent of keys and values"),
            Input("r", latent.qk_rope_head_dim, "", "rotated head dimension"),
        )
    else:
        formula = "2 * L * K * H * z"
        own = (
            Input("K", config.n_kv_heads, "", "heads of keys and values"),
            Input("H", config.head_dim, "", "head dimension"),
        )
    of_token = by_formula(
        "KV cache of a token", "bytes", formula, (L, *own, z), section="inference: KV cache"
    )
    kv = Input("kv", float(of_token), "bytes", "of a token")
    S = Input("S", min(seq, config.sliding_window or seq), "tokens", "kept of a sequence")
    B = Input("B", asked.tokens_per_step / seq, "", "sequences")
    return [
        of_token,
        by_formula("KV cache of a sequence", "bytes", "S * kv", (S, kv)),
        by_formula("KV cache of the batch", "bytes", "B * S * kv", (B, S, kv)),
    ]


def _whole_run(config: ModelConfig, forward: Answer, asked: Counted) -> list[Answer]:
    """Tokens by Chinchilla's rule, and FLOPs of a training by six times the parameters."""
    counted = count_parameters(config)
    ratio = Input("ratio", TOKENS_PER_PARAMETER, "tokens", "per parameter")
    rule = by_formula(
        "tokens by Chinchilla's rule", "tokens", "ratio * P",
        (ratio, Input("P", counted.total, COUNT)),
    )  # fmt: skip
    given = float(rule) if asked.tokens is None else asked.tokens
    tokens = Input("tokens", given, "tokens", "of the training")
    P = Input("P", counted.active, COUNT, "that a token uses")
    f = Input("f", float(forward), "FLOPs", "forward, of a token")
    inputs = (BACKWARD_AND_FORWARD, f, tokens)
    section = "transformers: counting FLOPs"
    return [
        rule,
        by_formula(
            "FLOPs of the training", "FLOPs", "6 * P * tokens", (P, tokens), section=section
        ),
        by_formula("FLOPs of the training, exact", "FLOPs", "r * f * tokens", inputs),
    ]
