"""Sizes, rates and times as people write and read them: `64MiB`, `50GB/s`, `400Gb/s`, `5us`.

MB = 1e6 bytes, MiB = 2**20 bytes. B is a byte, b a bit: 25GB/s is eight times 25Gb/s.
Counts have the same prefixes: 8k is 8,000, 8Ki 8,192; 15T tokens, 70B parameters (1e9).
"""

import math
import re
from typing import Literal, SupportsFloat

from scaling.meshes.errors import InputError

Unit = Literal["B", "B/s", "FLOP/s", "Hz", "s", "W", ""]
DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MOST_BINARY_UNITS = 10_000  # more digits are no longer easy to read
LEAST_PREFIXED = 1000  # bytes from which a size has a prefix
MOST_DAYS, YEAR = 1000, 365.25  # days from which a time is in years, and days of one
MOST_COUNTED = 1e18  # from here on a count is written as 1e+18
MOST_IN_DIGITS = 1e7  # from here on a number is written as 1e+07
PREFIXES = {**DECIMAL, "K": 10**3, **BINARY, "ki": 2**10}
COUNTS = {**PREFIXES, "B": 10**9}  # of tokens and parameters: 15T, 70B
BITS = {"b/s": 1 / 8, "bit/s": 1 / 8, "bps": 1 / 8}
SYMBOLS: dict[Unit, dict[str, float]] = {
    "B": {"B": 1, "": 1},
    "B/s": {"B/s": 1, **BITS},
    "FLOP/s": {"FLOP/s": 1, "FLOPS": 1, "": 1},
    "Hz": {"Hz": 1, "": 1},
    "s": {},
    "W": {"W": 1},
    "": {},
}
# Every spelling of a unit -> its factor to SI.
FACTORS: dict[Unit, dict[str, float]] = {
    unit: {"": 1.0} | {p + s: pf * sf for p, pf in PREFIXES.items() for s, sf in symbols.items()}
    for unit, symbols in SYMBOLS.items()
}
FACTORS[""] = dict(COUNTS)
FACTORS["B/s"] |= {f"{p}bit": PREFIXES[p.upper()] / 8 for p in ("", "K", "M", "G", "k", "m", "g")}
FACTORS["s"] |= {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
FACTORS["s"] |= {"min": 60.0, "h": 3600.0, "d": 86_400.0}
EXAMPLES: dict[Unit, str] = {
    "B": "1048576, 64MiB or 1.5GB",
    "B/s": "50e9, 50GB/s or 400Gb/s",
    "FLOP/s": "989e12 or 989TFLOP/s",
    "Hz": "1.98e9 or 1.98GHz",
    "s": "5e-6 or 5us",
    "W": "700 or 700W",
    "": "8",
}
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse_quantity(text: str, unit: Unit = "B") -> float:
    """The positive, finite number of `unit` that a text states: 50e9 for `50GB/s` or `400Gb/s`."""
    value = parse_number(text, unit)
    if not (0 < value < math.inf):
        raise InputError(f"{text!r} must be positive" + " and finite" * (value == math.inf))
    return value


def parse_number(text: str, unit: Unit) -> float:
    """Like `parse_quantity`, zero allowed."""
    number, written = _number_and_unit(text)
    if number is None:
        kind = {"B": "a size", "B/s": "a rate"}.get(unit, "a number")
        raise InputError(f"{text!r} is not {kind}; write for example {EXAMPLES[unit]}")
    if written in FACTORS[unit]:
        factor = FACTORS[unit][written]
        return number * factor if factor >= 1 else number / (1 / factor)  # 5us is 5e-6 exactly
    if unit.startswith("B") and written.endswith("b"):
        raise InputError(
            f"{text!r}: a small b means bits; write bytes with B (8 Gb = 1GB), a rate with /s "
            "(400Gb/s = 50GB/s)"
        )
    raise InputError(f"{text!r}: unknown unit {written!r}; write for example {EXAMPLES[unit]}")


def parse_count(text: str) -> float:
    """The positive number of tokens or parameters of `15T`, `70B`, `70e9` or `4Mi`; B is 1e9."""
    number, prefix = _number_and_unit(text)
    count = (number or 0) * COUNTS.get(prefix, 0)
    if not 0 < count < math.inf:
        raise InputError(f"{text!r} is not a count; write for example 70e9, 70B, 15T or 4Mi")
    return count


def count_with_prefix(text: str) -> float | None:
    """The number of `8k`, `4Mi` or `15T`; None of any other text, plain digits too."""
    _, prefix = _number_and_unit(text)
    return parse_count(text) if prefix and prefix in COUNTS else None


def parse_whole(text: str) -> int:
    """A whole number from `8192`, `8Ki` or `8k`.

    Raises:
        ValueError: it is none.
    """
    number = count_with_prefix(text)
    return int(text) if number is None or not number.is_integer() else int(number)


def parse_real(text: str) -> float:
    """A number from `0.5`, `1e6` or `15T`; ValueError for what is none."""
    number = count_with_prefix(text)
    return float(text) if number is None else number


def parse_size(text: str) -> int:
    """A whole number of bytes from `64MiB`, `1GB` or `1048576`."""
    value = parse_quantity(text)
    if value != int(value):
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


def format_size(bytes: SupportsFloat) -> str:
    """`64 MiB` for whole multiples of a binary unit, else three digits and a decimal unit."""
    return format_binary(bytes) if is_binary(bytes) else format_memory(bytes)


def is_binary(bytes: SupportsFloat) -> bool:
    """Whether a size is a whole multiple of a binary unit, of few enough digits."""
    size = float(bytes)
    return any(f <= size < MOST_BINARY_UNITS * f and size % f == 0 for f in BINARY.values())


def format_binary(bytes: SupportsFloat) -> str:
    """`64 MiB`, `131 GiB`: the largest binary unit of which it is whole, else with three digits."""
    size = float(bytes)
    fits = [(p, f) for p, f in reversed(BINARY.items()) if f <= size]
    for prefix, factor in fits:
        if size < MOST_BINARY_UNITS * factor and size % factor == 0:
            return f"{size / factor:.0f} {prefix}B"
    return (
        f"{_three_digits(size / fits[0][1])} {fits[0][0]}B" if fits else f"{_three_digits(size)} B"
    )


def format_rate(rate: SupportsFloat, unit: str = "B/s") -> str:
    """A rate with a decimal prefix: `450 GB/s`, `989 TFLOP/s`."""
    return f"{_decimal(float(rate))}{unit}"


def format_memory(size: SupportsFloat) -> str:
    """`1.36 GB`, always decimal, for sizes that are added up."""
    return format_rate(size, "B")


def three_digits(number: SupportsFloat) -> str:
    """`408,000`: no more digits than a prediction has; `1e+15` from there on."""
    rounded = float(f"{float(number):.3g}")
    return f"{rounded:,.0f}" if rounded < 1e15 else f"{rounded:.3g}"


def format_count(count: SupportsFloat) -> str:
    """`70.6B`, `15T`, `4M`, as parameters and tokens are counted."""
    if float(count) >= MOST_COUNTED:
        return f"{float(count):.3g}"
    return _decimal(float(count)).replace(" ", "").replace("G", "B")


def format_calls(calls: SupportsFloat) -> str:
    """`1,024`; `0.1` of what runs in one step of ten."""
    number = float(calls)
    return f"{number:,.0f}" if number.is_integer() or number >= 100 else f"{number:.3g}"


def percent(share: SupportsFloat) -> str:
    """`41.2%`; `under 0.1%` for less than half a thousandth."""
    value = float(share)
    return f"{value:.1%}" if value >= 0.0005 or value == 0 else "under 0.1%"


def format_time(time: SupportsFloat) -> str:
    """Seconds as `1.5 s`, `12 ms`, `0.3 us`; `0.11 ps` below a nanosecond."""
    seconds = float(time)
    if 0 < seconds < 1e-9:
        return f"{_three_digits(seconds * 1e12)} ps"
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds * 1e6)} us"


