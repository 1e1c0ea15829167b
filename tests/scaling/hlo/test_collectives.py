"""What each communicating instruction moves, and that none is overlooked.

The golden texts are what XLA makes of `golden/collectives.py` in several versions of jax. To make
them anew, or for another version, run that file as its docstring says. Texts of single instructions
below are spelled as XLA prints them.
"""

import json
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.collectives import KINDS, communication_of
from scaling.hlo.parse import UnknownHlo, parse_module
from scaling.program.ir import COLLECTIVE_KINDS, Collective
from tests.scaling.hlo.texts import text

GOLDEN = Path(__file__).parent / "golden"
MESH = {"data": 2, "fsdp": 2, "tensor": 2}
TENSOR, FSDP, DATA = "{{0,1},{2,3},{4,5},{6,7}}", "{{0,2},{1,3},{4,6},{5,7}}", "[4,2]<=[2,4]T(1,0)"
ALL = "data fsdp tensor"
GLOBAL = "channel_id=1, use_global_device_ids=true"
# kind, axes, bytes for 2-byte elements: x is [64, 64] on each device, gathered to [128, 64]
ONE_OF_EACH = [
    ("all-gather", ("tensor",), 2 * 128 * 64),
    ("all-reduce", ("data", "fsdp"), 2 * 128 * 64),
    ("reduce-scatter", ("fsdp",), 2 * 128 * 64),
    ("all-to-all", ("data",), 2 * 64 * 64),
    ("permute", ("tensor",), 2 * 64 * 64),
]


GIVEN = "a = bf16[8,4] parameter(0); b = f32[4] parameter(1); c = bf16[16,4] parameter(2);"
P = "p = bf16[8,4] parameter(0);"


def found_in(module_text: str) -> list[Collective]:
    """Every communication of the entry computation."""
    module = parse_module(module_text)
    found = [communication_of(i, MESH) for i in module.entry]
    return [communication for communication in found if communication]


def communications(line: str, **computations: str) -> list[Collective]:
    """Of an entry with these lines; %a is bf16[8,4], %b f32[4], %c bf16[16,4]."""
    return found_in(text(f"{GIVEN} {line}; end = token[] after-all()", **computations))


def only(line: str, **computations: str) -> Collective:
    (found,) = communications(line, **computations)
    return found


def config(**collective) -> str:
    return "backend_config=" + json.dumps({"collective_backend_config": collective})


def test_every_kind_of_collective_of_a_program_has_an_opcode():
    assert set(KINDS.values()) == set(COLLECTIVE_KINDS)
    assert all(f"{opcode}-start" in KINDS for opcode in KINDS if not opcode.endswith("-start"))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.hlo")), ids=lambda file: file.stem)
