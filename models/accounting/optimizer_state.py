"""Numbers that an optimiser keeps between steps, over the whole model.

    adamw      2 per parameter
    lion       1
    adafactor  of each matrix its rows and its columns, of vectors each entry
    muon       1 per entry of the layers' matrices, 2 of everything else

Counters of steps are left out. On a mesh each is cut like the parameters.
"""

from meshes.errors import InputError, nearest
from models.accounting.matrices import attention_matrices, mlp_matrices
from models.accounting.parameters import count_parameters
from models.config import ModelConfig

OPTIMIZERS = ("adamw", "lion", "adafactor", "muon")


def optimizer_numbers(config: ModelConfig, optimizer: str) -> int:
    """Numbers in the state of `optimizer`, for a dense model.

    Raises:
        InputError: an optimiser that is not in the table above, a model with experts or MLA.
    """
    if optimizer not in OPTIMIZERS:
        raise InputError(f"unknown optimizer {optimizer!r}; {nearest(optimizer, OPTIMIZERS)}")
    if config.moe or config.mla:
        raise InputError("optimizer state is counted for models without moe and mla")
    parameters = count_parameters(config).total
    if optimizer == "adamw":
        return 2 * parameters
    if optimizer == "lion":
        return parameters
    layers, tables = _layer_matrices(config), _tables(config)
    inner = sum(rows * columns for rows, columns in layers)
    if optimizer == "muon":
        return inner + 2 * (parameters - inner)
    matrices = layers + tables
    vectors = parameters - sum(rows * columns for rows, columns in matrices)
    return vectors + sum(rows + columns for rows, columns in matrices)


def _layer_matrices(config: ModelConfig) -> list[tuple[int, int]]:
    """Of all layers: d_model by the length across it."""
    matrices = attention_matrices(config) | mlp_matrices(config, config.d_ff)
    return config.n_layers * [
        (config.d_model, a * b // config.d_model) for a, b in matrices.values()
    ]


def _tables(config: ModelConfig) -> list[tuple[int, int]]:
    """Token table, output head of its own, learned positions."""
    rows = [config.vocab_size] * (1 if config.tied_embeddings else 2)
    rows += [config.max_positions] if config.positions == "learned" else []
    return [(config.d_model, length) for length in rows]
