"""Whose memory a result takes: passed on, updated in place, written over."""

import pytest

from scaling.hlo.aliasing import may_write_over, source_of
from tests.scaling.hlo.texts import module

GIVEN = """x = f32[8,4] parameter(0); y = f32[8,4] parameter(1)
    i = s32[] parameter(2); part = f32[1,4] parameter(3);"""


def sources(line: str, *paths: tuple[int, ...], body: str = "") -> list:
    found = module(f"{GIVEN} {line}", **({"body": body} if body else {}))
    return [source_of(found.entry.root, path) for path in paths]


def over(line: str, body: str = "") -> list[int]:
    found = module(f"{GIVEN} {line}", **({"body": body} if body else {}))
    pairs = may_write_over(found.entry.root)
    return sorted({number for number, _ in pairs})


# Passed on


@pytest.mark.parametrize("opcode", ["bitcast", "optimization-barrier", "opt-barrier"])
def test_another_name_is_the_same_memory(opcode: str) -> None:
    assert sources(f"r = f32[32] {opcode}(%x)", ()) == [(0, ())]


def test_tuples_name_their_parts() -> None:
    assert sources("t = (f32[8,4], s32[]) tuple(%y, %i)", (0,), (1,)) == [(0, ()), (1, ())]


def test_an_element_of_a_tuple_is_where_it_was() -> None:
    lines = "t = (s32[], (f32[8,4])) tuple(%i, %x); e = (f32[8,4]) get-tuple-element(%t), index=1"
    assert sources(lines, (0,)) == [(0, (1, 0))]


@pytest.mark.parametrize("opcode", ["add", "dot", "custom-call", "all-gather", "fusion"])
def test_what_is_computed_has_memory_of_its_own(opcode: str) -> None:
    body = "p = f32[8,4] parameter(0); n = f32[8,4] negate(%p)"
    line = f"r = f32[8,4] {opcode}(%x), calls=%body"
    assert sources(line, (), body=body) == [None]


# Asynchronous pairs: the shapes of jax 0.10 and of 0.12


@pytest.mark.parametrize(
    "start, own, passed, done",
    [
        ("(f32[8,4], f32[16,4]) all-gather-start(%x)", (1,), {(0,): (0, ())}, (1,)),
        ("((f32[8,4]), f32[4,4]) reduce-scatter-start(%x)", (1,), {(0, 0): (0, ())}, (1,)),
        ("(f32[8,4], f32[8,4], u32[]) copy-start(%x)", (0,), {(1,): (0, ())}, (0,)),
        ("((f32[8,4]), f32[4,8], s32[]) async-start(%x)", (1,), {(0, 0): (0, ())}, (1,)),
    ],
)
def test_a_start_has_its_results_and_passes_on_its_operands(
    start: str, own: tuple, passed: dict, done: tuple
) -> None:
    assert sources(f"s = {start}, calls=%none", own) == [None]
    assert sources(f"s = {start}, calls=%none", *passed) == list(passed.values())
    opcode = start.split()[-1].split("-start")[0]
    lines = f"s = {start}, calls=%none; d = f32[8,4] {opcode}-done(%s)"
    assert sources(lines, ()) == [(0, done)]


@pytest.mark.parametrize(
    "shape, path", [("f32[8,4]", ()), ("((f32[8,4]), f32[8,4])", (1,))], ids=["0.10", "0.12"]
)
def test_a_sum_over_devices_is_made_in_place(shape: str, path: tuple) -> None:
    start = f"s = {shape} all-reduce-start(%x)"
    assert sources(start, path) == [(0, ())]
    assert sources(f"{start}; d = f32[8,4] all-reduce-done(%s)", ()) == [(0, path)]


def test_of_several_operands_each_has_a_result() -> None:
    start = "s = (f32[8,4], f32[8,4]) all-reduce-start(%x, %y)"
    assert sources(start, (0,), (1,)) == [(0, ()), (1, ())]
    lines = f"{start}; d = (f32[8,4], f32[8,4]) all-reduce-done(%s)"
    assert sources(lines, (0,), (1,)) == [(0, (0,)), (0, (1,))]
    gather = "s = ((f32[8,4], f32[8,4]), (f32[16,4], f32[16,4])) all-gather-start(%x, %y)"
    assert sources(gather, (0, 1), (1, 1)) == [(1, ()), None]


