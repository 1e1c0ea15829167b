"""Sizes and rates as people write and read them: `64MiB`, `1GB`, `1GiB,2GiB`, `100e9`.

MB = 1e6 bytes, MiB = 2**20 bytes. A small b would mean bits and is refused.
"""

import math
import re

from scaling.meshes.errors import InputError

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MOST_BINARY_UNITS = 10_000  # more digits are no longer easy to read
PREFIXES = {**DECIMAL, "K": 10**3, **BINARY, "ki": 2**10}

_SIZE = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*?)(B|b|)(/s)?\s*")


def parse_quantity(text: str) -> float:
    """A number with an optional size unit, `/s` allowed: `100e9`, `50GB/s`, `1.5GiB`.

    Raises:
        InputError: not a number, an unknown unit, bits, or not positive and finite.
    """
    match = _SIZE.fullmatch(text)
    number = _number(match.group(1)) if match else None
    if match is None or number is None:
        raise InputError(f"{text!r} is not a size; write for example 1048576, 64MiB or 1.5GB")
    prefix, unit = match.group(2), match.group(3)
    if unit == "b":
        raise InputError(f"{text!r}: a small b means bits; write bytes with B (8 Gb = 1GB)")
    if prefix not in PREFIXES or (prefix and not unit):
        raise InputError(
            f"{text!r}: unknown unit {prefix + unit!r}; use B, kB, MB, GB, TB, KiB ..."
        )
    value = number * PREFIXES[prefix]
    if not (0 < value < math.inf):
        raise InputError(f"{text!r} must be positive" + " and finite" * (value == math.inf))
    return value


def parse_size(text: str) -> int:
    """A whole number of bytes from `64MiB`, `1GB` or `1048576`."""
    value = parse_quantity(text)
    if "/" in text or value != int(value):
        raise InputError(f"{text!r} is not a whole number of bytes")
    return int(value)


def parse_sizes(text: str) -> list[int]:
    """Sizes in bytes from a comma-separated list: `65536,1MiB,1GiB`."""
    return [parse_size(part) for part in text.split(",")]


def parse_sweep(text: str) -> list[int]:
    """Sizes in bytes from `first:last`, each twice the last: 1, 2, 4, 8 KiB of `1KiB:8KiB`."""
    first, colon, last = text.partition(":")
    if not colon:
        raise InputError(f"{text!r} is not a sweep; write first:last, for example 1KiB:8GiB")
    start, stop = parse_size(first), parse_size(last)
    if stop < start:
        raise InputError(f"sweep {text!r} ends below its start; write it as {last}:{first}")
    return [start << i for i in range((stop // start).bit_length())]


def format_size(size: float) -> str:
    """`64 MiB` for whole multiples of a binary unit, else three digits and a decimal unit."""
    for prefix, factor in reversed(BINARY.items()):
        if factor <= size < MOST_BINARY_UNITS * factor and size % factor == 0:
            return f"{size / factor:.0f} {prefix}B"
    return f"{_decimal(size)}B"


def format_rate(rate: float, unit: str = "B/s") -> str:
    """A rate with a decimal prefix: `450 GB/s`, `989 TFLOP/s`."""
    return f"{_decimal(rate)}{unit}"


def format_time(seconds: float) -> str:
    """Seconds as `1.5 s`, `12 ms`, `0.3 us`."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds * 1e6)} us"


def _decimal(value: float) -> str:
    """Three digits and a decimal prefix, a space between them."""
    prefix = next((p for p, f in reversed(DECIMAL.items()) if abs(value) >= 0.9995 * f), "")
    return f"{_three_digits(value / DECIMAL[prefix])} {prefix}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
