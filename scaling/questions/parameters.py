"""Parameters of a model by part, each as a formula in the guide's letters.

    MLP          L n D F            n = 3 matrices with a gate, else 2, of E experts and s shared
    attention    L D H (2 N + 2 K)  N heads, K of keys and values; latent attention has its own
    embedding    V D                and the same for a head that is not tied to it

What is left, norms and biases, is counted per layer by `scaling.models.accounting`.
"""

from dataclasses import dataclass
from functools import cached_property

from scaling.models.accounting import Parameters, block_parameters, count_parameters
from scaling.models.accounting.matrices import (
    block_stacks,
    expert_width,
    layer_kinds,
    mlp_matrices,
    n_dense_layers,
    n_moe_layers,
    query_key_dim,
    value_dim,
)
from scaling.models.config import ModelConfig
from scaling.questions.answer import Answer, Input, Lettered, by_formula

SECTION = "transformers: counting parameters"
COUNT = "parameters"
SYMBOLS = {"MLP": "mlp", "norms and biases": "small"}  # where the name of a part is none


@dataclass(frozen=True)
class CountedModel(Lettered):
    """A model, with the guide's letters for its sizes: those that it has."""

    config: ModelConfig

    @cached_property
    def letters(self) -> dict[str, Input]:
        config, moe, mla = self.config, self.config.moe, self.config.mla
        sizes = {
            "D": (config.d_model, "d_model"),
            "F": (config.d_ff, "d_ff"),
            "V": (config.vocab_size, "vocabulary"),
            "L": (config.n_layers, "layers"),
            "R": (n_moe_layers(config), "layers with experts"),
            "n": (len(mlp_matrices(config, 1)), f"matrices of a {config.mlp} MLP"),
            "N": (config.n_heads, "heads"),
            "K": (config.n_kv_heads, "heads of keys and values"),
            "H": (config.head_dim, "head dimension"),
            "q": (query_key_dim(config), "head dimension of queries and keys"),
            "v": (value_dim(config), "head dimension of values"),
        }
        if moe:
            sizes |= {
                "E": (moe.n_experts, "experts of a layer"),
                "k": (moe.experts_per_token, "of them for each token"),
                "Z": (expert_width(config), "width of an expert"),
                "s": (moe.n_shared_experts, "shared experts"),
            }
        if mla:
            sizes |= {
                "h": (mla.qk_nope_head_dim, "head dimension without rotation"),
                "r": (mla.qk_rope_head_dim, "rotated head dimension"),
                "C": (mla.kv_lora_rank, "latent of keys and values"),
                "Q": (mla.q_lora_rank or 0, "latent of queries"),
            }
        return {symbol: Input(symbol, size, "", what) for symbol, (size, what) in sizes.items()}

    @cached_property
    def count(self) -> Parameters:
        """All parameters, and those that a token uses."""
        return count_parameters(self.config)

    @property
    def dense_layers(self) -> Input:
        """The layers without experts as the letter L."""
        words = "layers without experts" if n_moe_layers(self.config) else "layers"
        return Input("L", n_dense_layers(self.config), "", words)

    @cached_property
    def attention(self) -> Answer:
        """The weights of the projections of all layers."""
        formula, mla = "L * D * H * (2 * N + 2 * K)", self.config.mla
        if mla:
            queries = "D * N * (h + r)" if mla.q_lora_rank is None else "Q * (D + N * (h + r))"
            formula = f"L * ({queries} + D * (C + r) + C * N * (h + v) + N * v * D)"
        return self.answer("attention", COUNT, formula)


def parameters(model: CountedModel) -> Answer:
    """Return the number of parameters, those of each part, and those that a token uses."""
    config, counted = model.config, model.count
    components = [_mlp(model), model.attention, _small(model)]
    components.append(model.answer("embedding", COUNT, "V * D"))
    if config.positions == "learned" and config.max_positions:
        P = Input("P", config.max_positions, "", "learned positions")
        components.append(model.answer("positions", COUNT, "P * D", P))
    if not config.tied_embeddings:
        components.append(model.answer("head", COUNT, "D * V"))
    inputs = tuple(
        Input(SYMBOLS.get(part.name, part.name), float(part), COUNT, part.name)
        for part in components
    )
    rows = tuple(
        {"component": name, "parameters": count, "share": count / counted.total}
        for name, count in counted.components.items()
    )
    return by_formula(
        "parameters",
        COUNT,
        " + ".join(i.symbol for i in inputs),
        inputs,
        section=SECTION,
        parts=(*components, *_active(model), *_layers(config)),
        rows=rows,
        notes=("the head is the embedding's table",) if config.tied_embeddings else (),
    )


def _mlp(model: CountedModel) -> Answer:
    terms = ["L * n * D * F"] if model.dense_layers.value else []
    if moe := model.config.moe:
        experts = "(E + s)" if moe.n_shared_experts else "E"
        terms += [f"R * (n * D * Z * {experts} + D * E)"] * (n_moe_layers(model.config) > 0)
    return model.answer("MLP", COUNT, " + ".join(terms), model.dense_layers)


def _small(model: CountedModel) -> Answer:
    """Norms and biases, and biases that select experts: what is in no matrix."""
    terms, inputs = ["c"], [Input("c", model.count.components["final_norm"], COUNT)]
    for moe, _ in layer_kinds(model.config):
        layers, each = (model.letters["R"], "e") if moe else (model.dense_layers, "a")
        weights = sum(stack.matrices * stack.size for stack in block_stacks(model.config, moe))
        rest = sum(block_parameters(model.config, moe).values()) - weights
        terms.append(f"{layers.symbol} * {each}")
        inputs += [layers, Input(each, rest, COUNT, "of each")]
    return by_formula("norms and biases", COUNT, " + ".join(terms), tuple(inputs))


def _active(model: CountedModel) -> list[Answer]:
    """The parameters that one token uses, where experts leave some idle."""
    moe, layers = model.config.moe, n_moe_layers(model.config)
    if moe is None or not layers:
        return []
    idle, unused = model.count.total - model.count.active, moe.n_experts - moe.experts_per_token
    P = Input("P", model.count.total, COUNT)
    e = Input("e", idle / (unused * layers) if unused else 0, COUNT, "of an expert")
    return [model.answer("active parameters", COUNT, "P - R * (E - k) * e", P, e)]


def _layers(config: ModelConfig) -> list[Answer]:
    counts = {moe: sum(block_parameters(config, moe).values()) for moe, _ in layer_kinds(config)}
    name = lambda moe: "a layer with experts" if moe else "a layer"
    return [Answer(name(moe), count, COUNT, ideal=count) for moe, count in counts.items()]
