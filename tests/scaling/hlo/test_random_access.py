"""Rows that indices name: what gathers and scatters touch, and what the indices decide."""

import pytest

from scaling.hlo.op_cost import work_of
from scaling.hlo.random_access import ADDING, SECTOR, SWAPPING
from scaling.program.ir import Kernel
from tests.scaling.hlo.texts import ADD, module

N, D, ROWS = 1000, 16, 4000  # rows of the table, floats in a row of 64 bytes, accesses
TABLE, INDICES, TAKEN = f"f32[{N},{D}]{{1,0}}", f"s32[{ROWS},1]", f"f32[{ROWS},{D}]"
GATHER = f"r = {TAKEN} gather({{}}, %p1), slice_sizes={{{{1,{D}}}}}"
WINDOW = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}"
SCATTER = f"r = {TABLE} scatter(%p0, %p1, %p2), {WINDOW}, to_apply=%f"
MULTIPLY = ADD.replace("add(", "multiply(")
REPLACE = "a = f32[] parameter(0); b = f32[] parameter(1)"  # the last is the root


def fusion(operands: list[str], result: str, body: str, **others: str) -> Kernel:
    given = "; ".join(f"p{i} = {shape} parameter({i})" for i, shape in enumerate(operands))
    names = ", ".join(f"%p{i}" for i in range(len(operands)))
    call = f"k = {result} fusion({names}), kind=kInput, calls=%body"
    found = module(f"{given}; {call}", body=f"{given}; {body}", **others)
    work = work_of(found.entry.root)
    assert work is not None
    return work


def gather(table: str = TABLE, body: str = GATHER.format("%p0"), taken: str = TAKEN) -> Kernel:
    return fusion([table, INDICES], taken, body)


def scatter(function: str = ADD, more: str = "") -> Kernel:
    return fusion([TABLE, INDICES, TAKEN], TABLE, SCATTER + more, f=function)


def test_rows_that_are_taken_again_are_kept_apart() -> None:
    found = gather()
    row = 4 * D
    assert found.bytes == N * row + 4 * ROWS + ROWS * row  # the table once, indices, the result
    assert (found.again, found.spread, found.clashes) == ((ROWS - N) * row, N * row, 0)


@pytest.mark.parametrize("width", [1, 2, 12])
def test_short_rows_take_whole_sectors(width: int) -> None:
    table, taken = f"f32[100000,{width}]{{1,0}}", f"f32[{ROWS},{width}]"
    found = gather(table, f"r = {taken} gather(%p0, %p1), slice_sizes={{1,{width}}}", taken)
    sectors = -(-4 * width // SECTOR)
    assert found.bytes == ROWS * 4 * width * 2 + 4 * ROWS
    assert found.again == ROWS * (sectors * SECTOR - 4 * width)


def test_columns_of_a_row_major_table_take_a_sector_for_each_element() -> None:
    table, taken = "f32[64,1000]{1,0}", f"f32[{ROWS},64]"
    body = f"r = {taken} gather(%p0, %p1), slice_sizes={{64,1}}"
    along, across = gather(table.replace("1,0", "0,1"), body, taken), gather(table, body, taken)
    assert across.again == ROWS * 64 * SECTOR - 64 * 1000 * 4
    assert along.again == (ROWS - 1000) * 64 * 4


def test_a_gather_of_what_a_fusion_computes_reads_what_that_is_computed_from() -> None:
    wide = f"w = f32[{N},{D}]{{1,0}} convert(%p0); n = f32[{N},{D}]{{1,0}} negate(%w)"
    found = gather(f"bf16[{N},{D}]{{1,0}}", f"{wide}; {GATHER.format('%n')}")
    assert found.again == (ROWS - N) * 2 * D


def test_a_gather_from_a_number_repeated_reads_no_rows() -> None:
    body = f"c = f32[] constant(1); b = {TABLE} broadcast(%c), dimensions={{}}"
    assert gather(body=f"{body}; {GATHER.format('%b')}").again == 0


def test_sorted_rows_are_taken_once() -> None:
    assert gather(body=GATHER.format("%p0") + ", indices_are_sorted=true").again == 0


def test_a_scatter_reads_and_writes_its_rows_again_and_its_updates_may_meet() -> None:
    found, row = scatter(), 4 * D
    assert found.bytes == 2 * N * row + 4 * ROWS + ROWS * row
    assert (found.again, found.clashes) == (2 * (ROWS - N) * row, ROWS * ADDING)
    assert scatter(MULTIPLY).clashes == ROWS * SWAPPING
    assert scatter(more=", unique_indices=true").clashes == 0


def test_a_scatter_that_replaces_does_not_read() -> None:
    added, replaced = scatter(), scatter(REPLACE)
    assert replaced.bytes == added.bytes - N * 4 * D
    assert (replaced.again, replaced.clashes) == (added.again / 2, 0)


def test_a_few_rows_of_a_large_donated_table_leave_the_rest_alone() -> None:
    table, new = "f32[80000000,32]{1,0}", "f32[8,32]"
    body = f"r = {table} scatter(%p0, %p1, %p2), {WINDOW}, to_apply=%f"
    found = fusion([table, "s32[8,1]", new], table, body, f=ADD)
    assert (found.bytes, found.again) == (pytest.approx(3 * 8 * 128 + 32), 0)


def test_a_part_of_a_gather_takes_a_part_of_the_rows() -> None:
    half = f"g = {TAKEN} gather(%p0, %p1), slice_sizes={{1,{D}}}"
    body = f"{half}; s = f32[{ROWS // 2},{D}] slice(%g), slice={{[0:{ROWS // 2}], [0:{D}]}}"
    found = gather(body=body, taken=f"f32[{ROWS // 2},{D}]")
    assert found.again == (ROWS / 2 - N) * 4 * D


def test_a_kernel_of_its_own_counts_alike() -> None:
    given = f"p0 = {TABLE} parameter(0); p1 = {INDICES} parameter(1)"
    found = module(f"{given}; {GATHER.format('%p0')}")
    work = work_of(found.entry.root)
    assert work is not None and work.again == gather().again
