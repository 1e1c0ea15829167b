"""What the caller says about loops and kernels, and where an instruction stands in the code."""

import numpy as np
import pytest

from scaling.hlo.parse import parse_module
from scaling.hlo.reader import read_program
from scaling.hlo.source_lines import short, source_line
from scaling.hlo.user_hints import Work
from scaling.meshes.errors import InputError
from scaling.program.ir import Branch, Kernel, Loop
from tests.scaling.hlo.texts import text

MESH = {"data": 2}
TABLES = """, num_partitions=2

FileNames
1 "/opt/train/step.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=40 end_line=40 column=4 end_column=4}
2 {file_name_id=1 function_name_id=1 line=6 end_line=6 column=4 end_column=4}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
"""
WHILE = (
    "x = f32[8,4] parameter(0); t = (f32[8,4]) tuple(%x); "
    "l = (f32[8,4]) while(%t), condition=%go, body=%body, metadata={op_name="
)
NAME = '"jit(f)/decode/while" stack_frame_id=2}'
BLOCKS = {
    "go": "c = (f32[8,4]) parameter(0); g = pred[] constant(true)",
    "body": """p = (f32[8,4]) parameter(0); v = f32[8,4] get-tuple-element(%p), index=0
        w = f32[8,4] negate(%v); out = (f32[8,4]) tuple(%w)""",
}
CALL = (
    'x = f32[8,4] parameter(0); r = f32[8,4] custom-call(%x), custom_call_target="{0}", '
    'backend_config={{grid_x = 32 : i32, name = "mha_forward", num_warps = 4 : i32}}'
)
TRITON = "__gpu$xla.gpu.triton"


def loop(trips: dict | None = None, name: str = NAME) -> Loop:
    program = read_program(text(WHILE + name, TABLES, **BLOCKS), MESH, "m", trips=trips)
    (found,) = program.schedule
    assert isinstance(found, Loop)
    return found


def kernel(target: str = TRITON, kernels: dict | None = None) -> Kernel:
    program = read_program(text(CALL.format(target)), MESH, "m", kernels=kernels)
    (found,) = program.schedule
    assert isinstance(found, Kernel)
    return found


def test_a_loop_that_nobody_knows_the_length_of_says_where_it_stands() -> None:
    assert (loop().trips, loop().unknown) == (1, "step.py:6")
    older = '"jit(f)/while" source_file="/opt/old.py" source_line=12}'
    assert loop(name=older).unknown == "old.py:12"
    assert loop(name='"jit(f)/while"}').unknown == "l"


@pytest.mark.parametrize(
    "key", ["l", "step.py:6", "train/step.py:6", "/opt/train/step.py:6", "decode/while"]
)
def test_the_caller_says_how_often_a_loop_runs_by_its_name_line_or_scope(key: str) -> None:
    found = loop({key: 512})
    assert (found.trips, found.unknown) == (512, "")
    assert loop({"decode": 7, key: 2.5}).trips == 2.5  # the longer name, a mean over calls
    assert loop({key: 0}).trips == 0


@pytest.mark.parametrize("key", ["tep.py:6", "step.py:60", "step.py:40", "encode"])
def test_trips_of_a_loop_that_is_not_there_are_refused(key: str) -> None:
    with pytest.raises(InputError, match=r"trips: .* no loop .* there are: l .*step.py:6"):
        loop({key: 2})


def test_a_kernel_has_the_name_that_its_author_gave_it() -> None:
    found = kernel()
    assert (found.unknown, found.flops, found.bytes) == ("mha_forward", 0, 256)
    assert kernel("my_target").unknown == "my_target"


@pytest.mark.parametrize("key", ["mha_forward", TRITON, "r"])
def test_the_caller_says_what_a_kernel_does(key: str) -> None:
    found = kernel(kernels={key: Work(flops=1e9, bytes=4e3, dtype="bf16")})
    assert (found.flops, found.bytes, found.dtype, found.unknown) == (1e9, 4e3, "bf16", "")
    vector = kernel(kernels={key: Work(flops=1e9, transcendentals=5)})
    assert (vector.flops, vector.vector_flops, vector.transcendentals) == (0, 1e9, 5)
    assert (vector.bytes, vector.unknown) == (256, "")