def test_golden_texts_of_each_jax_hold_one_collective_of_each_kind(file):
    width, dtype = (2, "bf16") if "gpu" in file.stem else (4, "fp32")
    found = found_in(file.read_text())
    assert [(c.kind, c.axes, c.bytes) for c in found] == [
        (kind, axes, bytes_ * width // 2) for kind, axes, bytes_ in ONE_OF_EACH
    ]
    assert {c.dtype for c in found} == {dtype}
    assert [c.asynchronous for c in found] == [False] * 4 + ["gpu" in file.stem]


@pytest.mark.parametrize(
    "on_gpu", [pytest.param(True, marks=pytest.mark.deviceless), False], ids=["gpu", "host"]
)
def test_the_jax_that_is_installed_still_spells_collectives_in_a_way_that_is_read(on_gpu):
    text = runpy.run_path(str(GOLDEN / "collectives.py"))["optimised"](on_gpu)
    width = 2 if on_gpu else 4
    assert [(c.kind, c.axes, c.bytes) for c in found_in(text)] == [
        (kind, axes, bytes_ * width // 2) for kind, axes, bytes_ in ONE_OF_EACH
    ]


@pytest.mark.parametrize(
    ("line", "kind", "axes", "bytes_"),
    [
        # %a has 64 bytes, %b 16, %c 128
        ("bf16[16,4] all-gather(%a), replica_groups=" + TENSOR, "all-gather", "tensor", 128),
        (
            "((bf16[8,4], f32[4]), (bf16[16,4], f32[8])) all-gather-start(%a, %b), "
            "replica_groups=" + FSDP,
            "all-gather", "fsdp", 160,
        ),
        ("bf16[8,4] all-reduce(%a), replica_groups=" + DATA, "all-reduce", "data", 64),
        ("bf16[8,4] all-reduce-start(%a), replica_groups=" + DATA, "all-reduce", "data", 64),
        (
            "(bf16[8,4], f32[4]) all-reduce-start(%a, %b), replica_groups=" + DATA,
            "all-reduce", "data", 80,
        ),
        (
            "((bf16[8,4], f32[4]), (bf16[8,4], f32[4])) all-reduce-start(%a, %b), "
            "replica_groups=" + DATA,
            "all-reduce", "data", 80,
        ),
        (
            "(f32[4], bf16[8,4]) all-reduce(%b, %a), replica_groups=" + DATA,
            "all-reduce", "data", 80,
        ),
        ("bf16[4,4] reduce-scatter(%a), replica_groups=" + FSDP, "reduce-scatter", "fsdp", 64),
        (
            "((bf16[8,4]), bf16[4,4]) reduce-scatter-start(%a), replica_groups=" + TENSOR,
            "reduce-scatter", "tensor", 64,
        ),
        ("bf16[8,4] all-to-all(%a), replica_groups=" + TENSOR, "all-to-all", "tensor", 64),
        (
            "(bf16[8,4], bf16[8,4]) all-to-all(%a, %a), replica_groups=" + TENSOR,
            "all-to-all", "tensor", 128,
        ),
        (
            "((bf16[8,4]), bf16[8,4], u32[]) all-to-all-start(%a), dimensions={0}, "
            "replica_groups=" + TENSOR,
            "all-to-all", "tensor", 64,
        ),
        (
            "bf16[16,4] ragged-all-to-all(%a, %c, %b, %b, %b, /*index=5*/%b), "
            "replica_groups=" + TENSOR,
            "all-to-all", "tensor", 64,
        ),
        ("bf16[8,4] collective-broadcast(%a), replica_groups={}", "broadcast", ALL, 64),
        (
            "bf16[8,4] collective-permute(%a), "
            "source_target_pairs={{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}",
            "permute", "tensor", 64,
        ),
        (
            "(bf16[8,4], bf16[8,4], u32[], u32[]) collective-permute-start(%a), "
            "source_target_pairs={{0,4},{4,0},{1,5},{5,1},{2,6},{6,2},{3,7},{7,3}}",
            "permute", "data", 64,
        ),
    ],
)  # fmt: skip
def test_bytes_are_the_nccl_tests_size_in_every_spelling(line, kind, axes, bytes_):
    found = only(f"x = {line}, {GLOBAL}")
    assert (found.kind, found.axes, found.bytes) == (kind, tuple(axes.split()), bytes_)
    assert found.dtype == "bf16"


@given(
    st.sampled_from(["all-gather", "reduce-scatter"]),
    st.sampled_from([TENSOR, "{}", "{{0,1,2,3},{4,5,6,7}}"]),
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["bf16", "f32", "s8"])), min_size=1),
    st.booleans(),
)
def test_gathering_and_scattering_the_same_tensors_count_the_same(kind, groups, tensors, is_start):
    members = {TENSOR: 2, "{}": 8}.get(groups, 4)
    shards = [f"{dtype}[{rows}]{{0}}" for rows, dtype in tensors]
    wholes = [f"{dtype}[{rows * members}]{{0}}" for rows, dtype in tensors]
    sent, made = (shards, wholes) if kind == "all-gather" else (wholes, shards)
    operands = "; ".join(f"p{i} = {shape} copy(%a)" for i, shape in enumerate(sent))
    names = ", ".join(f"%p{i}" for i in range(len(sent)))
    shape = f"({', '.join(made)})" if len(made) > 1 else made[0]
    shape = f"(({', '.join(sent)}), {shape})" if is_start else shape
    opcode = f"{kind}-start" if is_start else kind
    found = only(f"{operands}; x = {shape} {opcode}({names}), replica_groups={groups}, {GLOBAL}")
    width = {"bf16": 2, "f32": 4, "s8": 1}
    assert found.bytes == sum(rows * members * width[dtype] for rows, dtype in tensors)


