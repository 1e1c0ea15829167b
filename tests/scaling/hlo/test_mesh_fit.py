"""A mesh that somebody says a dump has is refused if it is not that of its groups."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.hlo.mesh_fit import check_mesh
from scaling.hlo.reader import read_program
from scaling.meshes.errors import InputError
from scaling.meshes.shape import groups_along
from scaling.program.ir import Collective, Program
from tests.scaling.hlo.texts import ADD, text

DUMPS = Path(__file__).parent / "dumps"
X = "x = f32[8] parameter(0);"


def reduced(groups: str, name: str = "r") -> str:
    return (
        f"{name} = f32[8] all-reduce(%x), replica_groups={groups}, use_global_device_ids=true, "
        "channel_id=1, to_apply=%add"
    )


def program(mesh: dict[str, int], *groups: str) -> Program:
    calls = "; ".join(reduced(each, f"r{i}") for i, each in enumerate(groups))
    return read_program(text(f"{X} {calls}", add=ADD), mesh, "step")


@pytest.mark.parametrize("mesh", [{"data": 4, "model": 16}, {"fsdp": 64}])
def test_a_mesh_that_fits_no_group_is_refused_with_the_sizes_that_do(mesh):
    made = program(mesh, "[8,8]<=[64]", "[8,8]<=[8,8]T(1,0)", "[1,64]<=[64]")
    words = r"groups such as \[0, 1, 2, 3, 4, 5, 6, 7\] \(8 of 8\), as axes of sizes 8 x 8 have"
    with pytest.raises(InputError, match=words):
        check_mesh(made, None)
    with pytest.raises(InputError, match="says itself that its mesh is rows=8,columns=8"):
        check_mesh(made, {"rows": 8, "columns": 8})


def test_a_mesh_that_fits_some_groups_passes_unless_the_dump_knows_better():
    made = program({"data": 8, "model": 8}, "[8,8]<=[64]", "[16,4]<=[64]")
    check_mesh(made, None)
    check_mesh(made, {"data": 8, "model": 8})
    with pytest.raises(InputError, match="data=8,model=2,inner=4"):
        check_mesh(made, {"data": 8, "model": 2, "inner": 4})


def test_a_mesh_cut_finer_than_the_groups_passes():
    assert not check_mesh(
        program({"a": 2, "b": 4, "c": 8}, "[8,8]<=[64]", "[8,8]<=[8,8]T(1,0)"), None
    )


@pytest.mark.parametrize("version", ["jax-0.10.2", "jax-0.12.0"])
def test_a_dump_refuses_another_mesh_and_names_its_own(version):
    assert sc.predict_hlo(DUMPS / version, "dgx-h100").mesh == "data=4,model=2"
    assert sc.predict_hlo(DUMPS / version, "dgx-h100", mesh="a=4,b=2").mesh == "a=4,b=2"
    for mesh in "data=2,model=4", "fsdp=8":
        with pytest.raises(InputError, match="says itself that its mesh is data=4,model=2"):
            sc.predict_hlo(DUMPS / version, "dgx-h100", mesh=mesh)


def test_names_of_the_same_groups_other_than_the_dumps_are_said_first():
    here = {"cluster": "dgx-h100"}
    own = sc.predict_hlo(DUMPS / "jax-0.10.2", **here)
    assert own.notes == sc.predict_hlo(DUMPS / "jax-0.10.2", mesh="data=4,model=2", **here).notes
    swapped = sc.predict_hlo(DUMPS / "jax-0.10.2", mesh="model=4,data=2", **here)
    (said,) = swapped.to_dict()["notes"]
    assert own.notes == () and "its mesh is data=4,model=2; model=4,data=2 names the same" in said
    assert said in str(swapped).splitlines()[1]


def test_where_nobody_names_the_axes_the_sizes_of_the_groups_are_said_first(tmp_path):
    calls = f"{X} {reduced('[8,8]<=[64]')}"
    found = sc.predict_hlo(text(calls, ", num_partitions=64", add=ADD), "dgx-h100")
    (said,) = found.notes
    assert "the mesh data=64 is not that of the program" in said and "sizes 8 x 8" in said
    assert said in str(found).splitlines()[1] and found.collectives[0].axis == "unnamed"


@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
def test_the_suggested_axes_have_the_groups(sizes, data):
    mesh = {f"axis {i}": size for i, size in enumerate(sizes)}
    axis = data.draw(st.sampled_from(list(mesh)))
    groups = tuple(map(tuple, groups_along(mesh, (axis,)).tolist()))
    devices = int(np.prod(sizes))
    call = Collective("r", groups=groups, bytes=1.0)
    odd = Program("p", "compiled", {"x": devices}, (call,))
    with pytest.raises(InputError) as error:
        check_mesh(odd, None)
    found = str(error.value).split("sizes ")[1].split(" have")[0].split(" x ")
    assert np.prod([int(n) for n in found]) == devices and f"{mesh[axis]}" in found
