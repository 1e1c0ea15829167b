"""`scaling array`: the guide's answers, and the engine's beside its rules."""

import math

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.questions.answer import textbook
from tests.scaling.questions.formulas import check

SIZES = "I=1024,J=4096,K=8192"


@pytest.mark.parametrize(
    "where", [None, "dgx-h100", "tpu-v5e", "rtx3090-10-nvlink", "mi300x-8", "dgx-b200", "p5"]
)
@pytest.mark.parametrize(
    "text",
    [
        "A[I_X,J_Y]",
        "A[I_XY,J] -> A[I,J]",
        "A[I_X,J_Y] -> A[I_Y,J_X]",
        "A[I_X,J] -> A[I,J_X]",
        "A[I,J]{U_XY} -> A[I,J_Y]",
        "A[I_X,J_Y] @ B[J_Y,K] -> C[I_X,K]",
        "A[I_X,J] @ B[J_X,K_Y] -> C[I,K]",
    ],
)
def test_formulas_hold_everywhere(where, text):
    size = "I=1024,J=4096,K=8192" if "K" in text else "I=1024,J=4096"
    answer = check(sc.array(text, "X=4,Y=2", size, where))
    check(sc.array(text, "X=4,Y=2", size, where, ideal=True))
    if where and text != "A[I_X,J_Y]":
        assert answer.unit == "s"
        assert answer.fitted >= answer.ideal * (1 - 1e-9)


@pytest.mark.parametrize(
    ("text", "tile", "bytes"),
    [
        ("fp32[3,5]", "2,2", 4 * 6 * 4),  # profiling.md: 1.6 times as many
        ("bf16[100_X,4000_Y]", "8,128", 32 * 512 * 2),  # of [25, 500]
        ("bf16[7,416_XY,30]", "16", 7 * 13 * 32 * 2),
    ],
)
def test_a_part_in_whole_tiles(text, tile, bytes):
    answer = check(sc.array(text, "X=4,Y=8", tile=tile))
    assert float(answer[f"bytes in tiles of {tile.replace(',', 'x')}"]) == bytes
    assert float(answer["growth by tiles"]) == bytes / float(answer)


@pytest.mark.parametrize("tile", ["", "8,", "0,8", "a", "-2", "1.5", "2,2,2", f"{10**30}"])
def test_what_is_no_tile_of_the_array_is_refused(tile):
    with pytest.raises(InputError, match="tile"):
        sc.array("fp32[3,5]", "X=1", tile=tile)
    with pytest.raises(InputError, match="one array"):
        sc.array("fp32[4_X,5] -> [4,5]", "X=2", tile="2")


@pytest.mark.parametrize(
    ("text", "mesh", "cluster", "seconds"),
    [
        # gpus.md: pop quiz 1 and quiz 2 Q3; sharding.md: pop quiz 2 and question 2 (2026-06)
        ("bf16[1024_X,16384] -> [1024,16384]", "X=8", "dgx-h100", 65.2e-6),
        ("bf16[4096_X,65536] -> [4096,65536]", "X=8", "dgx-h100", 1.044e-3),
        ("bf16[2048_Y,8192] -> [2048,8192]", "X=8,Y=4", "tpu-v5e", 559.2e-6),
        ("bf16[1024_X,4096_Y] -> [1024,4096_Y]", "X=4,Y=4,Z=4", "tpu-v4", 23.3e-6),
        ("bf16[1024_X,4096_Y] -> [1024,4096]", "X=4,Y=4,Z=4", "tpu-v4", 46.6e-6),
        ("bf16[1024_X,4096_Y]{U_Z} -> [1024_X,4096_Y]", "X=4,Y=4,Z=4", "tpu-v4", 11.65e-6),
    ],
)
def test_the_guides_times(text, mesh, cluster, seconds):
    answer = sc.array(text, mesh, cluster=cluster, ideal=True)
    assert float(answer) == pytest.approx(seconds, rel=2e-3)


def test_the_guides_strategies_of_question_4():
    """Gather the weights from B = C/W tokens on, or sum outputs from D = 2 C/W X on.

    C/W is 2550 of a v5p and one ring (sharding.md, question 4).
    """
    text = "A[B,D] @ W[D_X,F] -> C[B,F]"
    shape = "B=4096,D=8192,F=16384"
    rows = sc.array(text, "X=4,Y=16", shape, "tpu-v5p", ideal=True).rows
    heads = ("strategy", "compute bound from B", "compute bound from D")
    bounds = [tuple(row[head] for head in heads) for row in rows]
    assert bounds == [
        ("all-reduce C over X", None, pytest.approx(20_400)),
        ("all-gather W over X", pytest.approx(2550), None),
    ]
    assert "compute bound from F" not in rows[0], "what moves has F, both ways"


