"""Work of instructions: by hand, and against XLA's own analysis."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.op_cost import work_of
from scaling.hlo.parse import Computation, Instruction, Module, UnknownHlo, parse_module
from scaling.program.ir import Kernel
from tests.scaling.hlo.texts import ADD, module

COMMUNICATING = ("all-", "reduce-scatter", "collective-")
EMITTERS = "xla_cpu_use_fusion_emitters"  # tests/conftest.py turns them off, users do not
AS_USERS = {EMITTERS: True} if EMITTERS in os.environ.get("XLA_FLAGS", "") else {}


def Work(kind, flops=0, vector_flops=0, transcendentals=0, bytes=0, dtype="", **more) -> Kernel:
    figures = {"flops": flops, "vector_flops": vector_flops, "transcendentals": transcendentals}
    return Kernel("", kind=kind, **figures, bytes=bytes, dtype=dtype, **more)


def root_work(main: str, **others: str) -> Kernel | None:
    """Work of the entry's ROOT."""
    found = module(main, **others)
    work = work_of(found.entry.root)
    return work and replace(work, name="")


def fusion(operands: list[str], result: str, body: str, names: str = "", **others) -> Kernel:
    """Work of a fusion: shapes of its operands %p0, ..., its result, and the rest of its body."""
    given = "; ".join(f"p{i} = {shape} parameter({i})" for i, shape in enumerate(operands))
    names = names or ", ".join(f"%p{i}" for i in range(len(operands)))
    call = f"f = {result} fusion({names}), kind=kLoop, calls=%body"
    return root_work(f"{given}; {call}", body=f"{given}; {body}", **others)


def executed(module: Module) -> Iterator[tuple[Instruction, Kernel, int]]:
    """Every kernel of a module with its runs per step."""
    return _executed(module.entry, 1)


def _executed(computation: Computation, times: int) -> Iterator[tuple[Instruction, Kernel, int]]:
    for i in computation:
        if i.opcode == "while":
            trips = int(i.backend_config["known_trip_count"]["n"])
            yield from _executed(i.called("body")[0], times * trips)
        elif not i.opcode.startswith(COMMUNICATING):
            if work := work_of(i):
                yield i, work, times


def test_an_elementwise_kernel_reads_and_writes_all() -> None:
    found = root_work("x = f32[8,16] parameter(0); y = f32[8,16] add(%x, %x)")
    assert found == Work("fusion", 0, 128, 0, 2 * 512, "fp32")


@pytest.mark.parametrize(
    "opcode", ["bitcast", "tuple", "all-reduce-done", "copy-done", "after-all"]
)
def test_what_runs_no_kernel_costs_nothing(opcode: str) -> None:
    assert root_work(f"x = f32[8] parameter(0); y = f32[8] {opcode}(%x)") is None


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather-start", "while", "frobnicate"])
def test_an_operation_without_a_price_is_an_error(opcode: str) -> None:
    with pytest.raises(UnknownHlo, match=r"no cost is known for .*ROOT %y"):
        root_work(f"x = f32[8] parameter(0); y = (f32[8], f32[8]) {opcode}(%x)")


def test_an_unknown_custom_call_moves_its_bytes() -> None:
    main = 'x = bf16[8] parameter(0); y = f32[8] custom-call(%x), custom_call_target="a"'
    assert root_work(main) == Work("custom", bytes=16 + 32, dtype="fp32")


def test_a_fusion_sums_its_arithmetic_and_names_its_largest_product() -> None:
    body = """small = f32[64,64] dot(%p0, %p0), lhs_contracting_dims={1}, rhs_contracting_dims={1}
        exp = f32[64,64] exponential(%small)
        large = f32[64,16] dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        double = f32[64,16] add(%large, %large)
        both = (f32[64,64], f32[64,16]) tuple(%exp, %double)"""
    found = fusion(["bf16[64,32]", "bf16[32,16]"], "(f32[64,64], f32[64,16])", body)
    flops, moved = 2 * 64 * 32 * (64 + 16), 2 * (64 * 32 + 32 * 16) + 4 * (64 * 64 + 64 * 16)
    assert found == Work("matmul", flops, 1024, 4096, moved, "bf16", dims=(1, 64, 64, 32))


@pytest.mark.parametrize(
    "config, dtype",
    [('{"fusion_backend_config":{"kind":"__triton"}}', "tf32"), ('{"fusion_config":{}}', "fp32")],
)
def test_float32_is_rounded_on_nvidias_chips_only(config: str, dtype: str) -> None:
    given = "x = f32[64,32] parameter(0);"
    dot = "d = f32[64,64] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    call = f"f = f32[64,64] fusion(%x), calls=%body, backend_config={config}"
    found = root_work(f"{given} {call}", body=f"{given} {dot}")
    assert found is not None and (found.kind, found.dtype) == ("matmul", dtype)


