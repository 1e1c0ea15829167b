"""Evidence of fitted figures, and the shipped tables of kernels, scaling/profiles/data."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from scaling.profiles.profile import Evidence
from scaling.profiles.shipped import DATA


def evidence_of(
    source: str,
    date: str,
    errors: np.ndarray,
    held_out: np.ndarray,
    error_p90: float,
    lent_p90: float,
    latency_p90: float | None = None,
) -> Evidence:
    """The evidence of a fit, from its relative errors and those on rows that were held out.

    The 90 % quantiles are as `Evidence` has them.
    """
    size = np.abs(errors)
    return Evidence(
        source,
        date,
        "calibrated",
        samples=len(errors),
        median_error=short(np.median(size)),
        mean_error=short(np.mean(size)),
        max_error=short(np.max(size)),
        held_out_error=short(np.mean(np.abs(held_out))),
        error_p90=short(error_p90),
        latency_p90=None if latency_p90 is None else short(latency_p90),
        lent_p90=short(lent_p90),
    )


def p90(errors: np.ndarray) -> float:
    """The 90 % quantile of relative errors, symmetric in log space."""
    return float(np.expm1(np.quantile(np.abs(np.log1p(errors)), 0.9)))


def short(value: float) -> float:
    """Three digits of a figure."""
    return float(f"{value:.3g}")


def write_table(name: str, fits: Mapping[str, Iterable[Any]]) -> None:
    """Write data/NAME.json anew: the fits of each chip, without fields at their default."""
    rows = [{"chip": chip} | _stated(fit) for chip, own in fits.items() for fit in own]
    (DATA / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _stated(fit: Any) -> dict[str, Any]:
    """The fields of a fit, and of its evidence, that are not at their default."""
    stated = {f.name: getattr(fit, f.name) for f in fields(fit)}
    stated = {f.name: stated[f.name] for f in fields(fit) if stated[f.name] != f.default}
    return {key: _stated(value) if is_dataclass(value) else value for key, value in stated.items()}
