"""Parameters of a model by part, each as a formula in the guide's letters.

    MLP          L n D F            n = 3 matrices with a gate, else 2, of E experts and s shared
    attention    L D H (2 N + 2 K)  N heads, K of keys and values; latent attention has its own
    embedding    V D                and the same for a head that is not tied to it

What is left, norms and biases, is counted per layer by `scaling.models.accounting`.
"""

from collections.abc import Mapping
from dataclasses import replace

from scaling.models.accounting import block_parameters, count_parameters
from scaling.models.accounting.matrices import (
    attention_matrices,
    block_stacks,
    expert_width,
    mlp_matrices,
    n_dense_layers,
    n_moe_layers,
)
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, Value, by_formula

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


def parameters(config: ModelConfig) -> Answer:
    """Return the number of parameters, those of each part, and those that a token uses.

    Raises:
        InputError: learned positions whose table has no length yet.
    """
    counted = count_parameters(config)
    found = [mlp(config), attention(config), _small(config), *_tables(config)]
    inputs = [
        Input(SYMBOLS[part.name], part.answer, COUNT, part.name)  # type: ignore[arg-type]
        for part in found
    ]
    formula = " + ".join(i.symbol for i in inputs)
    total = by_formula("parameters", COUNT, formula, tuple(inputs), section=SECTION)
    rows: tuple[Mapping[str, Value], ...] = tuple(
        {"component": name, "parameters": count, "share": count / counted.total}
        for name, count in counted.components.items()
    )
    parts = (*found, *_active(config, counted.total), *_layers(config))
    notes = ("the head is the embedding's table",) if config.tied_embeddings else ()
    return replace(total, parts=parts, rows=rows, notes=notes)


def mlp(config: ModelConfig) -> Answer:
    """Return the weights of all MLPs, experts and routers."""
    dense, moe = n_dense_layers(config), n_moe_layers(config)
    terms, inputs = [], [_matrices(config), _width(config)]
    if dense:
        terms.append("L * n * D * F")
        inputs += [Input("L", dense, "", _layer_words(config)), Input("F", config.d_ff, "", "d_ff")]
    if moe:
        assert config.moe is not None
        shared = config.moe.n_shared_experts
        terms.append(
            "R * (n * D * Z * (E + s) + D * E)" if shared else "R * (n * D * Z * E + D * E)"
        )
        inputs += [
            Input("R", moe, "", "layers with experts"),
            Input("E", config.moe.n_experts, "", "experts of a layer"),
            Input("Z", expert_width(config), "", "width of an expert"),
            *([Input("s", shared, "", "shared experts")] if shared else []),
        ]
    return by_formula("MLP", COUNT, " + ".join(terms), tuple(inputs))


def attention(config: ModelConfig) -> Answer:
    """Return the weights of the projections of all layers."""
    inputs: tuple[Input, ...] = (_width(config), Input("L", config.n_layers, "", "layers"))
    heads = Input("N", config.n_heads, "", "heads")
    if not config.mla:
        key_heads = Input("K", config.n_kv_heads, "", "heads of keys and values")
        inputs += (heads, key_heads, Input("H", config.head_dim, "", "head dimension"))
        return by_formula("attention", COUNT, "L * D * H * (2 * N + 2 * K)", inputs)
    mla = config.mla
    formula = "D * N * (h + r) + " if mla.q_lora_rank is None else "Q * (D + N * (h + r)) + "
    rest = "D * (C + r) + C * N * (h + v) + N * v * D"
    own: tuple[Input, ...] = (
        heads,
        Input("h", mla.qk_nope_head_dim, "", "head dimension without rotation"),
        Input("r", mla.qk_rope_head_dim, "", "rotated head dimension"),
        Input("v", mla.v_head_dim, "", "head dimension of values"),
        Input("C", mla.kv_lora_rank, "", "latent of keys and values"),
    )
    if mla.q_lora_rank is not None:
        own += (Input("Q", mla.q_lora_rank, "", "latent of queries"),)
    return by_formula("attention", COUNT, f"L * ({formula}{rest})", (*inputs, *own))


def active_mlp(config: ModelConfig) -> int:
    """Return the weights of MLPs, experts and routers that one token passes, of all layers."""
    counts = [
        layers * stack.used * stack.size
        for layers, moe in ((n_dense_layers(config), False), (n_moe_layers(config), True))
        if layers
        for stack in block_stacks(config, moe)
        if stack.name not in attention_matrices(config)
    ]
    return sum(counts)


def _small(config: ModelConfig) -> Answer:
    """Norms and biases, and biases that select experts: what is in no matrix."""
    inner = [(n_dense_layers(config), "L", "a", False), (n_moe_layers(config), "R", "e", True)]
    terms, inputs = ["c"], [Input("c", count_parameters(config).components["final_norm"], COUNT)]
    for layers, symbol, each, moe in inner:
        if layers:
            weights = sum(stack.matrices * stack.size for stack in block_stacks(config, moe))
            rest = sum(block_parameters(config, moe).values()) - weights
            terms.append(f"{symbol} * {each}")
            words = "layers with experts" if moe else _layer_words(config)
            inputs += [Input(symbol, layers, "", words), Input(each, rest, COUNT, "of each")]
    return by_formula("norms and biases", COUNT, " + ".join(terms), tuple(inputs))


def _tables(config: ModelConfig) -> list[Answer]:
    """The token table, that of positions where it is learned, and a head of its own."""
    D, V = _width(config), Input("V", config.vocab_size, "", "vocabulary")
    found = [by_formula("embedding", COUNT, "V * D", (V, D))]
    rows = config.max_positions if config.positions == "learned" else 0
    positions = Input("P", rows, "", "learned positions")
    found.append(by_formula("positions", COUNT, "P * D", (positions, D)))
    if not config.tied_embeddings:
        found.append(by_formula("head", COUNT, "D * V", (D, V)))
    return found if rows else [part for part in found if part.name != "positions"]


def _active(config: ModelConfig, total: int) -> list[Answer]:
    """The parameters that one token uses, where experts leave some idle."""
    if not n_moe_layers(config):
        return []
    assert config.moe is not None
    idle = total - count_parameters(config).active
    unused = config.moe.n_experts - config.moe.experts_per_token
    layers = n_moe_layers(config)
    inputs = (
        Input("P", total, COUNT),
        Input("R", layers, "", "layers with experts"),
        Input("E", config.moe.n_experts, "", "experts of a layer"),
        Input("k", config.moe.experts_per_token, "", "of them for each token"),
        Input("e", idle / unused / layers if unused else 0, COUNT, "of an expert"),
    )
    return [by_formula("active parameters", COUNT, "P - R * (E - k) * e", inputs)]


def _layers(config: ModelConfig) -> list[Answer]:
    """The parameters of one layer, of each kind that there is."""
    found = []
    for layers, moe, name in (
        (n_dense_layers(config), False, "a layer"),
        (n_moe_layers(config), True, "a layer with experts"),
    ):
        if layers:
            count = sum(block_parameters(config, moe).values())
            found.append(Answer(name, count, COUNT, ideal=count))
    return found


def _width(config: ModelConfig) -> Input:
    return Input("D", config.d_model, "", "d_model")


def _matrices(config: ModelConfig) -> Input:
    return Input("n", len(mlp_matrices(config, 1)), "", f"matrices of a {config.mlp} MLP")


def _layer_words(config: ModelConfig) -> str:
    return "layers without experts" if n_moe_layers(config) else "layers"
