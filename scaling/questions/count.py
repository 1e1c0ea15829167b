"""What a model costs by counting: FLOPs of a token, its cache, what training keeps, whole runs.

    forward      2 A + 2 M + 2 D V + 2 c L N T (q + v)     FLOPs of a token at context T
    training     3 forward                                  the rule: 6 x parameters
    KV cache     2 L K H z                                  bytes of a token
    run          6 P tokens                                 FLOPs; Chinchilla: 20 tokens a parameter
    activations  B (L a)          B tokens, a bytes of a token and layer (models.accounting)
    checkpoints  n L B D b        the guide's rule: n tensors of width D a layer
    states       s P              10 to 18 bytes per parameter

A and M are the weights of attention and MLP that a token passes (`scaling.questions.parameters`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scaling.models.accounting import activation_bytes
from scaling.models.accounting.flops import FORWARD_AND_BACKWARD, hardware_flops, model_flops
from scaling.models.accounting.matrices import (
    BYTES,
    STORED_BYTES,
    attention_matrices,
    layer_kinds,
    mean_context,
    stacks,
)
from scaling.models.accounting.remat import POLICIES, Remat
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.parameters import COUNT, CountedModel, parameters
from scaling.run import Run

TOKENS_PER_PARAMETER = 20  # Hoffmann et al., arXiv 2203.15556, table 3: about 20 in every row
SECTION = "transformers: counting FLOPs"
FORWARD = "forward FLOPs of a token"
PASSES = Input("r", FORWARD_AND_BACKWARD, "", "products: forward, two backward")
CORE = "2 * c * L * N * (q + v)"  # FLOPs of attention's core for every token of the context

# Bytes per parameter of weights, gradients and AdamW's moments.
STATES: Mapping[float, str] = {
    10: "bf16 weights, fp32 moments, no copy of gradients (the guide)",
    12: "fp32 weights and moments, no copy of gradients",
    16: "bf16 weights and gradients, fp32 weights and moments (ZeRO, arXiv 1910.02054, 3.1)",
    18: "the same with gradients in fp32 (Megatron-LM, docs on its distributed optimizer)",
}


@dataclass(frozen=True)
class CountQuery:
    """What is asked of a run beside its own values."""

    tokens_per_step: float
    kv: str = "bf16"  # format of the cache
    dtype: str = "bf16"  # of activations
    tokens: float | None = None  # of the whole training; None: Chinchilla's
    checkpoints: float | None = None  # tensors of width D that a layer keeps
    bytes_per_parameter: float = 10
    devices: int = 1
    causal: bool = False
    memory: float | None = None  # bytes of a device: asks how many hold it


def count(run: Run, query: CountQuery) -> Answer:
    """Return the parameters of a model, with FLOPs, caches, memory and training as parts."""
    model, seq = CountedModel(run.model), run.batch.seq_len
    answer = parameters(model)
    parts = (
        *answer.parts,
        *_flops(model, seq, query.causal),
        *_cache(model, seq, query),
        *_memory(run, model, query),
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
    others = [s for s in stacks(model.config) if s.name not in attention_matrices(model.config)]
    passed = sum(s.layers * s.used * s.size for s in others)  # of MLPs, experts and routers
    M = Input("M", passed, COUNT, "MLP, as far as a token passes it")
    T = Input("T", mean_context(model.config, seq), "tokens", "context")
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
    given = letters(
        Input("f", float(forward), "FLOPs", "forward"),
        Input("core", float(forward["attention core"]), "FLOPs", "attention core"),
        Input("P", model.count.active, COUNT, "that a token uses"),
        PASSES,
    )
    context = lambda what, sums: model.answer(
        f"context at which the attention core costs as much as {what}",
        *("tokens", f"2 * {sums} / ({CORE})", A, M, c),
    )
    return [
        forward,
        by_formula("training FLOPs of a token", "FLOPs", "r * f", given),
        by_formula("6 x parameters", "FLOPs", "6 * P", given),
        by_formula("exact over 6 x parameters", "", "r * f / (6 * P)", given),
        by_formula("attention core's share", "", "core / f", given),
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
        Input("S", mean_context(model.config, seq), "tokens", "kept of a sequence"),
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
    given = letters(
        Input("tokens", query.tokens or float(rule), "tokens", "of the training"),
        Input("P", model.count.active, COUNT, "that a token uses"),
        Input("f", float(forward), "FLOPs", "forward, of a token"),
        PASSES,
    )
    name = "FLOPs of the training"
    return [
        rule,
        by_formula(name, "FLOPs", "6 * P * tokens", given, section=SECTION),
        by_formula(f"{name}, exact", "FLOPs", "r * f * tokens", given),
    ]


def _memory(run: Run, model: CountedModel, query: CountQuery) -> list[Answer]:
    """Return the bytes that training keeps: activations, weights and optimiser, of a device too."""
    B = Input("B", query.tokens_per_step, "tokens", "of a step, whole job")
    P = Input("P", model.count.total, COUNT)
    s = Input("s", query.bytes_per_parameter, "bytes", "per parameter")
    X = Input("X", query.devices, "devices", "that share all of it")
    answers = [_activations(run, query, model, B)]
    if query.checkpoints is not None:
        n = Input("n", query.checkpoints, "", "tensors of width D that a layer keeps")
        b = Input("b", BYTES[query.dtype], "bytes", query.dtype)
        answers.append(model.answer("checkpoints", "bytes", "n * L * B * D * b", n, B, b))
    words = "activations" if query.checkpoints is None else "checkpoints"
    kept = Input("kept", float(answers[-1]), "bytes", words)
    rows = tuple(
        {"bytes per parameter": each, "in all (bytes)": each * P.value, "of what": what}
        for each, what in STATES.items()
    )
    everything, total = "weights, optimiser and activations", "(s * P + kept)"
    answers += [
        by_formula("weights and optimiser", "bytes", "s * P", (s, P), rows=rows),
        by_formula(f"{everything} of a device", "bytes", f"{total} / X", (s, P, kept, X)),
    ]
    if query.memory is not None:
        H = Input("H", query.memory, "bytes", "memory of a device")
        name = f"devices that {everything} fill"
        answers.append(by_formula(name, "devices", f"{total} / H", (s, P, kept, H)))
    return answers


def _activations(run: Run, query: CountQuery, model: CountedModel, B: Input) -> Answer:
    """What the run's remat keeps of a step, with the other policies as rows."""
    config, seq = run.model, run.batch.seq_len

    def of_token(policy: Remat, moe: bool) -> float:
        """Bytes that a layer keeps of a token."""
        kept = activation_bytes(config, 1, seq, policy, query.dtype, run.attention, moe)
        return sum(kept.values()) / seq

    credited = model_flops(config, 1, seq, query.causal)
    kinds, rows = layer_kinds(config), []
    for policy in dict.fromkeys((*POLICIES, run.remat)):
        sizes = [of_token(policy, moe) for moe, _ in kinds]
        kept = sum(layers * size for (_, layers), size in zip(kinds, sizes, strict=True))
        # That the backward pass computes again, of an attention that keeps scores:
        again = float(hardware_flops(config, 1, seq, policy, query.causal) - credited) / seq
        rows.append(
            {
                "remat": str(policy),
                "of a token and layer (bytes)": sizes[0],
                "in all (bytes)": B.value * kept,
                "again for a token (FLOPs)": again,
            }
        )
    terms, inputs = [], [B]
    for moe, layers in kinds:
        L, a = ("R", "e") if moe else ("L", "a")
        terms.append(f"{L} * {a}")
        words = f"of a token, remat {run.remat}"
        inputs += [model.letters["R"] if moe else Input("L", layers, "", "layers")]
        inputs += [Input(a, of_token(run.remat, moe), "bytes", words)]
    formula = f"B * ({' + '.join(terms)})"
    return by_formula("activations kept", "bytes", formula, tuple(inputs), rows=tuple(rows))
