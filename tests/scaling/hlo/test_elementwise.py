"""Vector work of single instructions, against counts by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo import elementwise
from scaling.hlo.elementwise import vector_work, window_size
from scaling.hlo.parse import UnknownHlo, parse_instruction
from tests.scaling.hlo.texts import ADD, module

FAR = """a = f32[] parameter(0); b = f32[] parameter(1); e = f32[] exponential(%a)
    m = f32[] multiply(%e, %b); sum = f32[] add(%m, %b)"""


def work(line: str, **operands: str) -> tuple[float, float]:
    """Vector work of the one instruction in `line`; operands by name and shape."""
    given = [f"{name} = {s} parameter({i})" for i, (name, s) in enumerate(operands.items())]
    found = module("; ".join([*given, line.removeprefix("%")]), add=ADD, far=FAR)
    return vector_work(found.entry.root)


def test_no_operation_is_in_two_tables() -> None:
    tables = [getattr(elementwise, name) for name in ("FREE", "MOVES", "TRANSCENDENTAL")]
    tables += [elementwise.ARITHMETIC, elementwise.APPLYING]
    assert sum(map(len, tables)) == len(frozenset().union(*tables))


WORK = {
    **dict.fromkeys(sorted(elementwise.ARITHMETIC), (15, 0)),
    **dict.fromkeys([*sorted(elementwise.TRANSCENDENTAL), "rng-bit-generator"], (0, 15)),
    **dict.fromkeys(sorted(elementwise.MOVES | elementwise.FREE - {"parameter"}), (0, 0)),
}


@pytest.mark.parametrize("opcode", WORK)
def test_an_elementwise_operation_is_one_flop_or_transcendental_per_element(opcode: str) -> None:
    assert work(f"%r = f32[3,5]{{1,0}} {opcode}(%x)", x="f32[3,5]{1,0}") == WORK[opcode]


@given(rows=st.integers(1, 50), columns=st.integers(1, 50))
def test_a_sum_of_n_numbers_is_n_minus_one_additions(rows: int, columns: int) -> None:
    line = f"%r = f32[{rows}]{{0}} reduce(%x, %z), dimensions={{1}}, to_apply=%add"
    found = work(line, x=f"f32[{rows},{columns}]{{1,0}}", z="f32[]")
    assert found == (rows * (columns - 1), 0)


def test_a_reduction_runs_all_of_its_function() -> None:
    line = "%r = f32[] reduce(%x, %z), dimensions={0}, to_apply=%far"
    assert work(line, x="f32[10]{0}", z="f32[]") == (2 * 9, 9)


def test_a_window_adds_its_elements_for_each_result() -> None:
    line = "%r = f32[4,16]{1,0} reduce-window(%x, %z), window={size=1x16 pad=0_0x15_0}, "
    assert work(line + "to_apply=%add", x="f32[4,16]{1,0}", z="f32[]") == (15 * 64, 0)


def test_the_gradient_of_a_maximum_compares_and_adds() -> None:
    line = "%r = f32[8]{0} select-and-scatter(%x, %s, %z), window={size=2 stride=2}, "
    shapes = {"x": "f32[8]{0}", "s": "f32[4]{0}", "z": "f32[]"}
    assert work(line + "select=%far, scatter=%add", **shapes) == (4 * 2 + 4, 4)


def test_scatter_adds_each_update_once() -> None:
    line = "%r = f32[100,8]{1,0} scatter(%x, %i, %u), to_apply=%add"
    assert work(line, x="f32[100,8]{1,0}", i="s32[3,1]{1,0}", u="f32[3,8]{1,0}") == (24, 0)


def test_scatter_of_two_arrays_counts_the_updates_of_one() -> None:
    line = "%r = (f32[9,2], f32[9,2]) scatter(%x, %y, %i, %u, %v), to_apply=%add"
    shapes = {"x": "f32[9,2]", "y": "f32[9,2]", "i": "s32[3,1]"}
    assert work(line, **shapes, u="f32[3,2]", v="f32[3,2]") == (6, 0)


def test_sorting_compares_along_the_sorted_dimension_only() -> None:
    line = "%r = f32[64,16]{1,0} sort(%x), dimensions={0}, to_apply=%add"
    assert work(line, x="f32[64,16]{1,0}") == (64 * 16 * 6, 0)


def test_a_fourier_transform_is_five_n_log_n() -> None:
    line = "%r = c64[3,64]{1,0} fft(%x), fft_type=FFT, fft_length={64}"
    assert work(line, x="c64[3,64]{1,0}") == (5 * 3 * 64 * 6, 0)


def test_an_unknown_operation_is_refused_with_its_line() -> None:
    with pytest.raises(UnknownHlo, match=r"no cost is known for 'frobnicate': 'ROOT %r = f32\[3\]"):
        work("%r = f32[3]{0} frobnicate(%x)", x="f32[3]{0}")


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather-start", "send", "while", "infeed"])
def test_what_communicates_or_loops_has_no_cost_here(opcode: str) -> None:
    with pytest.raises(UnknownHlo, match=opcode):
        work(f"%r = f32[3]{{0}} {opcode}(%x)", x="f32[3]{0}")


@given(st.lists(st.integers(1, 99), min_size=1, max_size=4))
def test_window_sizes_read_back(sizes: list[int]) -> None:
    text = "x".join(map(str, sizes))
    line = f"  %r = f32[] reduce-window(%x), window={{size={text} stride={text}}}, to_apply=%add"
    assert window_size(parse_instruction(line)) == tuple(sizes)
    assert math.prod(window_size(parse_instruction("  %r = f32[] reduce(%x)"))) == 1
