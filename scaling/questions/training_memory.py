"""What training keeps in memory: activations by remat policy, weights and optimiser.

activations    B (L a)          B tokens, a bytes of a token and layer (models.accounting)
checkpoints    n L B D b        the guide's rule: n tensors of width D a layer
states         s P              10 to 18 bytes per parameter
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scaling.models.accounting import activation_bytes
from scaling.models.accounting.flops import hardware_flops, model_flops
from scaling.models.accounting.matrices import BYTES, layer_kinds
from scaling.models.accounting.remat import POLICIES, Remat
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.parameters import COUNT, CountedModel
from scaling.run import Run

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


def training_memory(run: Run, model: CountedModel, query: CountQuery) -> list[Answer]:
    """Return the bytes that training keeps: activations, weights and optimiser, of a device too."""
    B = Input("B", query.tokens_per_step, "tokens", "of a step, whole job")
    P = Input("P", model.count.total, COUNT)
    s = Input("s", query.bytes_per_parameter, "bytes", "per parameter")
    X = Input("X", query.devices, "devices", "that share all of it")
    found = [_activations(run, query, model, B)]
    if query.checkpoints is not None:
        n = Input("n", query.checkpoints, "", "tensors of width D that a layer keeps")
        b = Input("b", BYTES[query.dtype], "bytes", query.dtype)
        found.append(model.answer("checkpoints", "bytes", "n * L * B * D * b", n, B, b))
    words = "activations" if query.checkpoints is None else "checkpoints"
    kept = Input("kept", float(found[-1]), "bytes", words)
    rows = tuple(
        {"bytes per parameter": each, "in all (bytes)": each * P.value, "of what": what}
        for each, what in STATES.items()
    )
    everything, total = "weights, optimiser and activations", "(s * P + kept)"
    found += [
        by_formula("weights and optimiser", "bytes", "s * P", (s, P), rows=rows),
        by_formula(f"{everything} of a device", "bytes", f"{total} / X", (s, P, kept, X)),
    ]
    if query.memory is not None:
        H = Input("H", query.memory, "bytes", "memory of a device")
        name = f"devices that {everything} fill"
        found.append(by_formula(name, "devices", f"{total} / H", (s, P, kept, H)))
    return found


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
