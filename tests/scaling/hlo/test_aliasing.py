"""Whose memory a result takes: passed on, updated in place, written over."""

import pytest

from scaling.hlo.aliasing import may_write_over, source_of
from scaling.hlo.parse import Module, parse_module

GIVEN = """  %x = f32[8,4] parameter(0)
  %y = f32[8,4] parameter(1)
  %i = s32[] parameter(2)
  %part = f32[1,4] parameter(3)
"""


def module(line: str, *bodies: str) -> Module:
    """A module whose entry ends in `line`, with fused computations given as their lines."""
    others = "".join(f"%body{n} () -> f32[] {{\n{text}\n}}\n\n" for n, text in enumerate(bodies))
    return parse_module(
        f"HloModule m, is_scheduled=true\n\n{others}ENTRY %main () -> f32[] {{\n{GIVEN}{line}\n}}\n"
    )


def sources(line: str, *paths: tuple[int, ...], bodies: tuple[str, ...] = ()) -> list:
    found = module(line, *bodies)
    return [source_of(found.entry.root, path, found.entry, found) for path in paths]


def over(line: str, *bodies: str) -> list[int]:
    found = module(line, *bodies)
    return may_write_over(found.entry.root, found.entry, found)


# Passed on


@pytest.mark.parametrize("opcode", ["bitcast", "optimization-barrier", "opt-barrier"])
def test_another_name_is_the_same_memory(opcode: str) -> None:
    assert sources(f"  ROOT %r = f32[32] {opcode}(%x)", ()) == [(0, ())]


def test_tuples_name_their_parts() -> None:
    assert sources("  ROOT %t = (f32[8,4], s32[]) tuple(%y, %i)", (0,), (1,)) == [(0, ()), (1, ())]


def test_an_element_of_a_tuple_is_where_it_was() -> None:
    lines = "  %t = (s32[], (f32[8,4])) tuple(%i, %x)\n"
    assert sources(f"{lines}  ROOT %e = (f32[8,4]) get-tuple-element(%t), index=1", (0,)) == [
        (0, (1, 0))
    ]


@pytest.mark.parametrize("opcode", ["add", "dot", "custom-call", "all-gather", "fusion"])
def test_what_is_computed_has_memory_of_its_own(opcode: str) -> None:
    body = "  %p = f32[8,4] parameter(0)\n  ROOT %n = f32[8,4] negate(%p)"
    line = f"  ROOT %r = f32[8,4] {opcode}(%x), calls=%body0"
    assert sources(line, (), bodies=(body,)) == [None]


# Asynchronous pairs: the shapes of jax 0.10 and of 0.12


@pytest.mark.parametrize(
    "start, own, passed, done",
    [
        ("(f32[8,4], f32[16,4]) all-gather-start(%x)", (1,), {(0,): (0, ())}, (1,)),
        ("((f32[8,4]), f32[4,4]) reduce-scatter-start(%x)", (1,), {(0, 0): (0, ())}, (1,)),
        ("f32[8,4] all-reduce-start(%x)", (), {}, ()),
        ("((f32[8,4]), f32[8,4]) all-reduce-start(%x)", (1,), {(0, 0): (0, ())}, (1,)),
        ("(f32[8,4], f32[8,4], u32[]) copy-start(%x)", (0,), {(1,): (0, ())}, (0,)),
        ("((f32[8,4]), f32[4,8], s32[]) async-start(%x)", (1,), {(0, 0): (0, ())}, (1,)),
    ],
)
def test_a_start_has_its_results_and_passes_on_its_operands(
    start: str, own: tuple, passed: dict, done: tuple
) -> None:
    assert sources(f"  ROOT %s = {start}, calls=%none", own) == [None]
    assert sources(f"  ROOT %s = {start}, calls=%none", *passed) == list(passed.values())
    opcode = start.split()[-1].split("-start")[0]
    lines = f"  %s = {start}, calls=%none\n  ROOT %d = f32[8,4] {opcode}-done(%s)"
    assert sources(lines, ()) == [(0, done)]


def test_several_reduced_together_each_have_a_result() -> None:
    start = "(f32[8,4], f32[8,4]) all-reduce-start(%x, %y)"
    assert sources(f"  ROOT %s = {start}", (0,), (1,)) == [None, None]
    lines = f"  %s = {start}\n  ROOT %d = (f32[8,4], f32[8,4]) all-reduce-done(%s)"
    assert sources(lines, (0,), (1,)) == [(0, (0,)), (0, (1,))]
    gather = "((f32[8,4], f32[8,4]), (f32[16,4], f32[16,4])) all-gather-start(%x, %y)"
    assert sources(f"  ROOT %s = {gather}", (0, 1), (1, 1)) == [(1, ()), None]


def test_an_update_between_start_and_done_passes_all_on() -> None:
    shape = "((f32[8,4]), f32[4,8], s32[])"
    lines = f"  %s = {shape} async-start(%x), calls=%c\n  %u = {shape} async-update(%s)\n"
    assert sources(f"{lines}  ROOT %d = f32[4,8] async-done(%u)", ()) == [(0, (1,))]


# Updated in place


def test_a_slice_is_written_into_its_operand() -> None:
    line = "  ROOT %r = f32[8,4] dynamic-update-slice(%x, %part, %i, %i)"
    assert sources(line, ()) == [(0, ())]


