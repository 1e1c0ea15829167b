"""Compiled programs that come with the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import scaling as sc
from scaling.api.runs import load_run
from scaling.meshes.errors import InputError
from scaling.program.stored import FOLDER, StoredProgram, key_of, stored_program, stored_programs
from scaling.simulate.resolve import target
from scaling.training.program import stored_key

ENTRIES = stored_programs()
REPRESENTATIVES = list({entry.group: entry for entry in ENTRIES}.values())


def key(entry: StoredProgram) -> str:
    run = load_run(entry.run, mesh=entry.mesh, set=entry.set)
    place = target(run, entry.cluster, entry.nodes)
    return stored_key(place.run, place.mesh, place.cluster)


def test_every_stored_program_is_that_of_its_arguments():
    """A recipe or default that changes makes other steps: python -m experiments.stored_programs."""
    assert [entry.key for entry in ENTRIES] == [key(entry) for entry in ENTRIES]


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=[e.key for e in ENTRIES])
def test_every_stored_program_can_be_read(entry):
    program = stored_program(entry.key)
    assert program is not None and program.source == "compiled"


def test_the_folder_holds_what_the_index_names_and_no_more():
    files = {file.name.partition(".")[0] for file in FOLDER.iterdir() if file.name.endswith(".gz")}
    assert files == {entry.key for entry in ENTRIES}


@pytest.mark.parametrize("entry", REPRESENTATIVES, ids=[e.group for e in REPRESENTATIVES])
def test_one_of_each_group_is_priced(entry):
    prediction = sc.predict(**entry.arguments)
    assert prediction.source == "compiled"
    assert 0 < prediction.mfu < 1
    assert sum(vars(prediction.time).values()) - prediction.time.hidden_communication == (
        pytest.approx(prediction.step_time)
    )


ABSENT = """
import importlib.metadata as metadata, sys, warnings
warnings.simplefilter("error")  # such as an overflow of 32-bit integers
names = "jax", "jaxlib", "flax", "optax", "orbax", "matplotlib", "scipy", "resource"
version = metadata.version
sys.modules.update(dict.fromkeys(names))

def version_of(name):
    if name in names:
        raise metadata.PackageNotFoundError(name)
    return version(name)

metadata.version = version_of
"""
PRICES = """
import scaling as sc
from scaling.program.stored import stored_programs
for entry in stored_programs()[:{number}]:
    p = sc.predict(**entry.arguments)
    print(entry.key, p.step_time, p.memory.peak, p.mfu, p.what_if("network x0.5").step_time)
"""


def prices(python: str, number: int) -> list[list[float]]:
    """Figures of the first programs, priced by an interpreter that has numpy alone."""
    found = subprocess.run(
        [python, "-c", ABSENT + PRICES.format(number=number)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert found.returncode == 0, found.stderr
    return [list(map(float, line.split()[1:])) for line in found.stdout.splitlines()]


def test_it_is_priced_without_jax():
    ((step, _, _, slower),) = prices(sys.executable, 1)
    assert 0 < step <= slower


@pytest.mark.slow
def test_integers_of_32_bits_do():
    """As in a browser. $PYTHON32 is a 32-bit Python with numpy, such as Debian's i386."""
    if "PYTHON32" not in os.environ:
        pytest.skip("set PYTHON32 to a 32-bit Python with numpy")
    number = len(ENTRIES)
    for small, large in zip(
        prices(os.environ["PYTHON32"], number), prices(sys.executable, number), strict=True
    ):
        assert small == pytest.approx(large, rel=1e-12)


def test_another_step_is_refused_with_what_is_there():
    with pytest.raises(
        InputError, match="source='compiled' makes one; there is `scaling predict .* --"
    ):
        sc.predict("gpt2-124m", cluster="dgx-h100", mesh="data=4", source="stored")


def test_a_key_depends_on_all_that_it_is_made_of():
    keys = {
        key_of(*what)
        for what in (
            ({"a": 1}, {"data": 2}, "x"),
            ({"a": 2}, {"data": 2}, "x"),
            ({"a": 1}, {"fsdp": 2}, "x"),
            ({"a": 1}, {"data": 2}, "y"),
        )
    }
    assert len(keys) == 4


@pytest.mark.slow
@pytest.mark.deviceless
@pytest.mark.parametrize("entry", ENTRIES[:2], ids=[e.key for e in ENTRIES[:2]])
def test_compiled_anew_it_is_the_same_step(entry):
    arguments = {**entry.arguments, "source": "compiled"}
    anew, kept = sc.predict(**arguments), sc.predict(**entry.arguments)
    assert anew.step_time == pytest.approx(kept.step_time, rel=0.01)
    assert anew.memory.peak == pytest.approx(kept.memory.peak, rel=0.01)