def test_sizes_stand_for_names_where_they_differ():
    options = {"mesh": "X=4", "cluster": "dgx-h100"}
    named = sc.array("A[I,J_X] @ B[J_X,K]", shape="I=64,J=128,K=256", **options)
    sized = sc.array("[64,128_X] @ [128_X,256]", **options)
    assert (float(named), named.ideal) == (float(sized), sized.ideal)


def test_without_a_mesh_there_is_one_device():
    assert float(sc.array("fp32[3,5]", tile="2,2")["growth by tiles"]) == pytest.approx(1.6)
    product = check(sc.array("A[I,J] @ B[J,K]", shape="I=64,J=8,K=7", cluster="dgx-h100"))
    assert float(product["FLOPs of all devices"]) == 2 * 64 * 8 * 7


@pytest.mark.parametrize("mesh", ["X=4,Y=8,Z=4", "X=2,Y=1,Z=8", "X=1,Y=4", "X=8,Y=2,W=2,Z=2"])
@pytest.mark.parametrize("where", [None, "dgx-h100"])
@pytest.mark.parametrize(
    "text",
    [
        "A[B_X,D_Y] @ W[D_Y,F] -> C[B_X,F]",
        "A[B,D] @ W[D,F] -> C[B,F]",
        "A[B_X,D] @ W[D,F_Y] -> C[B_X,F_Y]",
        "A[B,D_XY] @ W[D_XY,F]",
        "A[B_X,D] @ W[D_X,F_Y] -> C[B_X,F]",
    ],
)
def test_flops_of_all_devices_are_those_of_each(text, where, mesh):
    """Devices along an axis that does not split the product repeat it."""
    asked = sc.array(text, mesh, "B=8192,D=4096,F=2048", where)
    answer = check(asked)
    of_one = answer if where is None else answer["FLOPs of a device"]
    devices = math.prod(int(part.split("=")[1]) for part in mesh.split(","))
    assert float(answer["FLOPs of all devices"]) == devices * float(of_one)


def test_copies_of_an_array():
    """sharding.md, question 1: 16 times the bytes of one copy."""
    answer = sc.array("A[I_X,J,K]", "X=4,Y=8,Z=2", SIZES)
    assert answer["copies"].answer == 16
    assert answer["bytes on all devices"].answer == 16 * answer["bytes of one copy"].answer


def test_a_large_mesh_is_not_drawn():
    assert sc.array("A[I_X,J]", "X=4,Y=8", "I=1024,J=4096").rows
    assert not sc.array("A[I_X,J]", "X=4,Y=16", "I=1024,J=4096").rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A[I_X,J] @ B[J,K_Y] -> C[I_X,K_Y]", ["case 1", "case 1"]),
        ("A[I,J_X] @ B[J,K] -> C[I,K]", ["case 2"]),
        ("A[I,J_X] @ B[J_X,K]", ["case 3", "C[I,K] {U_X}"]),
        ("A[I_X,J] @ B[J,K_X]", ["case 4", "C[I_X,K]"]),
        ("A[I,J_X] @ B[J,K_X] -> C[I,K_X]", ["case 2"]),
        ("A[B_X,I,J] @ W[B_X,J,K] -> C[B_X,I,K]", ["case 1"]),
    ],
)
def test_the_cases_of_the_guide_are_named(text, words):
    shape = {"I": 64, "J": 64, "K": 64, **({"B": 64} if "[B" in text else {})}
    notes = sc.array(text, "X=4,Y=2", shape).notes
    assert [word in note for word, note in zip(words, notes, strict=True)] == [True] * len(words)


def test_axes_lie_along_the_dimensions_of_a_slice_that_they_fit():
    """X=8, Y=4 on a slice of 4 x 8: X along the eight."""
    along = sc.array("bf16[2048_X,8192] -> [2048,8192]", "X=8,Y=4", cluster="tpu-v5e", ideal=True)
    assert {i.symbol: i.value for i in along.inputs}["X"] == 8


