"""Which values of a module share memory."""

import pytest

from scaling.hlo.buffers import Assignment, assign
from scaling.hlo.parse import Module, UnknownHlo, parse_module


def module(main: str, *others: str, header: str = "") -> Module:
    computations = "".join(f"%{text}\n}}\n\n" for text in others)
    return parse_module(
        f"HloModule m, is_scheduled=true{header}\n\n{computations}"
        f"ENTRY %main () -> f32[] {{\n{main}\n}}\n"
    )


def buffer_of(found: Assignment, name: str, path=(), where: str = "main") -> int:
    return found.values[where, name, path]


BODY = """body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %n = s32[] get-tuple-element(%p), index=0
  %v = f32[8] get-tuple-element(%p), index=1
  %w = f32[8] negate(%v)
  ROOT %out = (s32[], f32[8]) tuple(%n, %w)"""
CONDITION = """condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  ROOT %go = pred[] constant(true)"""
LOOP = """  %x = f32[8] parameter(0)
  %i = s32[] constant(0)
  %t = (s32[], f32[8]) tuple(%i, %x)
  %l = (s32[], f32[8]) while(%t), condition=%condition, body=%body
  ROOT %r = f32[8] get-tuple-element(%l), index=1"""


def test_what_a_loop_carries_is_one_buffer_from_argument_to_result() -> None:
    found = assign(module(LOOP, BODY, CONDITION))
    carried = {
        buffer_of(found, "x"),
        buffer_of(found, "l", (1,)),
        buffer_of(found, "v", where="body"),
        buffer_of(found, "w", where="body"),
        buffer_of(found, "c", (1,), where="condition"),
        buffer_of(found, "r"),
    }
    assert len(carried) == 1
    assert found.buffers[carried.pop()].persistent
    assert buffer_of(found, "i") not in carried


def test_a_buffer_is_as_large_as_the_largest_that_lives_in_it() -> None:
    alias = 'custom_call_target="grow", output_to_operand_aliasing={{}: (0, {})}'
    found = assign(
        module(
            f"  %x = f32[8] parameter(0)\n  %y = f32[64] custom-call(%x), {alias}\n"
            "  ROOT %z = f32[2] bitcast(%y)"
        )
    )
    assert [(buffer.name, buffer.bytes) for buffer in found.buffers] == [("x", 256)]


def test_a_call_passes_its_arguments_and_its_result() -> None:
    inner = "f (a: f32[8]) -> f32[8] {\n  %a = f32[8] parameter(0)\n  ROOT %b = f32[8] negate(%a)"
    main = "  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] call(%x), to_apply=%f"
    found = assign(module(main, inner))
    assert buffer_of(found, "x") == buffer_of(found, "a", where="f")
    assert buffer_of(found, "y") == buffer_of(found, "b", where="f") != buffer_of(found, "x")


def test_a_computation_that_is_called_twice_does_not_tear_the_first_call_apart() -> None:
    inner = "f (a: f32[8]) -> f32[8] {\n  %a = f32[8] parameter(0)\n  ROOT %b = f32[8] negate(%a)"
    main = """  %x = f32[8] parameter(0)
  %y = f32[8] call(%x), to_apply=%f
  ROOT %z = f32[8] call(%y), to_apply=%f"""
    found = assign(module(main, inner))
    assert buffer_of(found, "y") == buffer_of(found, "z") == buffer_of(found, "b", where="f")


@pytest.mark.parametrize(
    "branches",
    ["branch_computations={%one, %two}", "true_computation=%one, false_computation=%two"],
)
def test_branches_take_their_arguments_and_share_one_result(branches: str) -> None:
    one = "one (a: f32[8]) -> f32[8] {\n  %a = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%a)"
    two = "two (b: f32[8]) -> f32[8] {\n  %b = f32[8] parameter(0)\n  ROOT %e = f32[8] sine(%b)"
    main = f"""  %k = s32[] parameter(0)
  %x = f32[8] parameter(1)
  %y = f32[8] negate(%x)
  ROOT %r = f32[8] conditional(%k, %x, %y), {branches}"""
    found = assign(module(main, one, two))
    assert buffer_of(found, "a", where="one") == buffer_of(found, "x")
    assert buffer_of(found, "b", where="two") == buffer_of(found, "y")
    results = {buffer_of(found, "n", where="one"), buffer_of(found, "e", where="two")}
    assert results == {buffer_of(found, "r")}


def test_a_conditional_without_branches_is_an_error() -> None:
    main = "  %k = s32[] parameter(0)\n  ROOT %r = f32[8] conditional(%k)"
    with pytest.raises(UnknownHlo, match="without branches: .*ROOT %r"):
        assign(module(main))


def test_a_donated_argument_and_its_result_are_one_buffer() -> None:
    main = """  %x = f32[8] parameter(0)
  %y = f32[8] parameter(1)
  %n = f32[8] negate(%x)
  %m = f32[8] negate(%y)
  ROOT %t = (f32[8], f32[8]) tuple(%n, %m)"""
    found = assign(module(main, header=", input_output_alias={ {1}: (0, {}, may-alias) }"))
    assert buffer_of(found, "m") == buffer_of(found, "x")
    assert buffer_of(found, "n") not in (buffer_of(found, "x"), buffer_of(found, "y"))
    assert sum(b.bytes for b in found.buffers if b.persistent) == 3 * 32


def test_a_single_result_may_take_the_place_of_a_donated_argument() -> None:
    main = "  %x = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%x)"
    found = assign(module(main, header=", input_output_alias={ {}: (0, {}, must-alias) }"))
    assert buffer_of(found, "n") == buffer_of(found, "x")


def test_only_arguments_and_results_last() -> None:
    main = """  %x = f32[8] parameter(0)
  %y = f32[8] negate(%x)
  %c = f32[4] constant({1, 2, 3, 4})
  %h = f32[16]{0:S(5)} copy(%y)
  ROOT %z = f32[8] exponential(%y)"""
    found = assign(module(main))
    by_name = {buffer.name: buffer for buffer in found.buffers}
    assert {name for name, b in by_name.items() if b.persistent} == {"x", "z"}
    assert {name for name, b in by_name.items() if not b.bytes} == {"c"}
    assert {name for name, b in by_name.items() if b.category == "pinned_host"} == {"h"}
    assert (by_name["y"].bytes, by_name["h"].bytes) == (32, 64)


def test_the_buffers_of_a_result_come_once_each() -> None:
    main = "  %x = f32[8] parameter(0)\n  ROOT %t = (f32[8], f32[8]) tuple(%x, %x)"
    made = module(main)
    assert assign(made).of(made.entry, made.entry.root) == (0,)


def test_an_operand_without_the_part_that_is_taken_is_an_error() -> None:
    main = """  %x = f32[8] parameter(0)
  %t = (f32[8]) tuple(%x)
  ROOT %r = f32[8] get-tuple-element(%t), index=3"""
    with pytest.raises(UnknownHlo, match="ROOT %r"):
        assign(module(main))