def test_an_update_between_start_and_done_passes_all_on() -> None:
    shape = "((f32[8,4]), f32[4,8], s32[])"
    lines = f"s = {shape} async-start(%x), calls=%c; u = {shape} async-update(%s)"
    assert sources(f"{lines}; d = f32[4,8] async-done(%u)", ()) == [(0, (1,))]


# Updated in place


def test_a_slice_is_written_into_its_operand() -> None:
    assert sources("r = f32[8,4] dynamic-update-slice(%x, %part, %i, %i)", ()) == [(0, ())]


def test_a_scatter_adds_to_its_operands_in_place() -> None:
    assert sources("r = f32[8,4] scatter(%x, %i, %part)", ()) == [(0, ())]
    two = "r = (f32[8,4], f32[8,4]) scatter(%x, %y, %i, %part, %part)"
    assert sources(two, (0,), (1,)) == [(0, ()), (1, ())]


UPDATE = """q = f32[1,4] parameter(0); p = f32[8,4] parameter(1); k = s32[] parameter(2)
    b = f32[8,4] bitcast(%p)
    u = f32[8,4] dynamic-update-slice(%b, %q, %k, %k);"""
ONE = "f = f32[8,4] fusion(%part, %x, %i), kind=kLoop, calls=%body"
TWO = "f = (f32[8,4], f32[8,4]) fusion(%part, %x, %i), kind=kLoop, calls=%body"


@pytest.mark.parametrize(
    "body, found",
    [
        (UPDATE, (1, ())),
        (f"{UPDATE} r = f32[32] bitcast(%u)", (1, ())),
        (f"{UPDATE} r = f32[8,4] convert(%u)", None),
        (UPDATE.replace("bitcast(%p)", "negate(%p)"), None),
        (UPDATE.replace("bitcast(%p)", "copy(%p)"), None),
    ],
)
def test_a_fusion_that_ends_in_an_update_writes_into_its_parameter(body, found) -> None:
    assert sources(ONE, (), body=body) == [found]


@pytest.mark.parametrize(
    "opcode, operands, updated",
    [("fusion", "%part, %x, %i", 1), ("dynamic-update-slice", "%x, %part, %i, %i", 0)],
)
def test_an_asynchronous_update_is_in_place(opcode: str, operands: str, updated: int) -> None:
    names = {"%x": "f32[8,4]", "%part": "f32[1,4]", "%i": "s32[]"}
    shapes = ", ".join(names[name] for name in operands.split(", "))
    line = f"s = (({shapes}), f32[8,4], u32[]) {opcode}-start({operands}), calls=%body"
    found = sources(line, (1,), (0, updated), (2,), body=UPDATE[:-1])
    assert found == [(updated, ()), (updated, ()), None]


def test_a_fusion_scatters_into_several_parameters() -> None:
    body = """p = f32[8,4] parameter(0); q = f32[8,4] parameter(1); k = s32[] parameter(2)
        r = (f32[8,4], f32[8,4]) scatter(%q, %p, %k, %p, %p)"""
    line = "f = (f32[8,4], f32[8,4]) fusion(%x, %y, %i), kind=kInput, calls=%body"
    assert sources(line, (0,), (1,), body=body) == [(1, ()), (0, ())]


def test_of_several_results_each_has_its_own_rule() -> None:
    body = f"{UPDATE} n = f32[8,4] negate(%p); t = (f32[8,4], f32[8,4]) tuple(%n, %u)"
    assert sources(TWO, (0,), (1,), body=body) == [None, (1, ())]
    body = f"{UPDATE} s = (f32[8,4], f32[8,4]) sort(%u, %p), dimensions={{0}}"
    assert sources(TWO, (0,), (1,), body=body) == [None, None]  # results of one operation are new


@pytest.mark.parametrize("opcode", ["custom-call", "fusion"])
def test_a_stated_alias_is_believed(opcode: str) -> None:
    alias = "output_to_operand_aliasing={{1}: (0, {})}"
    line = f"r = (f32[8,4], f32[8,4]) {opcode}(%x, %y), {alias}, calls=%body"
    paths = ((0,), (1,)) if opcode == "custom-call" else ((1,),)
    found = sources(line, *paths, body="p = f32[8,4] parameter(0)")
    assert found == [None, (0, ())][-len(paths) :]