UPDATE = """  %q = f32[1,4] parameter(0)
  %p = f32[8,4] parameter(1)
  %k = s32[] parameter(2)
  %b = f32[8,4] bitcast(%p)
  %u = f32[8,4] dynamic-update-slice(%b, %q, %k, %k)
"""


@pytest.mark.parametrize("root", ["  ROOT %r = f32[32] bitcast(%u)", ""])
def test_a_fusion_that_ends_in_an_update_writes_into_its_parameter(root: str) -> None:
    body = UPDATE + root if root else UPDATE.replace("%u =", "ROOT %u =")
    line = "  ROOT %f = f32[8,4] fusion(%part, %x, %i), kind=kLoop, calls=%body0"
    assert sources(line, (), bodies=(body,)) == [(1, ())]


def test_of_several_results_each_has_its_own_rule() -> None:
    body = UPDATE + "  %n = f32[8,4] negate(%p)\n  ROOT %t = (f32[8,4], f32[8,4]) tuple(%n, %u)"
    line = "  ROOT %f = (f32[8,4], f32[8,4]) fusion(%part, %x, %i), kind=kLoop, calls=%body0"
    assert sources(line, (0,), (1,), bodies=(body,)) == [None, (1, ())]


def test_several_results_of_one_operation_are_new() -> None:
    body = UPDATE + "  ROOT %s = (f32[8,4], f32[8,4]) sort(%u, %p), dimensions={0}"
    line = "  ROOT %f = (f32[8,4], f32[8,4]) fusion(%part, %x, %i), kind=kInput, calls=%body0"
    assert sources(line, (0,), (1,), bodies=(body,)) == [None, None]


def test_an_update_of_something_new_is_not_in_place() -> None:
    body = UPDATE.replace("bitcast(%p)", "negate(%p)").replace("%u =", "ROOT %u =")
    line = "  ROOT %f = f32[8,4] fusion(%part, %x, %i), kind=kLoop, calls=%body0"
    assert sources(line, (), bodies=(body,)) == [None]


@pytest.mark.parametrize("opcode", ["custom-call", "fusion"])
def test_a_stated_alias_is_believed(opcode: str) -> None:
    alias = "output_to_operand_aliasing={{1}: (0, {})}"
    line = f"  ROOT %r = (f32[8,4], f32[8,4]) {opcode}(%x, %y), {alias}, calls=%body0"
    body = "  ROOT %p = f32[8,4] parameter(0)"
    if opcode == "custom-call":
        assert sources(line, (0,), (1,), bodies=(body,)) == [None, (0, ())]
    else:
        assert sources(line, (1,), bodies=(body,)) == [(0, ())]


# Written over


@pytest.mark.parametrize(
    "line, numbers",
    [
        ("f32[8,4] add(%x, %y)", [0, 1]),
        ("f32[8,4] copy(%x)", [0]),
        ("pred[8,4] compare(%x, %y)", []),
        ("f32[8,4] select(%i, %x, %y)", [1, 2]),
        ("f32[4,8] transpose(%x)", []),
        ("f32[8,4] dot(%x, %y)", []),
        ("f32[8,4] all-reduce(%x)", [0]),
        ("(f32[8,4], f32[1,4]) all-reduce-start(%x, %part)", [0, 1]),
        ("f32[8,4] scatter(%x, %i, %part)", [0]),
        ("f32[16,4] all-gather(%x)", []),
    ],
)
def test_what_may_be_written_over(line: str, numbers: list[int]) -> None:
    assert over(f"  ROOT %r = {line}") == numbers


TWICE = """  %t = f32[8,4] reverse(%p)
  %s = f32[8,4] add(%p, %t)
  ROOT %r = f32[8,4] add(%s, %q)"""
PARAMETERS = "  %p = f32[8,4] parameter(0)\n  %q = f32[8,4] parameter(1)\n"


@pytest.mark.parametrize(
    "body, numbers",
    [
        ("  %e = f32[8,4] exponential(%p)\n  ROOT %r = f32[8,4] add(%e, %q)", [0, 1]),
        ("  %t = f32[8,4] reverse(%p)\n  ROOT %r = f32[8,4] add(%t, %q)", [1]),
        ("  %t = f32[8,4] copy(%p)\n  ROOT %r = f32[8,4] add(%t, %q)", [1]),
        (TWICE, [1]),
        ("  ROOT %r = bf16[8,4] convert(%p)", []),
    ],
)
def test_a_fusion_writes_over_what_it_reads_element_by_element(
    body: str, numbers: list[int]
) -> None:
    line = "  ROOT %f = f32[8,4] fusion(%x, %y), kind=kLoop, calls=%body0"
    assert over(line, PARAMETERS + body) == numbers
    assert over(line.replace("kLoop", "kInput"), PARAMETERS + body) == []


def test_what_several_results_need_is_not_written_over() -> None:
    both = "  ROOT %t = (f32[8,4], f32[8,4]) tuple(%a, %b)"
    shared = "  %a = f32[8,4] negate(%p)\n  %b = f32[8,4] add(%p, %q)\n"
    line = "  ROOT %f = (f32[8,4], f32[8,4]) fusion(%x, %y), kind=kLoop, calls=%body0"
    assert over(line, PARAMETERS + shared + both) == [1]
