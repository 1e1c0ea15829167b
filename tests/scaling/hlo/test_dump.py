"""A dump of XLA: the program, and what the files beside it tell."""

from pathlib import Path

import pytest

from scaling.hlo.dump import COMPILED, Dump, dump_of, read_dump
from scaling.hlo.reader import read_program
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.program.ir import collectives, kernels
from scaling.simulate.memory import memory_use

HEAD = "HloModule jit_step, is_scheduled=true, num_partitions=8"
BODY = "ENTRY %main (x: f32[4]) -> f32[4] {\n  ROOT %x = f32[4]{0} parameter(0)\n}\n"
TEXT = f"{HEAD}\n\n{BODY}"
MESHES = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=4, "model"=2]>}}'
AXES = {"data": 4, "model": 2}
NAME = "module_0007.jit_step"
TURNED = (0, 4, 1, 5, 2, 6, 3, 7)
PROGRAM = f"{NAME}.sm_9.0a_gpu_{COMPILED}"


@pytest.fixture
def folder(tmp_path):
    """What jaxlib 0.10.2 writes for one step, in short."""
    (tmp_path / PROGRAM).write_text(TEXT)
    report = f"{PROGRAM[:-4]}-memory-usage-report.txt"
    (tmp_path / report).write_text(
        "Memory Space: default (color=0)\nTotal bytes: 184352 (180KiB)\n"
    )
    before = f"HloModule jit_step, num_partitions=8, {MESHES}\n\n{BODY}"
    (tmp_path / f"{NAME}.before_optimizations.txt").write_text(before)
    return tmp_path


def test_the_files_beside_a_program_tell_its_memory_and_its_mesh(folder):
    found = read_dump(folder / PROGRAM)
    assert found == Dump(TEXT, PROGRAM[:-4], 8, AXES, 184352)
    assert found.name == NAME


def test_the_configuration_beside_a_program_tells_which_device_is_which_partition(folder):
    """As jaxlib 0.10.2 writes it for Mesh(devices.reshape(2, 4).T, ...), in short."""
    told = (
        "static_device_assignment {\n  replica_count: 1\n  computation_count: 8\n"
        + "".join(f"  computation_devices {{\n    replica_device_ids: {i}\n  }}\n" for i in TURNED)
        + "}\nuse_shardy_partitioner: true\n"
    )
    config = folder / f"{NAME}.config.pbtxt"
    config.write_text(told)
    assert read_dump(folder / PROGRAM).order == TURNED
    config.write_text(told.replace("ids: 7", "ids: 131072"))  # ids of another process may be far
    assert read_dump(folder / PROGRAM).order == TURNED
    config.write_text(told.replace("ids: 7", "ids: 6"))
    assert read_dump(folder / PROGRAM).order == ()
    rows = "".join(f"replica_device_ids: {i}\n" for i in TURNED)  # of a mapped function
    config.write_text(f"computation_devices {{\n{rows}}}\n")
    assert read_dump(folder / PROGRAM).order == TURNED


def test_a_program_alone_has_neither(tmp_path):
    (tmp_path / "step.txt").write_text(TEXT)
    assert read_dump(tmp_path / "step.txt") == Dump(TEXT, "step", 8)
    assert dump_of(TEXT).name == "hlo"


def test_a_text_may_begin_with_a_mark_of_its_byte_order_and_end_its_lines_as_windows_does(tmp_path):
    (tmp_path / "step.txt").write_bytes(TEXT.replace("\n", "\r\n").encode("utf-8-sig"))
    assert read_dump(tmp_path / "step.txt").text == TEXT


def test_a_mesh_of_another_size_is_not_that_of_the_program(folder):
    (folder / PROGRAM).write_text(TEXT.replace("=8", "=4"))
    assert read_dump(folder / PROGRAM).axes is None


