"""Sizes: what is written is what is read, and bits are never taken for bytes."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.reading import read
from scaling.meshes.units import (
    format_calls,
    format_rate,
    format_size,
    format_time,
    parse_count,
    parse_quantity,
    parse_real,
    parse_size,
    parse_sweep,
    parse_whole,
)


@dataclass(frozen=True)
class Figures:
    whole: int
    real: float | None
    name: str | None


UNITS = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
BINARY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@given(st.integers(1, 10**6), st.sampled_from(sorted({**UNITS, **BINARY_UNITS}.items())))
def test_a_whole_number_of_any_unit_is_exact(number, unit):
    name, factor = unit
    assert parse_size(f"{number}{name}") == number * factor
    assert parse_size(f" {number} {name} ") == number * factor


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("0.5", "B", 0.5),
        ("100e9", "B/s", 100e9),
        ("50GB/s", "B/s", 50e9),
        ("400Gb/s", "B/s", 50e9),
        ("25 Gbps", "B/s", 3.125e9),
        ("100Mbit/s", "B/s", 12.5e6),
        ("989TFLOP/s", "FLOP/s", 989e12),
        ("1.98GHz", "Hz", 1.98e9),
        ("0.5us", "s", 0.5e-6),
        ("8", "", 8),
    ],
)
def test_quantities_are_read_in_their_unit(text, unit, value):
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)


@given(st.sampled_from(["k", "M", "G", "T"]), st.integers(1, 10**6))
def test_a_rate_in_bits_is_an_eighth_of_the_same_in_bytes(prefix, number):
    bits, per_byte = (parse_quantity(f"{number}{prefix}{b}/s", "B/s") for b in ("b", "B"))
    assert 8 * bits == per_byte


@pytest.mark.parametrize(
    ("text", "number"), [("8k", 8000), ("8Ki", 8192), ("1.5M", 1_500_000), ("7B", 7 * 10**9)]
)
def test_a_number_may_have_a_prefix_wherever_it_stands(text, number):
    """On the command line, in run.json and --set, as a size; k is 1,000 as in kB."""
    assert parse_whole(text) == parse_real(text) == parse_count(text) == number
    found = read(Figures, {"whole": text, "real": text, "name": text}, "figures")
    assert found == Figures(number, float(number), text)
    if not text.endswith("B"):
        assert parse_size(text) == number


@pytest.mark.parametrize("text", ["1.0001k", "8q", "k", "8 k i", "1e6", ""])
def test_what_is_no_whole_number_is_none(text):
    with pytest.raises(ValueError, match="invalid literal"):
        parse_whole(text)


@pytest.mark.parametrize(
    ("text", "unit"),
    [("25GB", "B/s"), ("25GB/s", "B"), ("5us", "B"), ("8GB", ""), ("5B", "s"), ("1GHz", "B/s")],
)
def test_another_unit_is_refused_with_an_example(text, unit):
    with pytest.raises(InputError, match="unknown unit .*write for example"):
        parse_quantity(text, unit)


@pytest.mark.parametrize("text", ["", "GB", "1XB", "1Q", "-1GB", "0", "1.2.3", "1e999", "1,5GB"])
def test_what_is_not_a_size_is_refused_by_its_own_words(text):
    with pytest.raises(InputError, match="size|unit|positive") as raised:
        parse_size(text)
    assert repr(text) in str(raised.value)


def test_bits_are_refused_and_bytes_suggested():
    with pytest.raises(InputError, match="8 Gb = 1GB"):
        parse_quantity("400Gb")


@pytest.mark.parametrize("text", ["0.5", "1.0001kB"])
def test_a_size_is_a_whole_number_of_bytes(text):
    with pytest.raises(InputError, match="whole number"):
        parse_size(text)


@given(st.integers(1, 2**20), st.integers(0, 2**30))
def test_a_sweep_stays_within_its_ends(first, extra):
    sizes = parse_sweep(f"{first}:{first + extra}")
    assert sizes[0] == first and sizes[-1] <= first + extra < 2 * sizes[-1]
    assert all(b == 2 * a for a, b in zip(sizes, sizes[1:], strict=False))


@pytest.mark.parametrize("text", ["1KiB", "8KiB:1KiB"])
def test_a_sweep_that_goes_nowhere_says_how_to_write_it(text):
    with pytest.raises(InputError, match="write"):
        parse_sweep(text)


@given(st.integers(1, 2**50))
def test_a_printed_size_reads_back_within_its_three_digits(size):
    assert parse_quantity(format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.floats(1e3, 9.9e17))
def test_a_printed_rate_reads_back_within_its_three_digits(rate):
    assert parse_quantity(format_rate(rate), "B/s") == pytest.approx(rate, rel=0.006)


@pytest.mark.parametrize(
    ("size", "text"),
    [(2**26, "64 MiB"), (80 * 2**30, "80 GiB"), (84_942_979_072, "84.9 GB"), (10**9, "1 GB")],
)
def test_sizes_print_in_the_unit_they_were_made_in(size, text):
    assert format_size(size) == text


def test_calls_that_some_steps_make_are_not_rounded_away():
    assert [format_calls(n) for n in (0.1, 1, 1.5, 1024.25)] == ["0.1", "1", "1.5", "1,024"]


def test_rates_and_times_print_short():
    assert format_rate(989.4e12, "FLOP/s") == "989 TFLOP/s"
    assert format_rate(999.9e9) == "1 TB/s"
    assert [format_time(t) for t in (1.5, 12e-3, 0.3e-6, 0)] == ["1.5 s", "12 ms", "0.3 us", "0 us"]
    assert [format_time(t) for t in (9.5e6, 8.49e300)] == ["9500000 s", "8.49e+300 s"]