@pytest.mark.parametrize(
    ("opcode", "attributes", "is_async"),
    [
        ("all-reduce", "", False),
        ("all-reduce-start", "", True),
        ("all-reduce-start", config(is_sync=False), True),
        ("all-reduce-start", config(is_sync=True), False),
    ],
)
def test_a_start_that_the_compiler_made_synchronous_is_synchronous(opcode, attributes, is_async):
    line = f"x = bf16[8,4] {opcode}(%a), replica_groups={{}}, {attributes}"
    assert only(line).asynchronous is is_async


REDUCE = f"bf16[8,4] all-reduce(%p), replica_groups={TENSOR}"
CALLED = f"{P} r = {REDUCE}"
TWO = f"{P} q = {REDUCE}; r = {REDUCE}"
NONE = f"{P} r = bf16[8,4] negate(%p)"
PAIR = "((bf16[8,4]), bf16[8,4], s32[])"


@pytest.mark.parametrize(
    ("line", "is_async"),
    [
        (f"{PAIR} async-start(%a), calls=%inside", True),
        (f"{PAIR} async-start(%a), calls=%inside, {config(is_sync=True)}", False),
        (f"{PAIR} fusion-start(%a), kind=kCustom, calls=%inside", True),
        (f"{PAIR} call-start(%a), to_apply=%inside", True),
        ("bf16[8,4] fusion(%a), kind=kCustom, calls=%inside", False),
    ],
)
def test_one_operation_around_a_collective_is_that_collective(line, is_async):
    found = only(f"x = {line}", inside=CALLED)
    assert (found.kind, found.axes, found.bytes) == ("all-reduce", ("tensor",), 64)
    assert found.asynchronous is is_async
    assert (found.name, found.inside) == ("x", "r")
    assert not communications(f"x = {line}", inside=NONE)
    with pytest.raises(UnknownHlo, match="several"):
        communications(f"x = {line}", inside=TWO)


def test_calls_inside_an_asynchronous_one_are_followed():
    outer = f"{P} r = bf16[8,4] call(%p), to_apply=%inside"
    call = f"x = {PAIR} async-start(%a), calls=%outer"
    assert only(call, inside=CALLED, outer=outer).bytes == 64


def test_a_loop_of_collectives_inside_an_asynchronous_call_is_an_error():
    outer = f"{P} r = bf16[8,4] while(%p), condition=%test, body=%inside"
    call, test = f"x = {PAIR} async-start(%a), calls=%outer", f"{P} r = pred[] constant(true)"
    with pytest.raises(UnknownHlo, match="in a loop"):
        only(call, inside=CALLED, test=test, outer=outer)


