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
from scaling.hlo.parse import Instruction, Module, UnknownHlo, parse_module
from scaling.program.ir import Kernel

COMMUNICATING = ("all-", "reduce-scatter", "collective-")
EMITTERS = "xla_cpu_use_fusion_emitters"  # tests/conftest.py turns them off, users do not
AS_USERS = {EMITTERS: True} if EMITTERS in os.environ.get("XLA_FLAGS", "") else {}


def module(main: str, *others: str) -> Module:
    """Of computations given as their lines; the first one is the entry."""
    named = [f"%{text}" for text in others]
    text = "\n}\n\n".join([*named, f"ENTRY %main () -> f32[] {{\n{main}"])
    return parse_module(f"HloModule m, is_scheduled=true\n\n{text}\n}}\n")


def Work(kind, flops=0, vector_flops=0, transcendentals=0, bytes=0, dtype="", **more) -> Kernel:
    figures = {"flops": flops, "vector_flops": vector_flops, "transcendentals": transcendentals}
    return Kernel("", kind=kind, **figures, bytes=bytes, dtype=dtype, **more)


def root_work(main: str, *others: str) -> Kernel | None:
    """Work of the entry's ROOT."""
    found = module(main, *others)
    work = work_of(found.entry.root, found.entry, found)
    return work and replace(work, name="")