def test_a_kernel_that_may_communicate_is_refused_unless_the_caller_knows_better() -> None:
    with pytest.raises(InputError, match="can read and write the memory of other devices") as error:
        kernel("mosaic_gpu_v2")
    assert "please report" not in str(error.value)  # the remedy is a flag
    assert kernel("mosaic_gpu_v2", {"mosaic_gpu": "local"}).unknown == "mosaic_gpu_v2"
    assert kernel("mosaic_gpu_v2", {"mosaic_gpu": Work(flops=1.0)}).unknown == ""


@pytest.mark.parametrize(
    "given",
    [
        {"trips": {"l": -1}},
        {"trips": {"l": float("nan")}},
        {"trips": {"l": "many"}},
        {"trips": {"l": 1e17}},
        {"trips": {"": 2}},
        {"trips": {6: 2}},
        {"kernels": {"": "local"}},
        {"kernels": {6: "local"}},
        {"trips": {"l": True}},
        {"kernels": {"f": 3.0}},
        {"kernels": {"f": "remote"}},
        {"kernels": {"no_such_kernel": "local"}},
    ],
)
def test_what_is_no_number_and_no_work_is_refused(given: dict) -> None:
    with pytest.raises(InputError, match="--trips|--local"):
        read_program(text(CALL.format("f")), MESH, "m", **given)


@pytest.mark.parametrize(
    "wrong", [{"flops": -1}, {"bytes": float("inf")}, {"dtype": 8}, {"dtype": "bf17"}]
)
def test_work_is_made_of_numbers(wrong: dict) -> None:
    with pytest.raises(InputError, match="Work"):
        Work(**wrong)


def test_numbers_of_numpy_are_numbers() -> None:
    work = Work(flops=np.prod([2, 3, 4]), bytes=np.float32(8))
    assert work == Work(flops=24.0, bytes=8.0)
    assert all(type(value) is float for value in (work.flops, work.bytes))


def test_a_text_without_tables_has_no_places() -> None:
    module = parse_module(text("x = f32[] parameter(0)"))
    assert module.places == {} and source_line("stack_frame_id=3", module.places) == ""
    assert short("/opt/b.py:3") == "b.py:3"


EITHER = (
    "x = f32[8,4] parameter(0); k = pred[] constant(true); r = f32[8,4] conditional(%k, %x, %x), "
    "true_computation=%one, false_computation=%two, metadata={op_name="
)


@pytest.mark.parametrize("key", ["r", "step.py:6", "train/step.py:6", "decode/while"])
@pytest.mark.parametrize(
    ("said", "shares"),
    [(0.1, (0.9, 0.1)), ("every=4", (0.75, 0.25)), ([0.3, 0.7], (0.3, 0.7)), (1, (0.0, 1.0))],
)
def test_shares_of_branches_are_given_by_name_line_or_path(key, said, shares):
    inner = {
        n: f"{n}x = f32[8,4] parameter(0); {n}y = f32[8,4] negate(%{n}x)" for n in ("one", "two")
    }
    written = text(EITHER + NAME, TABLES, **inner)
    (found,) = read_program(written, MESH, "m", branches={key: said}).schedule
    assert isinstance(found, Branch)
    assert found.shares == pytest.approx(shares)
    assert [block[0].name for block in found.branches] == ["twoy", "oney"]  # false, then true


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([0.2, 0.3, 0.5], "'r' has 2 branches, and [0.2, 0.3, 0.5] says how often 3 run"),
        ([0.2, 0.3], "sums to 0.5, not to 1"),
        (1.5, "write a number from 0 to 1"),
        ("often", "write every=10 for one run in ten"),
        ("every=0", "write every=10 for one run in ten"),
    ],
)
def test_shares_that_cannot_be_are_refused(said, message):
    inner = {n: f"{n}x = f32[8,4] parameter(0)" for n in ("one", "two")}
    with pytest.raises(InputError) as refused:
        read_program(text(EITHER + NAME, TABLES, **inner), MESH, "m", branches={"r": said})
    assert message in str(refused.value)
