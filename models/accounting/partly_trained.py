"""Model FLOPs of a step that trains some parameters only: adapters, or what patterns leave.

    a product forward              1 F
    gradient of its input          1 F    where anything before it is trained
    gradient of its matrix         1 F    where the matrix is trained

The layers are stored as stacks, so all of them are alike: of frozen layers behind a trained token
table every input has a gradient, of those behind a frozen one none. Imports no jax.
"""

from fnmatch import fnmatchcase

from scaling.models.accounting.flops import ATTENTION, FORWARD_AND_BACKWARD, credited_forward
from scaling.models.accounting.matrices import Number, layer_stacks, n_moe_layers
from scaling.models.config import ModelConfig
from scaling.models.lora import ATTENTION_ARRAYS, MLP_ARRAYS, Lora, adapter_parameters

EXPERT_ARRAYS = {
    **{"router": "router_DE", "expert_up": "up_EDF", "expert_gate": "gate_EDF"},
    **{"expert_down": "down_EFD", "shared_up": "shared_up_DF", "shared_gate": "shared_gate_DF"},
    **{"shared_down": "shared_down_FD"},
}
PRE_NORMS = ("attention_norm/scale", "mlp_norm/scale")
POST_NORMS = ("attention_post_norm/scale", "mlp_post_norm/scale")
NORMS = {"before": PRE_NORMS, "after": POST_NORMS, "both": (*PRE_NORMS, *POST_NORMS)}


def partly_trained_flops(
    config: ModelConfig,
    batch: Number,
    seq: Number,
    causal: bool = False,
    *,
    lora: Lora | None = None,
    freeze: tuple[str, ...] = (),
    trainable: tuple[str, ...] = (),
) -> Number:
    """`model_flops` less the gradients that such a step does not need, plus its adapters' products.

    Args:
        batch, seq, causal: as of `model_flops`.
        lora, freeze, trainable: of run.json's `train`; arrays are matched by their names.
    """

    def is_trained(array: str) -> bool:
        matches = any(fnmatchcase(array, pattern) for pattern in freeze or trainable)
        return matches != bool(freeze)

    stacks = {stack.name: len(stack.layers) for stack in layer_stacks(config)}  # of arrays
    norms = NORMS[config.norms]
    names = [f"{stack}/{array}" for stack in stacks for array in (*_arrays(config, stack), *norms)]
    in_layers = lora is not None or any(map(is_trained, ("embedding/table_VD", *names)))
    head = "embedding/table_VD" if config.tied_embeddings else "head_VD"
    before_head = in_layers or is_trained("final_norm/scale")
    total: Number = 0
    for name, forward in credited_forward(config, batch, seq, causal).components.items():
        if name == "head":
            total += forward * (1 + before_head + is_trained(head))
        elif name in ATTENTION:
            total += forward * (FORWARD_AND_BACKWARD if in_layers else 1)
        else:
            arrays = {s: _arrays(config, s)[name] for s in stacks if name in _arrays(config, s)}
            trained = sum(stacks[s] * is_trained(f"{s}/{array}") for s, array in arrays.items())
            share = trained / sum(stacks[s] for s in arrays)  # of these matrices of all layers
            total += forward * (1 + in_layers + share)
    adapters = adapter_parameters(lora, config, used=True) if lora else 0
    return total + FORWARD_AND_BACKWARD * 2 * adapters * batch * seq


def _arrays(config: ModelConfig, stack: str) -> dict[str, str]:
    """Arrays of the matrices of one stack, by the names of their products."""
    last = {"o": "out_NVD"} if config.mla else {}
    attention = {name: f"attention/{array}" for name, array in (ATTENTION_ARRAYS | last).items()}
    has_experts = stack != "dense_layers" and n_moe_layers(config) > 0
    mlp = EXPERT_ARRAYS if has_experts else MLP_ARRAYS
    return attention | {name: f"mlp/{array}" for name, array in mlp.items()}
