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
from scaling.models.accounting.matrices import STORED_BYTES
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.parameters import (
    COUNT,
    active_mlp,
    attention,
    model_letters,
    parameters,
)
from scaling.questions.training_memory import CountQuery, training_memory
from scaling.run import Run

TOKENS_PER_PARAMETER = 20  # Hoffmann et al., arXiv 2203.15556, table 3: about 20 in every row
SECTION = "transformers: counting FLOPs"
CORE = "2 * c * L * N * (q + v)"  # FLOPs of attention's core for every token of the context


def count(run: Run, query: CountQuery) -> Answer:
    """Return the parameters of a model, with FLOPs, caches, memory and training as parts."""
    config, seq = run.model, run.batch.seq_len
    answer = parameters(config)
    forward = flops_of_token(config, seq, query.causal)
    parts = (
        *answer.parts,
        forward,
        *_training_flops(config, forward),
        *_crossings(config, query.causal),
        *_cache(config, seq, query),
        *training_memory(run, query),
        *_whole_run(config, forward, query),
    )
    return replace(answer, name=f"parameters of {run.name}", parts=parts)


def flops_of_token(config: ModelConfig, seq: int, causal: bool = False) -> Answer:
    """Return the matrix FLOPs of one token in a forward pass at a context of `seq` tokens.

    Args:
        config: the model.
        seq: tokens; a sliding window that is shorter bounds the context.
        causal: half of the scores count, as a kernel that skips masked ones computes them.
    """
    T = Input("T", min(seq, config.sliding_window or seq), "tokens", "context")
    own = _flops_letters(config, causal) | letters(T)
    core = f"T * {CORE}"
    parts = (
        by_formula("projections", "FLOPs", "2 * A", own),
        by_formula("MLP", "FLOPs", "2 * M", own),
        by_formula("attention core", "FLOPs", core, own),
        by_formula("head", "FLOPs", "2 * D * V", own),
    )
    name, formula = "forward FLOPs of a token", f"2 * A + 2 * M + {core} + 2 * D * V"
    return by_formula(name, "FLOPs", formula, own, section=SECTION, parts=parts)


def _flops_letters(config: ModelConfig, causal: bool) -> dict[str, Input]:
    """Letters of the FLOPs of a token: A and M are weights that it passes, of all layers."""
    A = Input("A", float(attention(config)), COUNT, "attention")
    M = Input("M", active_mlp(config), COUNT, "MLP, as far as a token passes it")
    c = Input("c", 0.5 if causal else 1, "", "of the scores that count")
    return model_letters(config) | letters(A, M, c)


def _training_flops(config: ModelConfig, forward: Answer) -> list[Answer]:
    """FLOPs of a token forward and backward, the rule of six, and attention's share."""
    own = letters(
        Input("f", float(forward), "FLOPs", "forward"),
        Input("core", float(forward["attention core"]), "FLOPs", "attention core"),
        Input("P", count_parameters(config).active, COUNT, "that a token uses"),
        Input("r", FORWARD_AND_BACKWARD, "", "products: forward, two backward"),
    )
    return [
        by_formula("training FLOPs of a token", "FLOPs", "r * f", own),
        by_formula("6 x parameters", "FLOPs", "6 * P", own),
        by_formula("exact over 6 x parameters", "", "r * f / (6 * P)", own),
        by_formula("attention core's share", "", "core / f", own),
    ]


def _crossings(config: ModelConfig, causal: bool) -> list[Answer]:
    """Contexts at which the attention core costs as much as projections, and as the block."""
    own = _flops_letters(config, causal)
    name = "context at which the attention core costs as much as"
    return [
        by_formula(f"{name} its projections", "tokens", f"2 * A / ({CORE})", own),
        by_formula(f"{name} all else in a layer", "tokens", f"2 * (A + M) / ({CORE})", own),
    ]


def _cache(config: ModelConfig, seq: int, query: CountQuery) -> list[Answer]:
    """Bytes of the KV cache of a token, a sequence and a batch: `models.accounting` as text."""
    z = Input("z", STORED_BYTES[query.kv], "bytes", f"{query.kv} cache")
    formula = "L * (C + r) * z" if config.mla else "2 * L * K * H * z"
    own, section = model_letters(config) | letters(z), "inference: KV cache"
    of_token = by_formula("KV cache of a token", "bytes", formula, own, section=section)
    sizes = letters(
        Input("kv", float(of_token), "bytes", "of a token"),
        Input("S", min(seq, config.sliding_window or seq), "tokens", "kept of a sequence"),
        Input("B", query.tokens_per_step / seq, "", "sequences"),
    )
    return [
        of_token,
        by_formula("KV cache of a sequence", "bytes", "S * kv", sizes),
        by_formula("KV cache of the batch", "bytes", "B * S * kv", sizes),
    ]


def _whole_run(config: ModelConfig, forward: Answer, query: CountQuery) -> list[Answer]:
    """Tokens by Chinchilla's rule, and FLOPs of a training by six times the parameters."""
    counted = count_parameters(config)
    ratio = Input("ratio", TOKENS_PER_PARAMETER, "tokens", "per parameter")
    P = Input("P", counted.total, COUNT)
    rule = by_formula("tokens by Chinchilla's rule", "tokens", "ratio * P", (ratio, P))
    own = letters(
        Input("tokens", query.tokens or float(rule), "tokens", "of the training"),
        Input("P", counted.active, COUNT, "that a token uses"),
        Input("f", float(forward), "FLOPs", "forward, of a token"),
        Input("r", FORWARD_AND_BACKWARD, "", "products: forward, two backward"),
    )
    name = "FLOPs of the training"
    return [
        rule,
        by_formula(name, "FLOPs", "6 * P * tokens", own, section=SECTION),
        by_formula(f"{name}, exact", "FLOPs", "r * f * tokens", own),
    ]
