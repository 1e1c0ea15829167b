"""The size of an optimiser's state by formula: numbers kept between steps, over the whole model.

    adamw      2 per parameter
    lion       1
    adafactor  of each matrix its rows and its columns, of vectors each entry
    muon       1 per entry of the layers' matrices, 2 of everything else

Step counters are not included. On a mesh the state is sharded like the parameters.
"""

from scaling.models.accounting.matrices import stacks
from scaling.models.accounting.parameters import count_parameters
from scaling.models.config import ModelConfig


def optimizer_numbers(config: ModelConfig, optimizer: str) -> int:
    """Numbers in the state of `optimizer`, one of the table above."""
    parameters = count_parameters(config).total
    if optimizer == "adamw":
        return 2 * parameters
    if optimizer == "lion":
        return parameters
    tables = _tables(config)
    layers = [(s.rows, s.columns) for s in stacks(config) for _ in range(s.matrices)]
    inner = sum(rows * columns for rows, columns in layers)
    if optimizer == "muon":
        return inner + 2 * (parameters - inner)
    assert optimizer == "adafactor"
    matrices = layers + tables
    vectors = parameters - sum(rows * columns for rows, columns in matrices)
    return vectors + sum(rows + columns for rows, columns in matrices)


def _tables(config: ModelConfig) -> list[tuple[int, int]]:
    """Token table, output head of its own, learned positions."""
    rows = [config.vocab_size] * (1 if config.tied_embeddings else 2)
    rows += [config.max_positions] if config.positions == "learned" else []
    return [(config.d_model, length) for length in rows]