def format_days(time: SupportsFloat) -> str:
    """`30 days`, `0.25 days`; `434 years` from a thousand days on."""
    days = float(time) / FACTORS["s"]["d"]
    if days > MOST_DAYS:
        return f"{three_digits(days / YEAR) if days > 99 * YEAR else f'{days / YEAR:.3g}'} years"
    return f"{three_digits(days) if days > 99 else f'{days:.3g}'} days"


def format_dollars(money: SupportsFloat) -> str:
    """`$1,230,000`, `$0.124`."""
    return f"${three_digits(money)}"


def format_range(low: SupportsFloat, high: SupportsFloat) -> str:
    """Seconds as `1.2 s to 1.6 s`; without an upper bound `at least 1.2 s`."""
    if math.isinf(float(high)):
        return f"at least {format_time(low)}"
    return f"{format_time(low)} to {format_time(high)}"


def _decimal(value: float) -> str:
    """Three digits and a decimal prefix, a space between them."""
    prefix = next((p for p, f in reversed(DECIMAL.items()) if abs(value) >= 0.9995 * f), "")
    return f"{_three_digits(value / DECIMAL[prefix])} {prefix}"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < MOST_IN_DIGITS else f"{value:.3g}"


def _number_and_unit(text: str) -> tuple[float | None, str]:
    """The number that a text begins with, and the unit behind it; None: there is no number."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        return None, ""
    try:
        return float(match[1]), match[2]
    except ValueError:  # 1.2.3
        return None, match[2]