def fusion_bytes(operands: list[str], result: str, body: str, given: str = "") -> float:
    """Bytes of a fusion: shapes of its operands, its result, and the lines of its body."""
    shapes = [f"  %x{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    inside = [f"  %p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = given or ", ".join(f"%x{i}" for i in range(len(operands)))
    call = f"  ROOT %f = {result} fusion({names}), kind=kLoop, calls=%body"
    main = "\n".join([*shapes, call])
    found = root_work(main, "\n".join(["body () -> f32[] {", *inside, body]))
    assert found is not None
    return found.bytes


def executed(module: Module) -> Iterator[tuple[Instruction, Kernel, int]]:
    """Every kernel of a module with its runs per step."""
    return _executed(module, module.entry.name, 1)


def _executed(module: Module, name: str, times: int) -> Iterator[tuple[Instruction, Kernel, int]]:
    computation = module.computations[name]
    for i in computation:
        if i.opcode == "while":
            trips = int(i.backend_config["known_trip_count"]["n"])
            yield from _executed(module, i.called("body")[0], times * trips)
        elif not i.opcode.startswith(COMMUNICATING):
            if work := work_of(i, computation, module):
                yield i, work, times


def test_an_elementwise_kernel_reads_and_writes_all() -> None:
    main = "  %x = f32[8,16] parameter(0)\n  ROOT %y = f32[8,16] add(%x, %x)"
    assert root_work(main) == Work("fusion", 0, 128, 0, 2 * 512, "fp32")


@pytest.mark.parametrize(
    "opcode", ["bitcast", "tuple", "all-reduce-done", "copy-done", "after-all"]
)
def test_what_runs_no_kernel_costs_nothing(opcode: str) -> None:
    main = f"  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] {opcode}(%x)"
    assert root_work(main) is None


@pytest.mark.parametrize("opcode", ["all-reduce", "all-gather-start", "while", "frobnicate"])
def test_an_operation_without_a_price_is_an_error(opcode: str) -> None:
    main = f"  %x = f32[8] parameter(0)\n  ROOT %y = (f32[8], f32[8]) {opcode}(%x)"
    with pytest.raises(UnknownHlo, match=r"no cost is known for .*ROOT %y"):
        root_work(main)


def test_an_unknown_custom_call_moves_its_bytes() -> None:
    main = '  %x = bf16[8] parameter(0)\n  ROOT %y = f32[8] custom-call(%x), custom_call_target="a"'
    assert root_work(main) == Work("custom", bytes=16 + 32, dtype="fp32")


def test_a_fusion_sums_its_arithmetic_and_names_its_largest_product() -> None:
    body = """body () -> f32[] {
  %p = bf16[64,32]{1,0} parameter(0)
  %q = bf16[32,16]{1,0} parameter(1)
  %small = f32[64,64] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %exp = f32[64,64] exponential(%small)
  %large = f32[64,16] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %double = f32[64,16] add(%large, %large)
  ROOT %both = (f32[64,64], f32[64,16]) tuple(%exp, %double)"""
    main = """  %x = bf16[64,32]{1,0} parameter(0)
  %y = bf16[32,16]{1,0} parameter(1)
  ROOT %f = (f32[64,64], f32[64,16]) fusion(%x, %y), kind=kCustom, calls=%body"""
    flops, moved = 2 * 64 * 32 * (64 + 16), 2 * (64 * 32 + 32 * 16) + 4 * (64 * 64 + 64 * 16)
    dims = (1, 64, 64, 32)
    assert root_work(main, body) == Work("matmul", flops, 1024, 4096, moved, "bf16", dims=dims)


@pytest.mark.parametrize(
    "config, dtype",
    [('{"fusion_backend_config":{"kind":"__triton"}}', "tf32"), ('{"fusion_config":{}}', "fp32")],
)
def test_float32_is_rounded_on_nvidias_chips_only(config: str, dtype: str) -> None:
    body = """body () -> f32[] {
  %p = f32[64,32]{1,0} parameter(0)
  ROOT %dot = f32[64,64] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}"""
    main = "  %x = f32[64,32]{1,0} parameter(0)\n  ROOT %f = f32[64,64] fusion(%x), calls=%body"
    found = root_work(f"{main}, backend_config={config}", body)
    assert found is not None and (found.kind, found.dtype) == ("matmul", dtype)


@given(length=st.integers(1, 100), taken=st.integers(1, 100))
def test_only_the_slice_of_an_operand_is_read(length: int, taken: int) -> None:
    taken = min(length, taken)
    body = f"""  %same = f32[{length},8] bitcast(%p0)
  %slice = f32[{taken},8] dynamic-slice(%same, %p1), dynamic_slice_sizes={{{taken},8}}
  ROOT %r = f32[{taken},8] negate(%slice)"""
    found = fusion_bytes([f"f32[{length},8]", "s32[]"], f"f32[{taken},8]", body)
    assert found == pytest.approx(2 * taken * 32 + 4)


def test_gathered_rows_are_read_not_the_table() -> None:
    body = "  ROOT %rows = f32[5,8] gather(%p0, %p1), slice_sizes={1,8}"
    assert fusion_bytes(["f32[1000,8]", "s32[5,1]"], "f32[5,8]", body) == 2 * 160 + 20


def test_two_slices_add_up_to_no_more_than_the_operand() -> None:
    body = """  %a = f32[6] slice(%p0), slice={[0:6]}
  %b = f32[6] slice(%p0), slice={[4:10]}
  ROOT %r = f32[6] add(%a, %b)"""
    assert fusion_bytes(["f32[10]"], "f32[6]", body) == 40 + 24


def test_an_operand_given_twice_is_read_once() -> None:
    body = "  ROOT %r = f32[10] add(%p0, %p1)"
    assert fusion_bytes(["f32[10]"] * 2, "f32[10]", body) == 3 * 40
    assert fusion_bytes(["f32[10]"] * 2, "f32[10]", body, given="%x0, %x0") == 2 * 40


def test_a_broadcast_operand_is_read_once() -> None:
    body = "  ROOT %r = f32[99,10] broadcast(%p0), dimensions={1}"
    assert fusion_bytes(["f32[10]"], "f32[99,10]", body) == 40 + 99 * 40


SLICED = "  ROOT %s = f32[10] slice(%e), slice={[0:10]}"
PRODUCT_SLICED = """  %n = f32[100] negate(%e)
  %m = f32[100] multiply(%e, %n)
  ROOT %s = f32[10] slice(%m), slice={[0:10]}"""
HALVES = """  %n = f32[100] negate(%e)
  %a = f32[100] abs(%e)
  %s = f32[50] slice(%n), slice={[0:50]}
  %t = f32[50] slice(%a), slice={[50:100]}
  ROOT %r = f32[50] add(%s, %t)"""
REPEATED = "  ROOT %b = f32[99,100] broadcast(%e), dimensions={1}"


@pytest.mark.parametrize(
    ("rest", "shape", "vector", "transcendentals", "moved"),
    [
        pytest.param(SLICED, "f32[10]", 0, 10, 80, id="what nobody needs is not computed"),
        pytest.param(PRODUCT_SLICED, "f32[10]", 20, 10, 80, id="a value with two users is once"),
        pytest.param(REPEATED, "f32[99,100]", 0, 100, 40_000, id="a repeated row is once"),
        pytest.param(HALVES, "f32[50]", 150, 100, 600, id="halves with different users add up"),
    ],
)
def test_a_fusion_computes_what_its_result_needs(rest, shape, vector, transcendentals, moved):
    body = "body () -> f32[] {\n  %p = f32[100] parameter(0)\n  %e = f32[100] exponential(%p)\n"
    main = f"  %x = f32[100] parameter(0)\n  ROOT %f = {shape} fusion(%x), kind=kLoop, calls=%body"
    assert root_work(main, body + rest) == Work("fusion", 0, vector, transcendentals, moved, "fp32")


def test_memory_that_is_set_reads_nothing() -> None:
    body = "  %c = f32[] constant(0)\n  ROOT %r = f32[50] broadcast(%c), dimensions={}"
    assert fusion_bytes([], "f32[50]", body) == 200


UPDATE = "dynamic-update-slice(%same, %p1, %p2)"


@pytest.mark.parametrize("last", ["bitcast(%u)", "tuple(%u)"])
def test_an_update_in_place_costs_the_slice(last: str) -> None:
    body = f"  %same = f32[100,8] bitcast(%p0)\n  %u = f32[100,8] {UPDATE}\n"
    shape = "(f32[100,8])" if last.startswith("tuple") else "f32[100,8]"
    operands = ["f32[100,8]", "f32[1,8]", "s32[]"]
    assert fusion_bytes(operands, shape, f"{body}  ROOT %r = {shape} {last}") == 2 * 32 + 4


@pytest.mark.parametrize("last", ["convert(%u)", "copy(%u)", "reshape(%u)"])
def test_an_update_that_is_made_anew_costs_all_of_it(last: str) -> None:
    body = f"  %same = f32[100,8] bitcast(%p0)\n  %u = f32[100,8] {UPDATE}\n"
    operands = ["f32[100,8]", "f32[1,8]", "s32[]"]
    found = fusion_bytes(operands, "f32[100,8]", f"{body}  ROOT %r = f32[100,8] {last}")
    assert found == pytest.approx((99 + 1 + 100) * 32 + 4)


def test_an_update_in_another_format_reads_and_writes_all_of_it() -> None:
    body = f"  %same = f32[100,8] convert(%p0)\n  %u = f32[100,8] {UPDATE}\n"
    operands = ["bf16[100,8]", "f32[1,8]", "s32[]"]
    found = fusion_bytes(operands, "bf16[100,8]", f"{body}  ROOT %r = bf16[100,8] convert(%u)")
    assert found == pytest.approx(99 * 16 + 32 + 100 * 16 + 4)


def test_an_update_of_something_computed_writes_all_of_it() -> None:
    body = f"  %same = f32[100,8] negate(%p0)\n  ROOT %u = f32[100,8] {UPDATE}"
    found = fusion_bytes(["f32[100,8]", "f32[1,8]", "s32[]"], "f32[100,8]", body)
    assert found == pytest.approx((99 + 1 + 100) * 32 + 4)


def test_each_result_of_several_is_written() -> None:
    body = """  %n = f32[100,8] negate(%p0)
  %u = f32[100,8] dynamic-update-slice(%p1, %p2, %p3)
  ROOT %r = (f32[100,8], f32[100,8]) tuple(%n, %u)"""
    operands = ["f32[100,8]", "f32[100,8]", "f32[1,8]", "s32[]"]
    assert fusion_bytes(operands, "(f32[100,8], f32[100,8])", body) == 2 * 3200 + 2 * 32 + 4


def test_scatter_touches_the_rows_that_it_adds_to() -> None:
    add = "add () -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %s = f32[] add(%a, %a)"
    body = """body () -> f32[] {
  %p = f32[1000,8] parameter(0)
  %i = s32[3,1] parameter(1)
  %u = f32[3,8] parameter(2)
  ROOT %r = f32[1000,8] scatter(%p, %i, %u), to_apply=%add"""
    shapes = "  %x = f32[1000,8] parameter(0)\n  %y = s32[3,1] parameter(1)\n"
    shapes += "  %z = f32[3,8] parameter(2)\n"
    fused = shapes + "  ROOT %f = f32[1000,8] fusion(%x, %y, %z), kind=kInput, calls=%body"
    alone = shapes + "  ROOT %f = f32[1000,8] scatter(%x, %y, %z), to_apply=%add"
    expected = pytest.approx(3 * 96 + 12)  # old rows read, updates read, new rows written; indices
    for main in (fused, alone):
        found = root_work(main, add, body)
        assert found is not None and (found.bytes, found.vector_flops) == (expected, 24)


def test_a_fusion_in_a_fusion_reads_what_it_needs() -> None:
    inner = "inner () -> f32[] {\n  %q = f32[100] parameter(0)\n  %e = f32[100] exponential(%q)\n"
    inner += "  ROOT %s = f32[10] slice(%e), slice={[0:10]}"
    outer = "outer () -> f32[] {\n  %p = f32[100] parameter(0)\n"
    outer += "  ROOT %f = f32[10] fusion(%p), kind=kLoop, calls=%inner"
    main = "  %x = f32[100] parameter(0)\n  ROOT %f = f32[10] fusion(%x), kind=kLoop, calls=%outer"
    assert root_work(main, inner, outer) == Work("fusion", 0, 0, 10, 80, "fp32")


def test_addresses_do_not_make_a_copy_a_computation() -> None:
    body = """body () -> f32[] {
  %p = f32[64,32] parameter(0)
  %i = s32[] parameter(1)
  %n = s32[] negate(%i)
  ROOT %s = f32[1,32] dynamic-slice(%p, %n, %i), dynamic_slice_sizes={1,32}"""
    main = "  %x = f32[64,32] parameter(0)\n  %i = s32[] parameter(1)\n"
    main += "  ROOT %f = f32[1,32] fusion(%x, %i), kind=kLoop, calls=%body"
    assert root_work(main, body) == Work("copy", 0, 0, 0, 2 * 128 + 4, "fp32")


@pytest.mark.parametrize(
    "call",
    [
        "f32[64] call(%x), to_apply=%part",
        "((f32[64]), f32[64], u32[]) async-start(%x), calls=%part",
    ],
)
def test_a_call_does_what_it_calls(call: str) -> None:
    part = """part () -> f32[] {
  %p = f32[64] parameter(0)
  %e = f32[64] exponential(%p)
  %c = f32[64] copy(%e)
  ROOT %r = f32[64] multiply(%c, %c)"""
    found = root_work(f"  %x = f32[64] parameter(0)\n  ROOT %y = {call}", part)
    assert found is not None
    assert (found.vector_flops, found.transcendentals, found.bytes) == (64, 64, 3 * 512)


def test_a_copy_to_the_host_touches_the_device_once() -> None:
    main = "  %x = f32[64]{0} parameter(0)\n  ROOT %y = (f32[64]{0:S(5)}, f32[64]{0}, u32[]) "
    found = root_work(main + "copy-start(%x)")
    assert found == Work("copy", bytes=256, dtype="fp32", host_bytes=256)


def test_a_slice_of_what_lies_on_the_host_is_all_that_leaves_it() -> None:
    body = """body () -> f32[] {
  %p = f32[64,32]{1,0:S(5)} parameter(0)
  %i = s32[] parameter(1)
  ROOT %s = f32[1,32]{1,0} dynamic-slice(%p, %i, %i), dynamic_slice_sizes={1,32}"""
    main = "  %x = f32[64,32]{1,0:S(5)} parameter(0)\n  %i = s32[] parameter(1)\n"
    fused = root_work(
        main + "  ROOT %f = f32[1,32]{1,0} fusion(%x, %i), kind=kLoop, calls=%body", body
    )
    assert fused is not None and (fused.host_bytes, fused.bytes) == (128, 128 + 4)
    part = body.replace("body", "part", 1)
    whole = root_work(main + "  ROOT %c = f32[1,32]{1,0} call(%x, %i), to_apply=%part", part)
    assert whole is not None and whole.host_bytes == 128


def test_an_asynchronous_fusion_is_a_fusion() -> None:
    body = "body () -> f32[] {\n  %p = f32[8] parameter(0)\n  ROOT %n = f32[8] negate(%p)"
    main = "  %x = f32[8] parameter(0)\n  ROOT %y = ((f32[8]), f32[8], u32[]) "
    found = root_work(main + "fusion-start(%x), kind=kLoop, calls=%body", body)
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
