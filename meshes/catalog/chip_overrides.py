"""Figures and peak rates of an accelerator that a question states otherwise.

peak_bf16=400TFLOP/s   memory_bandwidth=2TB/s   clock=1.59GHz
"""

from collections.abc import Iterable
from dataclasses import replace

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, peak_name, with_figures
from scaling.meshes.catalog.accelerator_file import INTEGER_FIGURES
from scaling.meshes.catalog.entries import UNITS
from scaling.meshes.errors import InputError, check_keys, check_range, whole_number
from scaling.meshes.provenance import SourcedValue, overridden
from scaling.meshes.units import parse_quantity

# Formats in which chips of the catalogue multiply, or others may.
FORMATS = ("bf16", "fp16", "fp8", "fp4", "int8", "int4", "int32", "tf32", "fp32", "fp64")
RANGE = (1e-9, 1e24)  # of any figure; products and quotients of them stay finite
PEAKS = {peak_name(dtype): dtype for dtype in FORMATS}


def override_chip(chip: Accelerator, items: Iterable[str]) -> Accelerator:
    """Return the chip with the figures of `key=value` texts, whose source becomes "override".

    Raises:
        InputError: no such key (the nearest is named), one that is given twice, or no number of
            its unit.
    """
    found: dict[str, SourcedValue] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"--override {item!r}: write key=value, for example peak_bf16=400e12")
        check_keys([key], (*PEAKS, *FIGURE_NAMES), "--override")
        if key in found:
            raise InputError(f"--override: key {key!r} is given twice")
        try:
            value = parse_quantity(text, "FLOP/s" if key in PEAKS else UNITS.get(key, ""))
        except InputError as error:
            raise InputError(f"--override {item}: {error}") from None
        check_range(f"--override {key}", value, *RANGE)
        if key in INTEGER_FIGURES:
            value = whole_number(f"--override {key}", value)
        found[key] = overridden(value)
    peaks = {PEAKS[key]: float(figure.value) for key, figure in found.items() if key in PEAKS}
    figures = {key: figure for key, figure in found.items() if key not in PEAKS}
    sources = {**chip.figures, **found}
    changed = replace(chip, peaks={**chip.peaks, **peaks}, figures=sources)
    return with_figures(changed, figures)
