"""Programs as JSON: what is saved is what is read, and what is no program is said to be none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.program.ir import (
    CATEGORIES,
    COLLECTIVE_KINDS,
    Block,
    Branch,
    Buffer,
    Collective,
    Kernel,
    Loop,
    Origin,
    Program,
    Wait,
    placed_on,
)
from scaling.program.serialization import (
    FORMAT,
    load_program,
    program_dict,
    read_program_dict,
    save_program,
)

NAMES = st.text(max_size=5)
SINGLE = st.integers(0, 2**53) | st.floats(0, allow_infinity=False)
INDICES = st.lists(st.integers(0, 9), max_size=3).map(tuple)
ORIGINS = st.builds(Origin, st.sampled_from(["", "forward", "optimizer"]), NAMES)
COMMON = {"name": NAMES, "origin": ORIGINS, "reads": INDICES, "writes": INDICES, "over": INDICES}


def kernels(numbers: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        Kernel,
        **COMMON,
        kind=st.sampled_from(["matmul", "copy"]),
        flops=numbers,
        bytes=numbers,
        dtype=st.sampled_from(["", "bf16"]),
        dims=st.lists(numbers, max_size=5).map(tuple),
        asynchronous=st.booleans(),
        estimate=st.none() | st.floats(0, 1),
    )


COLLECTIVES = st.builds(
    Collective,
    **COMMON,
    kind=st.sampled_from(COLLECTIVE_KINDS),
    axes=st.lists(st.sampled_from(["data", "my axis"]), max_size=2).map(tuple),
    bytes=SINGLE,
    asynchronous=st.booleans(),
    groups=st.lists(INDICES, max_size=2).map(tuple),
    line=NAMES,
)


def nested(blocks: st.SearchStrategy[Block]) -> st.SearchStrategy[Block]:
    loops = st.builds(Loop, **COMMON, body=blocks, trips=st.integers(0, 99))
    branches = st.builds(Branch, **COMMON, branches=st.lists(blocks, max_size=2).map(tuple))
    return st.lists(loops | branches, max_size=2).map(tuple)


PLAIN = st.lists(kernels(SINGLE) | COLLECTIVES | st.builds(Wait, **COMMON), max_size=3).map(tuple)
PROGRAMS = st.builds(
    Program,
    name=NAMES,
    source=st.sampled_from(["compiled", "analytic"]),
    mesh=st.dictionaries(NAMES, st.integers(1, 8), max_size=3),
    schedule=st.recursive(PLAIN, nested, max_leaves=4),
    buffers=st.lists(
        st.builds(Buffer, NAMES, SINGLE, st.sampled_from(CATEGORIES), st.booleans()), max_size=3
    ).map(tuple),
    compiler_peak=st.none() | st.integers(0, 2**40),
    warnings=st.lists(NAMES, max_size=2).map(tuple),
    versions=st.dictionaries(NAMES, NAMES, max_size=2),
)
TURNED = (0, 4, 1, 5, 2, 6, 3, 7)
SOME = Program(
    "p",
    "compiled",
    {"fsdp": 8},
    (
        Kernel("k", Origin("forward", "mlp"), reads=(0,), flops=2.5, dims=(1, 2, 3, 4)),
        Loop("l", body=(Collective("g", axes=("fsdp",), groups=((0, 1),)), Wait("g")), trips=3),
        Branch("b", branches=((Kernel("x"),), ())),
    ),
    (Buffer("w", 16, "parameters", True),),
    123,
    ("careful",),
    {"jax": "1"},
)


def through_json(program: Program) -> Program:
    return read_program_dict(json.loads(json.dumps(program_dict(program))))


@given(PROGRAMS)
def test_what_is_written_is_what_is_read(program: Program) -> None:
    assert through_json(program) == program


def test_a_file_keeps_a_program(tmp_path: Path) -> None:
    save_program(SOME, tmp_path / "program.json")
    assert load_program(tmp_path / "program.json") == SOME
    assert through_json(placed_on(SOME, TURNED)).device_ids == TURNED
    assert through_json(replace(SOME, module="jit_step")).module == "jit_step"


@pytest.mark.parametrize("ids", [[0, 1], [0, 1, 2, 3, 4, 5, 6, 6], [-1, *range(7)], ["0"], 8])
def test_devices_that_are_not_those_of_the_partitions_are_refused(ids: object) -> None:
    with pytest.raises(InputError, match="device_ids"):
        read_program_dict({**program_dict(SOME), "device_ids": ids})


def test_only_what_differs_from_the_default_is_written() -> None:
    first, loop, _ = program_dict(SOME)["schedule"]
    assert first == {
        **{"step": "kernel", "name": "k", "origin": ["forward", "mlp"]},
        **{"reads": [0], "flops": 2.5, "dims": [1, 2, 3, 4]},
    }
    assert loop["body"][1] == {"step": "wait", "name": "g"}


ROWS = st.integers(1, 3).flatmap(lambda n: st.lists(st.floats(0, 1e9), min_size=n, max_size=n))


@given(kernels(ROWS.map(np.array)), ROWS.map(np.array))
def test_configurations_stay_side_by_side(kernel: Kernel, sizes: np.ndarray) -> None:
    program = Program("p", "analytic", {}, (kernel,), (Buffer("b", sizes, "gradients"),))
    read = through_json(program)
    assert program_dict(read) == program_dict(program)
    (found,) = read.schedule
    assert isinstance(found, Kernel) and isinstance(found.flops, np.ndarray)
    assert isinstance(read.buffers[0].bytes, np.ndarray)
    assert np.array_equal(found.flops, kernel.flops)
    assert np.array_equal(read.buffers[0].bytes, sizes)
    assert [list(d) for d in found.dims] == [list(d) for d in kernel.dims]


@pytest.mark.parametrize("found", [FORMAT + 1, 0, None, "1"])
def test_another_format_is_refused_with_its_number(found: object) -> None:
    data = {**program_dict(SOME), "format": found}
    with pytest.raises(InputError, match=rf"old.json .*format {found!r}, not {FORMAT}"):
        read_program_dict(data, "old.json")


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "is not JSON"),
        (b'{"format": 1', "is not JSON"),
        (b"\xff\xfe\x00", "is not a text file"),
        (b"[]", "is no program of this version .format 'list'"),
        (b'{"format": 3}', "is not a program: KeyError.'name'"),
    ],
)
def test_what_is_no_program_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=rf"p\.json {message}"):
        load_program(path)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just("x")
    | st.just([])
    | st.just({})
    | st.just([[]])
)


def places(value: object) -> list[tuple]:
    """The path of every value inside a JSON document."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(key, *rest) for key, inner in items for rest in [(), *places(inner)]]
    return []


@given(st.sampled_from(places(json.loads(json.dumps(program_dict(SOME))))), JUNK)
def test_a_damaged_document_is_a_program_or_bad_input(place: tuple, junk: object) -> None:
    data = json.loads(json.dumps(program_dict(SOME)))
    *way, last = place
    inner = data
    for key in way:
        inner = inner[key]
    inner[last] = junk
    try:
        assert isinstance(read_program_dict(data), Program)
    except InputError as error:
        assert "program" in str(error)
