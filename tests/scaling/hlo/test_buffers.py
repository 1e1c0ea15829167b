"""Which values of a module share memory."""

import pytest

from scaling.hlo.buffers import Assignment, assign
from scaling.hlo.parse import UnknownHlo
from tests.scaling.hlo.texts import module


def buffer_of(found: Assignment, name: str, path=(), where: str = "main") -> int:
    named = {(i.computation.name, i.name, at): number for (i, at), number in found.values.items()}
    return named[where, name, path]


X = "x = f32[8] parameter(0);"
LOOP = f"""{X} i = s32[] constant(0); t = (s32[], f32[8]) tuple(%i, %x)
    l = (s32[], f32[8]) while(%t), condition=%condition, body=%body
    r = f32[8] get-tuple-element(%l), index=1"""
CONDITION = "c = (s32[], f32[8]) parameter(0); go = pred[] constant(true)"
BODY = """p = (s32[], f32[8]) parameter(0)
    n = s32[] get-tuple-element(%p), index=0
    v = f32[8] get-tuple-element(%p), index=1
    w = f32[8] negate(%v)
    out = (s32[], f32[8]) tuple(%n, %w)"""
NEGATE = "a = f32[8] parameter(0); b = f32[8] negate(%a)"


def test_what_a_loop_carries_is_one_buffer_from_argument_to_result() -> None:
    found = assign(module(LOOP, body=BODY, condition=CONDITION))
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
    found = assign(module(f"{X} y = f32[64] custom-call(%x), {alias}; z = f32[2] bitcast(%y)"))
    assert [(buffer.name, buffer.bytes) for buffer in found.buffers] == [("x", 256)]


def test_a_call_passes_its_arguments_and_its_result() -> None:
    found = assign(module(f"{X} y = f32[8] call(%x), to_apply=%f", f=NEGATE))
    assert buffer_of(found, "x") == buffer_of(found, "a", where="f")
    assert buffer_of(found, "y") == buffer_of(found, "b", where="f") != buffer_of(found, "x")


def test_a_computation_that_is_called_twice_does_not_tear_the_first_call_apart() -> None:
    main = f"{X} y = f32[8] call(%x), to_apply=%f; z = f32[8] call(%y), to_apply=%f"
    found = assign(module(main, f=NEGATE))
    assert buffer_of(found, "y") == buffer_of(found, "z") == buffer_of(found, "b", where="f")


@pytest.mark.parametrize(
    "branches",
    ["branch_computations={%one, %two}", "true_computation=%one, false_computation=%two"],
)
def test_branches_take_their_arguments_and_share_one_result(branches: str) -> None:
    main = f"""k = s32[] parameter(0); x = f32[8] parameter(1); y = f32[8] negate(%x)
        r = f32[8] conditional(%k, %x, %y), {branches}"""
    found = assign(module(main, one=NEGATE, two=NEGATE.replace("negate", "sine")))
    assert buffer_of(found, "a", where="one") == buffer_of(found, "x")
    assert buffer_of(found, "a", where="two") == buffer_of(found, "y")
    results = {buffer_of(found, "b", where="one"), buffer_of(found, "b", where="two")}
    assert results == {buffer_of(found, "r")}


def test_a_donated_argument_and_its_result_are_one_buffer() -> None:
    main = f"""{X} y = f32[8] parameter(1); n = f32[8] negate(%x); m = f32[8] negate(%y)
        t = (f32[8], f32[8]) tuple(%n, %m)"""
    found = assign(module(main, header=", input_output_alias={ {1}: (0, {}, may-alias) }"))
    assert buffer_of(found, "m") == buffer_of(found, "x")
    assert buffer_of(found, "n") not in (buffer_of(found, "x"), buffer_of(found, "y"))
    assert sum(b.bytes for b in found.buffers if b.persistent) == 3 * 32


def test_a_single_result_may_take_the_place_of_a_donated_argument() -> None:
    header = ", input_output_alias={ {}: (0, {}, must-alias) }"
    found = assign(module(f"{X} n = f32[8] negate(%x)", header))
    assert buffer_of(found, "n") == buffer_of(found, "x")