def test_of_a_folder_the_largest_program_is_the_step(folder):
    assert read_dump(folder).notes == ()
    for i in range(5):
        (folder / f"module_000{i}.jit_add.cpu_{COMPILED}").write_text(HEAD + "\n" + BODY[: -1 - i])
    found = read_dump(folder)
    assert found.name == NAME
    (note,) = found.notes
    assert note.startswith(f"{PROGRAM} (") and "largest of 6 modules" in note
    assert "module_0000.jit_add.cpu_after_optimizations.txt" in note and "and 2 more" in note


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("hello\n", r"does not begin with HloModule \('hello"),
        ("HloModule x, num_partitions=8\n", "not scheduled, .* before or in the middle of XLA's"),
        ("#loc1 = loc(x)\nmodule @jit_f {\n func.func public @main", "StableHLO, .* lowered only"),
        (TEXT + TEXT, "holds 2 modules"),
        (TEXT[:-4], r"cut off: its last line is 'ROOT %x = f32\[4\]\{0\} parameter\(0'"),
        (TEXT.replace("ENTRY ", ""), "cut off: the computation that begins with ENTRY is missing"),
        (TEXT.replace("=8", "=" + "9" * 40), "number of devices of 40 digits"),
        (TEXT.replace("=8", "=0"), "a program of no devices"),
    ],
)
def test_what_is_no_compiled_module_is_named(text, message):
    with pytest.raises(InputError, match=message):
        dump_of(text)


def test_the_right_file_beside_a_wrong_one_is_named(folder, tmp_path):
    with pytest.raises(InputError, match=f"it is beside it: {PROGRAM}$"):
        read_dump(folder / f"{NAME}.before_optimizations.txt")
    (folder / PROGRAM).rename(folder / "host_0")
    with pytest.raises(InputError, match="has no .*, only before_opt.*--xla_dump_to=DIR"):
        read_dump(folder)
    (folder / "below").mkdir()
    (folder / "host_0").rename(folder / "below" / PROGRAM)
    with pytest.raises(InputError, match=f"has no .*, {folder / 'below'} has: give that folder"):
        read_dump(folder)


# One step by several versions (dumps/make.py): two products forward, three backward, on
# data=4, model=2. Of jax 0.5 the mesh is not named.
VERSIONS = {"jax-0.5.3": None, "jax-0.10.2": AXES, "jax-0.12.0": AXES}
PRODUCTS = 5 * 2 * (512 // 4) * 64 * (128 // 2)
WEIGHTS = 4 * 2 * 64 * 128 // 2  # bytes of a device's gradients


@pytest.mark.parametrize("version", VERSIONS)
def test_dumps_of_jax_since_0_5_tell_the_same_step(version):
    found = read_dump(Path(__file__).parent / "dumps" / version)
    assert (found.axes, found.devices) == (VERSIONS[version], 8)
    program = read_program(found.text, AXES, found.name, found.peak)
    assert sum(kernel.flops * calls for kernel, calls in kernels(program)) == PRODUCTS
    sums = {"data": 0.0, "model": 0.0}
    for collective, calls in collectives(program):
        sums[collective.axes[0]] += collective.bytes * calls
    assert sums == {"data": WEIGHTS, "model": 4 * (512 // 4) * 64}
    assert memory_use(program).peak == pytest.approx(found.peak, rel=0.05)


@pytest.mark.parametrize(
    ("cluster", "target", "is_said"),
    [
        ("dgx-h100", "sm_9.0a_gpu", False),
        ("dgx-a100", "sm_9.0a_gpu", True),
        ("dgx-b200", "sm_10.0a_gpu", False),
        ("mi300x-8", "gfx942_gpu", False),
        ("mi300x-8", "sm_9.0_gpu", True),
        ("tpu-v5p", "tpu", False),
        ("dgx-h100", "cpu", True),
        ("dgx-a100", "gpu", False),
    ],
)
def test_a_program_for_another_kind_of_chip_is_named(cluster, target, is_said):
    chip = catalog.load(cluster).accelerator
    dump = Dump(TEXT, f"{NAME}.{target}_{COMPILED}"[:-4], 8)
    assert [chip.title in said for said in dump.other_target(chip)] == [True] * is_said
