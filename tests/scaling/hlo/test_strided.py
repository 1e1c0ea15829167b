"""Which kernels read across the order in which their operands lie."""

import pytest

from scaling.hlo.op_cost import work_of
from scaling.hlo.parse import parse_module

HEAD = "HloModule m, is_scheduled=true\n\nENTRY %main (x: f32[8,16]) -> f32[1] {\n"


def work(lines, before=""):
    """Of the last instruction of an entry."""
    module = parse_module(HEAD.replace("ENTRY", before + "\nENTRY") + lines + "\n}\n")
    return work_of(module.entry.root, module.entry, module)


def strided(lines, before=""):
    return work(lines, before).strided


@pytest.mark.parametrize(
    ("result", "operand", "opcode", "across"),
    [
        ("f32[8,16]{1,0}", "f32[8,16]{0,1}", "copy(%x)", True),
        ("f32[8,16]{1,0}", "f32[8,16]{1,0}", "copy(%x)", False),
        ("f32[16,8]{1,0}", "f32[8,16]{1,0}", "transpose(%x), dimensions={1,0}", True),
        ("f32[16,8]{0,1}", "f32[8,16]{1,0}", "transpose(%x), dimensions={1,0}", False),
        ("f32[16,8,4]{2,1,0}", "f32[8,16,4]{2,1,0}", "transpose(%x), dimensions={1,0,2}", False),
        ("f32[16,8,1]{2,1,0}", "f32[8,16,1]{2,1,0}", "transpose(%x), dimensions={1,0,2}", True),
        ("f32[1,1]{1,0}", "f32[1,1]{0,1}", "copy(%x)", False),
        ("f32[0,8,4]{2,1,0}", "f32[0,8,4]{0,1,2}", "copy(%x)", False),
    ],
)
def test_a_copy_reads_across_if_neighbours_do_not_stay_neighbours(result, operand, opcode, across):
    found = strided(f"  %x = {operand} parameter(0)\n  ROOT %y = {result} {opcode}")
    elements = 1
    for size in operand.partition("[")[2].partition("]")[0].split(","):
        elements *= int(size)
    assert found == (4 * elements if across else 0)


@pytest.mark.parametrize(
    ("left", "numbers", "across"),
    [
        ("f32[8,16]{1,0}", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", False),
        ("f32[16,8]{1,0}", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", True),
        ("f32[16,8]{0,1}", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", False),
    ],
)
def test_a_product_reads_its_left_operand_across_unless_what_is_summed_lies_together(
    left, numbers, across
):
    lines = f"  %a = {left} parameter(0)\n  %b = f32[16,4]{{1,0}} parameter(1)\n"
    lines += f"  ROOT %y = f32[8,4]{{1,0}} dot(%a, %b), {numbers}"
    assert strided(lines) == (8 * 16 * 4 if across else 0)


def test_all_that_a_transposing_fusion_reads_is_read_across():
    body = (
        "%body (a: f32[8,16], b: f32[8,16]) -> f32[16,8] {\n"
        "  %a = f32[8,16]{1,0} parameter(0)\n  %b = f32[8,16]{1,0} parameter(1)\n"
        "  %c = f32[8,16]{1,0} add(%a, %b)\n"
        "  ROOT %t = f32[16,8]{1,0} transpose(%c), dimensions={1,0}\n}\n"
    )
    lines = "  %x = f32[8,16]{1,0} parameter(0)\n  %y = f32[8,16]{1,0} parameter(1)\n"
    lines += "  ROOT %f = f32[16,8]{1,0} fusion(%x, %y), kind=kLoop, calls=%body"
    assert strided(lines, body) == 2 * 8 * 16 * 4


@pytest.mark.parametrize(
    ("operand", "transposed", "dimensions", "span"),
    [
        ("f32[64,256]", "f32[256,64]", "1,0", 64 * 1024),  # 64 rows, each 1 KiB from the next
        ("f32[64,192]", "f32[192,64]", "1,0", 64 * 256),  # 768 bytes: 256 is the power in it
        ("f32[4,16,256]", "f32[256,4,16]", "2,0,1", 64 * 1024),  # rows of two dimensions
        ("f32[4,256,16]", "f32[4,16,256]", "0,2,1", 256 * 64),  # the outermost is not crossed
        ("f32[64,33]", "f32[33,64]", "1,0", 64 * 4),  # odd: neighbours in the cache
        ("f32[64,256]", "f32[64,256]", "0,1", 0),
    ],
)
def test_a_column_takes_up_the_cache_by_the_power_of_two_in_its_stride(
    operand, transposed, dimensions, span
):
    lines = f"  %x = {operand} parameter(0)\n"
    lines += f"  ROOT %y = {transposed} transpose(%x), dimensions={{{dimensions}}}"
    assert work(lines).span == span


def test_columns_of_all_arrays_that_a_fusion_reads_lie_in_the_cache_together():
    body = (
        "%body (a: f32[64,256], b: f32[64,256]) -> f32[256,64] {\n"
        "  %a = f32[64,256]{1,0} parameter(0)\n  %b = f32[64,256]{1,0} parameter(1)\n"
        "  %c = f32[64,256]{1,0} add(%a, %b)\n"
        "  ROOT %t = f32[256,64]{1,0} transpose(%c), dimensions={1,0}\n}\n"
    )
    lines = "  %x = f32[64,256]{1,0} parameter(0)\n  %y = f32[64,256]{1,0} parameter(1)\n"
    lines += "  ROOT %f = f32[256,64]{1,0} fusion(%x, %y), kind=kLoop, calls=%body"
    assert work(lines, body).span == 2 * 64 * 1024


def test_arithmetic_alone_reads_nothing_across():
    lines = "  %x = f32[8,16]{1,0} parameter(0)\n  ROOT %y = f32[8,16]{1,0} add(%x, %x)"
    assert strided(lines) == 0