@given(length=st.integers(1, 100), taken=st.integers(1, 100))
def test_only_the_slice_of_an_operand_is_read(length: int, taken: int) -> None:
    taken = min(length, taken)
    body = f"""same = f32[{length},8] bitcast(%p0)
        slice = f32[{taken},8] dynamic-slice(%same, %p1), dynamic_slice_sizes={{{taken},8}}
        r = f32[{taken},8] negate(%slice)"""
    found = fusion([f"f32[{length},8]", "s32[]"], f"f32[{taken},8]", body)
    assert found.bytes == pytest.approx(2 * taken * 32 + 4)


TABLE, ROW = "f32[100,8]", "f32[1,8]"  # 32 bytes a row
UPDATED = [TABLE, ROW, "s32[]"]
UPDATE = "u = f32[100,8] dynamic-update-slice(%same, %p1, %p2)"
IN_PLACE = f"same = f32[100,8] bitcast(%p0); {UPDATE};"
ANEW = (99 + 1 + 100) * 32 + 4
SLICES = "a = f32[6] slice(%p0), slice={[0:6]}; b = f32[6] slice(%p0), slice={[4:10]};"
BYTES = {
    "gathered rows are read, not the table": (
        ["f32[1000,8]", "s32[5,1]"],
        "f32[5,8]",
        "r = f32[5,8] gather(%p0, %p1), slice_sizes={1,8}",
        2 * 160 + 20,
    ),
    "two slices add up to no more than the operand": (
        ["f32[10]"],
        "f32[6]",
        f"{SLICES} r = f32[6] add(%a, %b)",
        40 + 24,
    ),
    "a broadcast operand is read once": (
        ["f32[10]"],
        "f32[99,10]",
        "r = f32[99,10] broadcast(%p0), dimensions={1}",
        40 + 99 * 40,
    ),
    "memory that is set reads nothing": (
        [],
        "f32[50]",
        "c = f32[] constant(0); r = f32[50] broadcast(%c), dimensions={}",
        200,
    ),
    "an update in place costs the slice": (
        UPDATED,
        TABLE,
        f"{IN_PLACE} r = f32[100,8] bitcast(%u)",
        2 * 32 + 4,
    ),
    "so does one of several results": (
        UPDATED,
        f"({TABLE})",
        f"{IN_PLACE} r = (f32[100,8]) tuple(%u)",
        2 * 32 + 4,
    ),
    "converted": (UPDATED, TABLE, f"{IN_PLACE} r = f32[100,8] convert(%u)", ANEW),
    "copied": (UPDATED, TABLE, f"{IN_PLACE} r = f32[100,8] copy(%u)", ANEW),
    "computed before": (UPDATED, TABLE, f"same = f32[100,8] negate(%p0); {UPDATE}", ANEW),
    "in another format": (
        ["bf16[100,8]", ROW, "s32[]"],
        "bf16[100,8]",
        f"same = f32[100,8] convert(%p0); {UPDATE}; r = bf16[100,8] convert(%u)",
        99 * 16 + 32 + 100 * 16 + 4,
    ),
    "each result of several is written": (
        [TABLE, TABLE, ROW, "s32[]"],
        f"({TABLE}, {TABLE})",
        "n = f32[100,8] negate(%p0); u = f32[100,8] dynamic-update-slice(%p1, %p2, %p3);"
        " r = (f32[100,8], f32[100,8]) tuple(%n, %u)",
        2 * 3200 + 2 * 32 + 4,
    ),
}


@pytest.mark.parametrize("operands, result, body, moved", BYTES.values(), ids=BYTES)
def test_a_fusion_moves_what_it_touches(operands, result, body, moved) -> None:
    assert fusion(operands, result, body).bytes == pytest.approx(moved)


def test_an_operand_given_twice_is_read_once() -> None:
    add = ["f32[10]"] * 2, "f32[10]", "r = f32[10] add(%p0, %p1)"
    assert fusion(*add).bytes == 3 * 40
    assert fusion(*add, names="%p0, %p0").bytes == 2 * 40


PRODUCT = "n = f32[100] negate(%e); m = f32[100] multiply(%e, %n);"
HALVES = """n = f32[100] negate(%e); a = f32[100] abs(%e)
    s = f32[50] slice(%n), slice={[0:50]}; t = f32[50] slice(%a), slice={[50:100]}
    r = f32[50] add(%s, %t)"""
SLICE = "s = f32[10] slice({}), slice={{[0:10]}}"
REPEATED = "b = f32[99,100] broadcast(%e), dimensions={1}"


@pytest.mark.parametrize(
    ("rest", "shape", "vector", "transcendentals", "moved"),
    [
        pytest.param(SLICE.format("%e"), "f32[10]", 0, 10, 80, id="what nobody needs is not made"),
        pytest.param(
            f"{PRODUCT} {SLICE.format('%m')}", "f32[10]", 20, 10, 80, id="with two users once"
        ),
        pytest.param(REPEATED, "f32[99,100]", 0, 100, 40_000, id="a repeated row is once"),
        pytest.param(HALVES, "f32[50]", 150, 100, 600, id="halves with different users add up"),
    ],
)
def test_a_fusion_computes_what_its_result_needs(rest, shape, vector, transcendentals, moved):
    found = fusion(["f32[100]"], shape, f"e = f32[100] exponential(%p0); {rest}")
    assert found == Work("fusion", 0, vector, transcendentals, moved, "fp32")


