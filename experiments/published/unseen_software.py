"""How far off a software is whose runs nobody has seen, with constants of the others.

    python -m experiments.published.unseen_software                           a minute

The constants of the others are their means, geometric but for shares (`software.toml`); what a
software does (facts of its table) is known. Rows that its own constants were not fitted on, at most
`MOST` of a source, weigh equally; beside them its own constants, and ideal ones.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.published.fit_software import (
    SEARCHED,
    SHARES,
    log_errors,
    published,
    sample,
    software_of,
)
from experiments.published.training import Measured, part_of
from experiments.published.unfitted import IDEAL
from scaling.analytic.software import traits_of
from scaling.report.formatting import columns

CONSTANTS = ("launch", "traffic", "products", "attention", "collective", *SHARES)


def of_others(software: str) -> dict[str, float]:
    """Means of the constants of all other software that was fitted."""
    others = [traits_of(name) for name in SEARCHED if name != software]
    found: dict[str, float] = {}
    for name in CONSTANTS:
        values = np.array([getattr(traits, name) for traits in others])
        is_share = name in SHARES or not values.all()
        found[name] = float(values.mean() if is_share else np.exp(np.log(values).mean()))
    return found | {"crossing": 0.0}


def rows_of(software: str) -> list[Measured]:
    """Its rows that no constant was fitted on."""
    return sample([r for r in published() if software_of(r) == software and part_of(r) == "left"])


def line(rows: Sequence[Measured], constants: Mapping[str, float]) -> tuple[str, ...]:
    """Median, mean and bias of predicted / measured - 1."""
    errors = np.expm1(log_errors(rows, constants))
    figures = np.median(np.abs(errors)), np.mean(np.abs(errors)), np.median(errors)
    return tuple(f"{figure:.1%}" for figure in figures)


def main() -> None:
    """Print a line for each software."""
    head = ("software", "n", *("median", "mean", "bias") * 3)
    table = [
        (name, str(len(rows)), *line(rows, {}), *line(rows, of_others(name)), *line(rows, IDEAL))
        for name in SEARCHED
        if (rows := rows_of(name))
    ]
    print("own constants, those of the others, ideal ones")
    print("\n".join(columns([head, *table], left=(0,))))


if __name__ == "__main__":
    main()