def test_only_arguments_constants_and_results_last() -> None:
    main = f"""{X} y = f32[8] negate(%x); c = f32[4] constant({{1, 2, 3, 4}})
        h = f32[16]{{0:S(5)}} copy(%y); z = f32[8] reverse(%y)"""
    by_name = {buffer.name: buffer for buffer in assign(module(main)).buffers}
    assert {name for name, b in by_name.items() if b.persistent} == {"x", "constants", "z"}
    assert (by_name["c"].bytes, by_name["constants"].bytes) == (0, 16)
    assert {name for name, b in by_name.items() if b.category == "pinned_host"} == {"h"}
    assert (by_name["y"].bytes, by_name["h"].bytes) == (32, 64)


MADE = f"{X} m = f32[8] negate(%x);"


@pytest.mark.parametrize(
    "main, names",
    [
        (f"{MADE} n = f32[8] sine(%m); r = f32[8] reverse(%n)", ["m"]),
        (f"{MADE} b = f32[8] bitcast(%m); n = f32[8] sine(%b); r = f32[8] reverse(%n)", []),
        (f"{MADE} n = f32[8] copy(%m); r = f32[8] reverse(%n)", []),
        (f"{X} n = f32[8] sine(%x); r = f32[8] reverse(%n)", []),
        (
            f"""{X} t = (f32[8]) custom-call(%x); e = f32[8] get-tuple-element(%t), index=0
            n = f32[8] sine(%e); r = f32[8] reverse(%n)""",
            [],
        ),
        (
            f"""{MADE} n = f32[8] sine(%m); i = s32[] constant(0); u = f32[1] slice(%x)
            w = f32[8] dynamic-update-slice(%n, %u, %i); r = f32[8] reverse(%w)""",
            [],
        ),
        (
            f"""{MADE} i = s32[] constant(0); u = f32[1] slice(%x)
            w = f32[8] dynamic-update-slice(%m, %u, %i); n = f32[8] sine(%w)
            r = f32[8] reverse(%n)""",
            [],
        ),
    ],
    ids=["made", "renamed", "copy", "argument", "of a tuple", "updated later", "was updated"],
)
def test_in_the_heap_a_result_replaces_the_only_value_of_a_buffer(main, names) -> None:
    made = module(main)
    found = assign(made)
    replaced = found.replaced(made.entry.instructions["n"])
    assert [found.buffers[index].name for index in replaced] == names


def test_the_buffers_of_a_result_come_once_each() -> None:
    made = module(f"{X} t = (f32[8], f32[8]) tuple(%x, %x)")
    assert assign(made).of(made.entry.root) == (0,)


GATHER = "channel_id=1, replica_groups={{0,1}}, dimensions={0}"
REDUCE = "channel_id=1, replica_groups={{0,1}}, to_apply=%add"


@pytest.mark.parametrize(
    "start, written",
    [
        (f"(f32[8], f32[16]) all-gather-start(%x), {GATHER}", [64]),
        ("(f32[8], f32[8], u32[]) copy-start(%x)", [32, 4]),
        (f"f32[8] all-reduce-start(%x), {REDUCE}", [32]),
    ],
    ids=["all-gather", "copy", "in place"],
)
def test_an_asynchronous_start_does_not_write_the_operands_in_its_result(start, written) -> None:
    made = module(f"{X} s = {start}")
    found = assign(made)
    indices = found.written(made.entry.root)
    assert [found.buffers[index].bytes for index in indices] == written


@pytest.mark.parametrize(
    "main, said",
    [
        ("k = s32[] parameter(0); r = f32[8] conditional(%k)", "without branches: .*ROOT %r"),
        (f"{X} t = (f32[8]) tuple(%x); r = f32[8] get-tuple-element(%t), index=3", "ROOT %r"),
    ],
)
def test_an_operand_or_branch_that_is_not_there_is_an_error(main: str, said: str) -> None:
    with pytest.raises(UnknownHlo, match=said):
        assign(module(main))
