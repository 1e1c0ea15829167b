"""What training keeps in memory: activations by remat policy, weights and optimiser.

activations    B (L a)          B tokens, a bytes of a token and layer (models.accounting)
checkpoints    n L B D b        the guide's rule: n tensors of width D a layer
states         s P              10 to 18 bytes per parameter
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scaling.models.accounting import activation_bytes, count_parameters
from scaling.models.accounting.flops import hardware_flops, model_flops
from scaling.models.accounting.matrices import BYTES, n_dense_layers, n_moe_layers
from scaling.models.accounting.remat import POLICIES, Remat
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.parameters import COUNT
from scaling.run import Run

# Bytes per parameter of weights, gradients and AdamW's moments.
STATES: Mapping[float, str] = {
    10: "bf16 weights, fp32 moments, no copy of gradients (the guide)",
    12: "fp32 weights and moments, no copy of gradients",
    16: "bf16 weights and gradients, fp32 weights and moments (ZeRO, arXiv 1910.02054, 3.1)",
    18: "the same with gradients in fp32 (Megatron-LM, docs on its distributed optimizer)",
}


@dataclass(frozen=True)
class Counted:
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


def kept(run: Run, asked: Counted) -> list[Answer]:
    """Return the bytes that training keeps: activations, weights and optimiser, of a device too."""
    config = run.model
    B = Input("B", asked.tokens_per_step, "tokens", "of a step, whole job")
    activations = _activations(run, asked, B)
    found, saved = [activations], Input("kept", float(activations), "bytes", "activations")
    if asked.checkpoints is not None:
        inputs = (
            Input("n", asked.checkpoints, "", "tensors of width D that a layer keeps"),
            Input("L", config.n_layers, "", "layers"),
            B,
            Input("D", config.d_model, "", "d_model"),
            Input("b", BYTES[asked.dtype], "bytes", asked.dtype),
        )
        rule = by_formula("checkpoints", "bytes", "n * L * B * D * b", inputs)
        found.append(rule)
        saved = Input("kept", float(rule), "bytes", "checkpoints")
    P = Input("P", count_parameters(config).total, COUNT)
    s = Input("s", asked.bytes_per_parameter, "bytes", "per parameter")
    states = by_formula("weights and optimiser", "bytes", "s * P", (s, P))
    lines: tuple[Mapping[str, Value], ...] = tuple(
        {"bytes per parameter": each, "in all (bytes)": each * P.value, "of what": words}
        for each, words in STATES.items()
    )
    found.append(replace(states, rows=lines))
    X = Input("X", asked.devices, "devices", "that share all of it")
    name = "weights, optimiser and activations of a device"
    found.append(by_formula(name, "bytes", "(s * P + kept) / X", (s, P, saved, X)))
    if asked.memory is not None:
        H = Input("H", asked.memory, "bytes", "memory of a device")
        name = "devices that weights, optimiser and activations fill"
        found.append(by_formula(name, "devices", "(s * P + kept) / H", (s, P, saved, H)))
    return found


def _activations(run: Run, asked: Counted, B: Input) -> Answer:
    """What the run's remat keeps of a step, with the other policies as rows."""
    policies = dict.fromkeys((*POLICIES, run.remat))
    each = {policy: _of_token(run, policy, asked) for policy in policies}
    dense, experts = n_dense_layers(run.model), n_moe_layers(run.model)
    rows: list[Mapping[str, Value]] = [
        {
            "remat": str(policy),
            "of a token and layer (bytes)": a if dense else e,
            "in all (bytes)": B.value * (dense * a + experts * e),
            "again for a token (FLOPs)": _again(run, policy, asked.causal),
        }
        for policy, (a, e) in each.items()
    ]
    a, e = each[run.remat]
    terms, inputs = [], [B]
    for layers, symbol, size, value in ((dense, "L", "a", a), (experts, "R", "e", e)):
        if layers:
            terms.append(f"{symbol} * {size}")
            words = "layers" if symbol == "L" else "layers with experts"
            inputs += [Input(symbol, layers, "", words)]
            inputs += [Input(size, value, "bytes", f"of a token, remat {run.remat}")]
    formula = f"B * ({' + '.join(terms)})"
    return replace(
        by_formula("activations kept", "bytes", formula, tuple(inputs)), rows=tuple(rows)
    )


def _again(run: Run, policy: Remat, causal: bool) -> float:
    """FLOPs of a token that the backward pass computes again, of an attention that keeps scores."""
    seq = run.batch.seq_len
    executed = hardware_flops(run.model, 1, seq, policy, causal)
    return float(executed - model_flops(run.model, 1, seq, causal)) / seq


def _of_token(run: Run, policy: Remat, asked: Counted) -> tuple[float, float]:
    """Bytes that a layer keeps of a token: without experts, and with them (0: it has none)."""
    config, seq = run.model, run.batch.seq_len
    sizes = [
        sum(activation_bytes(config, 1, seq, policy, asked.dtype, run.attention, moe).values())
        / seq
        if there
        else 0.0
        for there, moe in ((n_dense_layers(config), False), (n_moe_layers(config), True))
    ]
    return sizes[0], sizes[1]