@pytest.mark.parametrize(
    "line",
    [
        "bf16[8,4] negate(%a)",
        "bf16[8,4] all-reduce-done(%a), channel_id=1",
        "bf16[8,4] async-update(%a)",
        "bf16[8,4] async-done(%a)",
        "bf16[8,4] copy-start(%a)",
        "u32[] partition-id()",
        "bf16[8,4] broadcast(%b), dimensions={1}",
        "(bf16[8,4]{1,0:S(5)}, u32[], token[]) send(%a, %b), channel_id=2, is_host_transfer=true",
        "token[] send-done(%a), channel_id=2, is_host_transfer=true",
        "(bf16[8,4], u32[], token[]) recv(%b), channel_id=2, is_host_transfer=true",
        'bf16[8,4] custom-call(%a), custom_call_target="__cublas$lt$matmul"',
        'bf16[8,4] custom-call-start(%a), custom_call_target="__cudnn$fmhaSoftmax"',
        'bf16[8,4] negate(%a), metadata={op_name="f, channel_id=1"}',
        "bf16[8,4] while(%a), condition=%inside, body=%inside",  # for the caller to walk
        "bf16[8,4] call(%a), to_apply=%inside",
    ],
)
def test_what_moves_nothing_between_devices_is_no_communication(line):
    assert not communications(f"x = {line}", inside=CALLED)


@pytest.mark.parametrize(
    "line",
    [
        "bf16[8,4] all-broadcast(%a)",
        "bf16[8,4] all-reduce-scatter-start(%a)",
        "bf16[8,4] collective-sum(%a)",
        "bf16[8,4] async-collective(%a)",
        "(bf16[8,4], u32[], token[]) send(%a, %b), channel_id=1",
        "(bf16[8,4], u32[], token[]) recv(%b), channel_id=1",
        "bf16[8,4] swap(%a), replica_groups={{0,1}}",
        "bf16[8,4] swap(%a), source_target_pairs={{0,1}}",
        "bf16[8,4] swap(%a), channel_id=7",
        'bf16[8,4] custom-call(%a), custom_call_target="ncclAllReduce"',
        'bf16[8,4] custom-call(%a), custom_call_target="mosaic_gpu_v2"',
        'bf16[8,4] custom-call(%a), custom_call_target="my_all_gather_ffi"',
        'bf16[8,4] custom-call(%a), custom_call_target="nvshmem_put"',
        'bf16[8,4] custom-call-start(%a), custom_call_target="mpi_allreduce"',
    ],
)
def test_what_may_communicate_and_is_not_known_is_an_error_with_its_line(line):
    with pytest.raises(UnknownHlo) as error:
        communications(f"odd = {line}")
    assert "odd" in str(error.value) and line[:40] in str(error.value)


def test_an_unknown_communication_inside_a_fusion_is_an_error():
    unknown = f"{P} r = bf16[8,4] collective-sum(%p)"
    with pytest.raises(UnknownHlo, match="collective-sum"):
        communications("x = bf16[8,4] fusion(%a), calls=%inside", inside=unknown)


@pytest.mark.parametrize(
    "line",
    [
        "bf16[8,4] all-gather(%a), replica_groups=" + TENSOR,
        "(bf16[8,4], bf16[8,4]) all-gather-start(%a), replica_groups=" + TENSOR,
        "(bf16[4,4], bf16[16,4]) all-gather-start(%a), replica_groups=" + TENSOR,
        "bf16[3,4] reduce-scatter(%a), replica_groups=" + TENSOR,
        "(bf16[8,4], bf16[8,4]) all-reduce(%a), replica_groups=" + TENSOR,
        "f32[8,4] all-to-all(%a), replica_groups=" + TENSOR,
        "bf16[8,4] collective-permute(%a, %c, %b, %b), source_target_pairs={{0,1}}",
    ],
)
def test_operands_and_result_that_disagree_are_an_error_with_the_numbers(line):
    with pytest.raises(UnknownHlo, match=r"sends \d+ bytes and should make \d+"):
        communications(f"x = {line}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bf16[8,4] all-reduce(%a)", "no replica_groups"),
        ("bf16[8,4] all-reduce(%a), replica_groups={{0,9}}", "beyond the 8"),
        ("bf16[8,4] collective-permute(%a)", "no source_target_pairs"),
        ("() all-reduce(), replica_groups={}", "sends nothing"),
    ],
)
def test_a_collective_without_groups_or_operands_is_an_error(line, said):
    with pytest.raises(UnknownHlo, match=said):
        communications(f"x = {line}")