def test_xla_puts_in_what_we_say():
    text = "A[I_X,J_Y] @ B[J_Y,K] -> C[I_X,K]"
    answer = sc.array(text, "X=2,Y=4", "I=64,J=64,K=64", compile=True)
    assert answer["XLA puts in"].answer == "the same collectives"
    assert textbook(answer)["XLA puts in"].rows[0]["calls"] == "same"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expression": "A[I_X,L]", "shape": "I=1024"}, "dimension L of"),
        ({"shape": "I=6,J=4"}, "cannot be split evenly over X=4: 6 / 4"),
        ({"shape": "I=1024,J=4,Q=3"}, "unknown dimension 'Q'"),
        ({"shape": "I=1024;J=4"}, "size of a dimension is a whole number"),
        ({"shape": "I=1024,I=4"}, "given twice"),
        ({"shape": {"I": -4, "J": 4}}, "whole number"),
        ({"shape": "I=" + "9" * 18 + ",J=" + "9" * 18, "mesh": "X=1"}, "elements"),
        ({"mesh": "X=4,X=4"}, "given twice"),
        ({"mesh": "X=1048577"}, "at most"),
        ({"mesh": "X-1=4"}, "no name of an axis"),
        ({"mesh": "max=4", "expression": "A[I,J]"}, "word of formulas"),
        ({"mesh": "X=4,I=2"}, "dimension and an axis"),
        ({"dtype": "float"}, "no number format"),
        ({"cluster": "dgx-h10"}, "dgx-h100"),
        ({"cluster": "dgx-h100", "nodes": 1, "mesh": "X=16"}, "nodes=2"),
        ({"device_order": "Z"}, "unknown axis 'Z'"),
        ({"device_order": "X,X"}, "named twice"),
        ({"expression": "A[I_X,J] -> A[J,I]"}, "keeps the dimensions"),
        ({"expression": "A[I,J] -> A[I,J] {U_X}"}, "no collective makes"),
        ({"expression": "A[I,J] @ B[I,J] -> C[I,J,J]"}, "twice"),
        ({"expression": "A[I] @ B[J] -> C[I,J]"}, "share no dimension"),
        ({"expression": "A[I,J] @ B[J] -> C[J]"}, "the result lacks it"),
        ({"expression": "A[I,J] @ B[I,J] -> C[I,J] {U_X}"}, "ends like that"),
        ({"expression": "A[8_X,4] @ B[4,8]", "shape": None}, "some are equal"),
        ({"expression": "A[I,J] {U_X} -> A[I,J]", "compile": True}, "no jitted function"),
    ],
)
def test_bad_questions_say_what_is_wrong(options, says):
    given = {"expression": "A[I_X,J]", "mesh": "X=4", "shape": "I=1024,J=4", **options}
    with pytest.raises(InputError, match=says):
        sc.array(**given)


def test_what_binds_is_that_of_the_time_that_is_given():
    """A small all-gather waits for its hops, which the textbook's rule leaves out."""
    question = ("bf16[256_X,256] -> [256,256]", "X=8", None, "dgx-h100")
    assert sc.array(*question).binds.startswith("latency")
    assert sc.array(*question, ideal=True).binds.startswith("NVLink")
    assert sc.array(*question, ideal=True, hops=True).binds.startswith("latency")


def test_a_mesh_of_part_of_a_slice_lies_on_the_slice_it_would_be():
    """2x2 chips of a v5e host: both links of a chip carry a gather over both axes."""
    ask = lambda text, mesh: sc.array(text, mesh, "B=128,D=8192", "tpu-v5e", ideal=True)
    both = ask("In[B,D_XY] -> In[B,D]", "X=2,Y=2")
    assert float(both) == pytest.approx(17.5e-6, rel=0.01)
    assert "2x2 of a slice of 2x4 chips: X along 2, Y along 2" in both.notes[-1]
    assert float(ask("In[B,D_X] -> In[B,D]", "X=4")) == float(both)
    row = ask("In[B,D_X] -> In[B,D]", "X=4,Y=2")
    assert float(row) == pytest.approx(2 * float(both))


def test_groups_that_lie_unevenly_over_the_nodes_have_their_hops_too():
    """Sixteen of ten cards a node: the first group of four joins one node, another joins two."""
    where = {"mesh": "X=4,Y=4", "cluster": "rtx3090-10-nvlink", "nodes": 2}
    asked = "A[I_X,J_Y] -> A[I,J]", "I=4096,J=8192"
    found = check(sc.array(asked[0], shape=asked[1], **where, ideal=True, hops=True))
    assert found.formula.startswith("max(H, ") and float(found) > 0


def test_an_outer_axis_that_leaves_says_what_the_guide_counts():
    ask = lambda text: sc.array(text, "X=4,Y=4,Z=4", "I=8192,J=16384", "tpu-v5p", ideal=True)
    outer, inner, turned = (
        ask(f"A[I_{axes},J] -> A[I_{left},J]")
        for axes, left in (("XY", "Y"), ("XY", "X"), ("YX", "Y"))
    )
    assert any("A[I_YX,J] -> A[I_Y,J]" in note for note in outer.notes)
    assert not any("guide counts" in note for one in (inner, turned) for note in one.notes)
    assert float(outer) == pytest.approx(2 * float(turned))  # both axes, over twice the links