def test_scatter_touches_the_rows_that_it_adds_to() -> None:
    shapes = ["f32[1000,8]", "s32[3,1]", "f32[3,8]"]
    scatter = "r = f32[1000,8] scatter(%p0, %p1, %p2), to_apply=%add"
    given = "; ".join(f"p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes))
    alone = root_work(f"{given}; {scatter}", add=ADD)
    for found in (alone, fusion(shapes, "f32[1000,8]", scatter, add=ADD)):
        # old rows read, updates read, new rows written; indices
        assert (found.bytes, found.vector_flops) == (pytest.approx(3 * 96 + 12), 24)


def test_a_fusion_in_a_fusion_reads_what_it_needs() -> None:
    inner = f"q = f32[100] parameter(0); e = f32[100] exponential(%q); {SLICE.format('%e')}"
    outer = "g = f32[10] fusion(%p0), kind=kLoop, calls=%inner"
    found = fusion(["f32[100]"], "f32[10]", outer, inner=inner)
    assert found == Work("fusion", 0, 0, 10, 80, "fp32")


def test_addresses_do_not_make_a_copy_a_computation() -> None:
    body = "n = s32[] negate(%p1); s = f32[1,32] dynamic-slice(%p0, %n, %p1)"
    found = fusion(["f32[64,32]", "s32[]"], "f32[1,32]", body)
    assert found == Work("copy", 0, 0, 0, 2 * 128 + 4, "fp32")


@pytest.mark.parametrize(
    "call",
    [
        "f32[64] call(%x), to_apply=%part",
        "((f32[64]), f32[64], u32[]) async-start(%x), calls=%part",
    ],
)
def test_a_call_does_what_it_calls(call: str) -> None:
    part = "p = f32[64] parameter(0); e = f32[64] exponential(%p); c = f32[64] copy(%e)"
    part += "; r = f32[64] multiply(%c, %c)"
    found = root_work(f"x = f32[64] parameter(0); y = {call}", part=part)
    assert found is not None
    assert (found.vector_flops, found.transcendentals, found.bytes) == (64, 64, 3 * 512)


def test_a_copy_to_the_host_touches_the_device_once() -> None:
    copy = "y = (f32[64]{0:S(5)}, f32[64]{0}, u32[]) copy-start(%x)"
    found = root_work(f"x = f32[64]{{0}} parameter(0); {copy}")
    assert found == Work("copy", bytes=256, dtype="fp32", host_bytes=256)


def test_making_room_on_the_host_moves_nothing() -> None:
    made = 'y = f32[64]{0:S(5)} custom-call(), custom_call_target="AllocateBuffer"'
    assert root_work(f"x = f32[64]{{0}} parameter(0); {made}") is None


def test_a_slice_of_what_lies_on_the_host_is_all_that_leaves_it() -> None:
    given = "x = f32[64,32]{1,0:S(5)} parameter(0); i = s32[] parameter(1);"
    part = f"{given} s = f32[1,32]{{1,0}} dynamic-slice(%x, %i, %i), dynamic_slice_sizes={{1,32}}"
    for call in ("fusion(%x, %i), kind=kLoop, calls=%part", "call(%x, %i), to_apply=%part"):
        found = root_work(f"{given} r = f32[1,32]{{1,0}} {call}", part=part)
        assert found is not None and (found.host_bytes, found.bytes) == (128, 128 + 4)


def test_an_asynchronous_fusion_is_a_fusion() -> None:
    call = "y = ((f32[8]), f32[8], u32[]) fusion-start(%x), kind=kLoop, calls=%body"
    body = "x = f32[8] parameter(0); n = f32[8] negate(%x)"
    found = root_work(f"x = f32[8] parameter(0); {call}", body=body)
    assert found == Work("fusion", 0, 8, 0, 64, "fp32")


FUNCTIONS = {
    "softmax": jax.nn.softmax,
    "gelu": jax.nn.gelu,
    "norm": lambda x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6),
    "product": lambda x: jnp.tanh(x @ x.T),
    "slice": lambda x: x[:7] * 2,
    "cumulative sum": lambda x: jnp.cumsum(x, -1),
    "power": lambda x: jnp.sin(x) + jnp.cos(x) ** 2.5,
    "update": lambda x: jax.lax.dynamic_update_slice(x, jnp.ones((2, 256)), (3, 0)),
    "transpose": lambda x: x.T + 0,
    "largest": lambda x: x.argmax(-1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_functions_cost_what_xla_says(name: str) -> None:
    """XLA's own analysis of the same program. It does not see into gathers that are fused."""
    compiled = jax.jit(FUNCTIONS[name]).lower(jax.ShapeDtypeStruct((512, 256), jnp.float32))
    compiled = compiled.compile()
    works = [work for _, work, _ in executed(parse_module(compiled.as_text()))]
    cost = defaultdict(float, compiled.cost_analysis())
    assert sum(w.flops + w.vector_flops for w in works) == cost["flops"]
    assert sum(w.transcendentals for w in works) == cost["transcendentals"]
    assert sum(w.bytes for w in works) == cost["bytes accessed"]
