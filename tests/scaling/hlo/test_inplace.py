"""Which results of a fusion are a parameter updated in place."""

import pytest

from scaling.hlo.fusions import results, update_in_place
from scaling.hlo.parse import Computation, parse_module

UPDATES = {
    "dynamic-update-slice": "dynamic-update-slice(%old, %part, %i, %i)",
    "scatter": "scatter(%old, %i, %part), to_apply=%add",
}


def fusion(before: str, update: str, after: str) -> Computation:
    text = f"""HloModule m, is_scheduled=true

ENTRY %body () -> f32[] {{
  %part = f32[1,4] parameter(0)
  %p = f32[8,4] parameter(1)
  %i = s32[] parameter(2)
  %old = f32[8,4] {before}
  %u = f32[8,4] {update}
  {after}
}}
"""
    return parse_module(text).entry


def in_place(body: Computation) -> list[tuple[str, int] | None]:
    """Per result the opcode of its update and the number of the parameter."""
    found = [update_in_place(result, body) for result in results(body)]
    return [u and (u.instruction.opcode, u.parameter.parameter_number) for u in found]


@pytest.mark.parametrize("opcode", UPDATES)
def test_bitcasts_around_an_update_leave_it_in_place(opcode: str) -> None:
    body = fusion("bitcast(%p)", UPDATES[opcode], "ROOT %r = f32[32] bitcast(%u)")
    assert in_place(body) == [(opcode, 1)]


@pytest.mark.parametrize("opcode", UPDATES)
@pytest.mark.parametrize("around", ["convert", "copy", "reshape", "negate"])
def test_anything_else_around_an_update_makes_the_array_anew(opcode: str, around: str) -> None:
    after = fusion("bitcast(%p)", UPDATES[opcode], f"ROOT %r = f32[8,4] {around}(%u)")
    before = fusion(f"{around}(%p)", UPDATES[opcode], "ROOT %r = f32[8,4] bitcast(%u)")
    assert in_place(after) == in_place(before) == [None]


def test_of_several_results_each_is_judged_alone() -> None:
    line = "%n = f32[8,4] negate(%u)\n  ROOT %t = (f32[8,4], f32[8,4]) tuple(%n, %u)"
    body = fusion("bitcast(%p)", UPDATES["dynamic-update-slice"], line)
    assert in_place(body) == [None, ("dynamic-update-slice", 1)]
