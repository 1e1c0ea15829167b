"""What training keeps in memory: activations by remat policy, weights and optimiser.

activations    B (L a)          B tokens, a bytes of a token and layer (models.accounting)
checkpoints    n L B D b        the guide's rule: n tensors of width D a layer
states         s P              10 to 18 bytes per parameter
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scaling.models.accounting import activation_bytes, count_parameters
from scaling.models.accounting.flops import hardware_flops, model_flops
from scaling.models.accounting.matrices import BYTES, n_dense_layers, n_moe_layers
from scaling.models.accounting.remat import POLICIES, Remat
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.parameters import COUNT, model_letters
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


def training_memory(run: Run, query: CountQuery) -> list[Answer]:
    """Return the bytes that training keeps: activations, weights and optimiser, of a device too."""
    own = model_letters(run.model) | letters(
        Input("B", query.tokens_per_step, "tokens", "of a step, whole job"),
        Input("b", BYTES[query.dtype], "bytes", query.dtype),
        Input("P", count_parameters(run.model).total, COUNT),
        Input("s", query.bytes_per_parameter, "bytes", "per parameter"),
        Input("X", query.devices, "devices", "that share all of it"),
    )
    activations = _activations(run, query, own)
    found, saved, words = [activations], activations, "activations"
    if query.checkpoints is not None:
        n = Input("n", query.checkpoints, "", "tensors of width D that a layer keeps")
        saved = by_formula("checkpoints", "bytes", "n * L * B * D * b", own | letters(n))
        found, words = [activations, saved], "checkpoints"
    own |= letters(Input("kept", float(saved), "bytes", words))
    rows = tuple(
        {"bytes per parameter": each, "in all (bytes)": each * own["P"].value, "of what": words}
        for each, words in STATES.items()
    )
    everything = "weights, optimiser and activations"
    found += [
        by_formula("weights and optimiser", "bytes", "s * P", own, rows=rows),
        by_formula(f"{everything} of a device", "bytes", "(s * P + kept) / X", own),
    ]
    if query.memory is not None:
        own |= letters(Input("H", query.memory, "bytes", "memory of a device"))
        name = f"devices that {everything} fill"
        found.append(by_formula(name, "devices", "(s * P + kept) / H", own))
    return found


def _activations(run: Run, query: CountQuery, own: Mapping[str, Input]) -> Answer:
    """What the run's remat keeps of a step, with the other policies as rows."""
    policies = dict.fromkeys((*POLICIES, run.remat))
    each = {policy: _of_token(run, policy, query) for policy in policies}
    dense, experts = n_dense_layers(run.model), n_moe_layers(run.model)
    rows = tuple(
        {
            "remat": str(policy),
            "of a token and layer (bytes)": a if dense else e,
            "in all (bytes)": own["B"].value * (dense * a + experts * e),
            "again for a token (FLOPs)": _again(run, policy, query.causal),
        }
        for policy, (a, e) in each.items()
    )
    a, e = each[run.remat]
    terms = [term for term, layers in (("L * a", dense), ("R * e", experts)) if layers]
    sizes = letters(
        Input("L", dense, "", "layers"),
        Input("a", a, "bytes", f"of a token, remat {run.remat}"),
        Input("e", e, "bytes", f"of a token, remat {run.remat}"),
    )
    formula = f"B * ({' + '.join(terms)})"
    return by_formula("activations kept", "bytes", formula, {**own, **sizes}, rows=rows)


def _again(run: Run, policy: Remat, causal: bool) -> float:
    """FLOPs of a token that the backward pass computes again, of an attention that keeps scores."""
    seq = run.batch.seq_len
    executed = hardware_flops(run.model, 1, seq, policy, causal)
    return float(executed - model_flops(run.model, 1, seq, causal)) / seq


def _of_token(run: Run, policy: Remat, query: CountQuery) -> tuple[float, float]:
    """Bytes that a layer keeps of a token: without experts, and with them (0: it has none)."""
    config, seq = run.model, run.batch.seq_len
    sizes = [
        sum(activation_bytes(config, 1, seq, policy, query.dtype, run.attention, moe).values())
        / seq
        if there
        else 0.0
        for there, moe in ((n_dense_layers(config), False), (n_moe_layers(config), True))
    ]
    return sizes[0], sizes[1]