# Written over


@pytest.mark.parametrize(
    "line, numbers",
    [
        ("f32[8,4] add(%x, %y)", [0, 1]),
        ("f32[8,4] copy(%x)", []),
        ("pred[8,4] compare(%x, %y)", []),
        ("f32[8,4] select(%i, %x, %y)", [1, 2]),
        ("f32[4,8] transpose(%x)", []),
        ("f32[8,4] dot(%x, %y)", []),
        ("f32[8,4] sort(%x)", [0]),
        ("(f32[8,4], f32[8,4]) sort(%x, %y)", [0, 1]),
        ("f32[16,4] all-gather(%x)", []),
        ("f32[8,4] all-reduce(%x)", [0]),
        ("(f32[8,4], f32[8,4]) all-reduce(%x, %y)", [0, 1]),
    ],
)
def test_what_may_be_written_over(line: str, numbers: list[int]) -> None:
    assert over(f"r = {line}") == numbers


PARAMETERS = "p = f32[8,4] parameter(0); q = f32[8,4] parameter(1);"
LOOP = "f = f32[8,4] fusion(%x, %y), kind=kLoop, calls=%body"


@pytest.mark.parametrize(
    "body, numbers",
    [
        ("e = f32[8,4] exponential(%p); r = f32[8,4] add(%e, %q)", [0, 1]),
        ("t = f32[8,4] reverse(%p); r = f32[8,4] add(%t, %q)", [1]),
        ("t = f32[8,4] copy(%p); r = f32[8,4] add(%t, %q)", [1]),
        (
            "t = f32[8,4] reverse(%p); s = f32[8,4] add(%p, %t); r = f32[8,4] add(%s, %q)",
            [1],
        ),
        ("r = bf16[8,4] convert(%p)", []),
    ],
)
def test_a_fusion_writes_over_what_it_reads_element_by_element(
    body: str, numbers: list[int]
) -> None:
    assert over(LOOP, f"{PARAMETERS} {body}") == numbers
    assert over(LOOP.replace("kLoop", "kInput"), f"{PARAMETERS} {body}") == numbers


def test_what_several_results_need_is_written_over_if_all_are_element_by_element() -> None:
    shared = "a = f32[8,4] negate(%p); b = f32[8,4] add(%p, %q)"
    line = "f = (f32[8,4], f32[8,4]) fusion(%x, %y), kind=kLoop, calls=%body"
    both = "t = (f32[8,4], f32[8,4]) tuple(%a, %b)"
    assert over(line, f"{PARAMETERS} {shared}; {both}") == [0, 1]
    assert over(line, f"{PARAMETERS} {shared.replace('negate', 'reverse')}; {both}") == [1]


def test_a_fusion_sorts_in_place() -> None:
    line = "f = (f32[8,4], s32[8,4]) fusion(%x, %y), kind=kCustom, calls=%body"
    body = f"{PARAMETERS} n = s32[8,4] iota(); r = (f32[8,4], s32[8,4]) sort(%q, %n)"
    assert over(line, body) == [1]


def test_a_reduction_takes_what_it_likes_before_anything_is_written() -> None:
    """The first one of a fusion: the emitter of reductions does that before its other results."""
    body = f"""{PARAMETERS} z = f32[] constant(0); n = f32[8,4] add(%p, %q)
        r = f32[8] reduce(%n, %z), dimensions={{1}}, to_apply=%sum"""
    line = "f = (f32[8], f32[8,4]) fusion(%x, %y), kind=kInput, calls=%body"
    assert over(line, f"{body}; t = (f32[8], f32[8,4]) tuple(%r, %n)") == [0, 1]
    second = f"{body}; s = f32[8] reduce(%q, %z), dimensions={{1}}, to_apply=%sum"
    line = line.replace("(f32[8], ", "(f32[8], f32[8], ")
    assert over(line, f"{second}; t = (f32[8], f32[8], f32[8,4]) tuple(%r, %s, %n)") == [0]
    only = body.replace("add(%p, %q)", "add(%p, %p)")
    assert over("f = f32[8] fusion(%x, %y), kind=kInput, calls=%body", only) == []
