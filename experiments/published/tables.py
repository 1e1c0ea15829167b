"""Evidence of fitted figures, and the shipped tables of kernels, scaling/profiles/data."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from scaling.profiles.profile import Evidence
from scaling.profiles.shipped import DATA


def evidence_of(
    source: str,
    date: str,
    errors: np.ndarray,
    held_out: np.ndarray | None = None,
    *,
    digits: int = 3,
    **quantiles: float | None,
) -> Evidence:
    """The evidence of a fit, from its relative errors and those on rows that were held out.

    The 90 % quantiles, `error_p90` and such, are as `Evidence` has them.
    """
    size, say = np.abs(errors), partial(short, digits=digits)
    p90s: dict[str, Any] = {
        name: value if value is None else say(value) for name, value in quantiles.items()
    }
    return Evidence(
        source,
        date,
        "calibrated",
        samples=len(errors),
        median_error=say(np.median(size)),
        mean_error=say(np.mean(size)),
        max_error=say(np.max(size)),
        held_out_error=None if held_out is None else say(np.mean(np.abs(held_out))),
        **p90s,
    )


def p90(errors: np.ndarray) -> float:
    """The 90 % quantile of relative errors, symmetric in log space."""
    return float(np.expm1(np.quantile(np.abs(np.log1p(errors)), 0.9)))


def short(value: float, digits: int = 3) -> float:
    """Return a figure with so many digits."""
    return float(f"{value:.{digits}g}")


def print_or_write(
    name: str,
    report: Callable[[], Iterable[str]],
    fits: Callable[[], Mapping[str, Iterable[Any]]],
) -> None:
    """Print the report of fits; with --write, put them into data/NAME.json."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.published.fit_{name}")
    parser.add_argument("--write", action="store_true", help="write scaling/profiles/data")
    write = parser.parse_args().write
    print("\n".join(report()))
    if write:
        write_table(name, fits())


def write_table(name: str, fits: Mapping[str, Iterable[Any]]) -> None:
    """Write data/NAME.json anew: the fits of each chip, without fields at their default."""
    rows = [{"chip": chip} | stated(fit) for chip, own in fits.items() for fit in own]
    (DATA / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def stated(fit: Any) -> dict[str, Any]:
    """The fields of a fit, and of its evidence, that are not at their default."""
    values = ((f, getattr(fit, f.name)) for f in fields(fit))
    given = {f.name: value for f, value in values if value != f.default}
    return {key: stated(value) if is_dataclass(value) else value for key, value in given.items()}
