"""Parameters of a model by part, each as a formula in the guide's letters.

    MLP          L n D F            n = 3 matrices with a gate, else 2, of E experts and s shared
    attention    L D H (2 N + 2 K)  N heads, K of keys and values; latent attention has its own
    embedding    V D                and the same for a head that is not tied to it

What is left, norms and biases, is counted per layer by `scaling.models.accounting`.
"""

from scaling.models.accounting import block_parameters, count_parameters
from scaling.models.accounting.matrices import (
    attention_matrices,
    block_stacks,
    expert_width,
    layer_kinds,
    mlp_matrices,
    n_dense_layers,
    n_moe_layers,
    query_key_dim,
    stacks,
    value_dim,
)
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, by_formula, letters

SECTION = "transformers: counting parameters"
COUNT = "parameters"
SYMBOLS = {  # of the parts in the formula of all parameters
    "MLP": "mlp",
    "attention": "attention",
    "norms and biases": "small",
    "embedding": "embedding",
    "positions": "positions",
    "head": "head",
}


def model_letters(config: ModelConfig) -> dict[str, Input]:
    """Return the guide's letters for the sizes of a model, those that it has."""
    found = [
        Input("D", config.d_model, "", "d_model"),
        Input("F", config.d_ff, "", "d_ff"),
        Input("V", config.vocab_size, "", "vocabulary"),
        Input("L", config.n_layers, "", "layers"),
        Input("R", n_moe_layers(config), "", "layers with experts"),
        Input("n", len(mlp_matrices(config, 1)), "", f"matrices of a {config.mlp} MLP"),
        Input("N", config.n_heads, "", "heads"),
        Input("K", config.n_kv_heads, "", "heads of keys and values"),
        Input("H", config.head_dim, "", "head dimension"),
        Input("q", query_key_dim(config), "", "head dimension of queries and keys"),
        Input("v", value_dim(config), "", "head dimension of values"),
    ]
    if moe := config.moe:
        found += [
            Input("E", moe.n_experts, "", "experts of a layer"),
            Input("k", moe.experts_per_token, "", "of them for each token"),
            Input("Z", expert_width(config), "", "width of an expert"),
            Input("s", moe.n_shared_experts, "", "shared experts"),
        ]
    if mla := config.mla:
        found += [
            Input("h", mla.qk_nope_head_dim, "", "head dimension without rotation"),
            Input("r", mla.qk_rope_head_dim, "", "rotated head dimension"),
            Input("C", mla.kv_lora_rank, "", "latent of keys and values"),
            Input("Q", mla.q_lora_rank or 0, "", "latent of queries"),
        ]
    return letters(*found)


def dense_layers(config: ModelConfig) -> Input:
    """Return the layers without experts as the letter L."""
    words = "layers without experts" if n_moe_layers(config) else "layers"
    return Input("L", n_dense_layers(config), "", words)


def parameters(config: ModelConfig) -> Answer:
    """Return the number of parameters, those of each part, and those that a token uses.

    Raises:
        InputError: learned positions whose table has no length yet.
    """
    counted = count_parameters(config)
    found = [_mlp(config), attention(config), _small(config), *_tables(config)]
    inputs = tuple(Input(SYMBOLS[part.name], float(part), COUNT, part.name) for part in found)
    formula = " + ".join(i.symbol for i in inputs)
    rows = tuple(
        {"component": name, "parameters": count, "share": count / counted.total}
        for name, count in counted.components.items()
    )
    return by_formula(
        "parameters",
        COUNT,
        formula,
        inputs,
        section=SECTION,
        parts=(*found, *_active(config, counted.total), *_layers(config)),
        rows=rows,
        notes=("the head is the embedding's table",) if config.tied_embeddings else (),
    )


def _mlp(config: ModelConfig) -> Answer:
    """The weights of all MLPs, experts and routers."""
    terms = ["L * n * D * F"] if n_dense_layers(config) else []
    if n_moe_layers(config):
        assert config.moe is not None
        experts = "(E + s)" if config.moe.n_shared_experts else "E"
        terms.append(f"R * (n * D * Z * {experts} + D * E)")
    own = model_letters(config) | letters(dense_layers(config))
    return by_formula("MLP", COUNT, " + ".join(terms), own)


def attention(config: ModelConfig) -> Answer:
    """Return the weights of the projections of all layers."""
    formula = "L * D * H * (2 * N + 2 * K)"
    if config.mla:
        queries = "D * N * (h + r)" if config.mla.q_lora_rank is None else "Q * (D + N * (h + r))"
        formula = f"L * ({queries} + D * (C + r) + C * N * (h + v) + N * v * D)"
    return by_formula("attention", COUNT, formula, model_letters(config))


def active_mlp(config: ModelConfig) -> int:
    """Return the weights of MLPs, experts and routers that one token passes, of all layers."""
    others = (s for s in stacks(config) if s.name not in attention_matrices(config))
    return sum(s.layers * s.used * s.size for s in others)


def _small(config: ModelConfig) -> Answer:
    """Norms and biases, and biases that select experts: what is in no matrix."""
    moe_layers = model_letters(config)["R"]
    terms, inputs = ["c"], [Input("c", count_parameters(config).components["final_norm"], COUNT)]
    for layers, each, moe in ((dense_layers(config), "a", False), (moe_layers, "e", True)):
        if layers.value:
            weights = sum(stack.matrices * stack.size for stack in block_stacks(config, moe))
            rest = sum(block_parameters(config, moe).values()) - weights
            terms.append(f"{layers.symbol} * {each}")
            inputs += [layers, Input(each, rest, COUNT, "of each")]
    return by_formula("norms and biases", COUNT, " + ".join(terms), tuple(inputs))


def _tables(config: ModelConfig) -> list[Answer]:
    """The token table, that of positions where it is learned, and a head of its own."""
    own = model_letters(config)
    found = [by_formula("embedding", COUNT, "V * D", own)]
    if config.positions == "learned" and config.max_positions:
        P = Input("P", config.max_positions, "", "learned positions")
        found.append(by_formula("positions", COUNT, "P * D", own | letters(P)))
    if not config.tied_embeddings:
        found.append(by_formula("head", COUNT, "D * V", own))
    return found


def _active(config: ModelConfig, total: int) -> list[Answer]:
    """The parameters that one token uses, where experts leave some idle."""
    if not n_moe_layers(config):
        return []
    assert config.moe is not None
    idle = total - count_parameters(config).active
    unused = (config.moe.n_experts - config.moe.experts_per_token) * n_moe_layers(config)
    P = Input("P", total, COUNT)
    e = Input("e", idle / unused if unused else 0, COUNT, "of an expert")
    own = model_letters(config) | letters(P, e)
    return [by_formula("active parameters", COUNT, "P - R * (E - k) * e", own)]


def _layers(config: ModelConfig) -> list[Answer]:
    """The parameters of one layer, of each kind that there is."""
    found = []
    for moe, _ in layer_kinds(config):
        count = sum(block_parameters(config, moe).values())
        name = "a layer with experts" if moe else "a layer"
        found.append(Answer(name, count, COUNT, ideal=count))
    return found
