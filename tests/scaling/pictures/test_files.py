"""Every kind of picture is drawn from little, the same twice, and refused by name where not."""

from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.pictures.bars import grouped_bars, step_bars
from scaling.pictures.cluster import cluster_levels
from scaling.pictures.curves import ScatterPoint, bandwidth, scaling_curves, scatter
from scaling.pictures.files import check_picture, write_picture
from scaling.pictures.mesh import mesh_axes
from scaling.pictures.ring import frames, ring_steps
from scaling.pictures.roofline import step_roofline
from scaling.pictures.shapes import Group, Text, text_width, titled
from scaling.pictures.timeline import step_memory, timeline

POINTS = [ScatterPoint("one", 1.0, 1.1, 0.9, 1.3), ScatterPoint("two", 2.0, 1.5)]


def step(seconds: float, devices: int = 8, fits: bool = True):
    """What the pictures read of a prediction."""
    time = SimpleNamespace(
        compute=0.8 * seconds, exposed_communication=0.2 * seconds, bubble=0, optimizer=0, host=0
    )
    return SimpleNamespace(
        time=time, step_time=seconds, step_time_low=0.8 * seconds, step_time_high=1.3 * seconds,
        mfu=0.4, memory=SimpleNamespace(peak=50e9, fits=fits), devices=devices,
        tokens_per_second=1e6 / seconds,
    )  # fmt: skip


def collectives():
    sizes = ("1MiB", "64MiB", "1GiB")
    return [sc.price_collective("all-reduce", size, "dgx-h100") for size in sizes]


DRAWN = {
    "bandwidth": lambda _: bandwidth(collectives(), "$x", {"us": [(2**20, 1e9)]}),
    "cluster": lambda _: cluster_levels(sc.load_cluster("rtx3090-10-nvlink", 8), "x"),
    "memory": lambda priced: step_memory(priced, 78e9, "hand"),
    "mesh": lambda _: mesh_axes({"data": 3, "tensor": 4}, 8, "x"),
    "ring": lambda _: ring_steps(frames("reduce-scatter", 2), "x"),
    "roofline": lambda priced: step_roofline(priced, "x"),
    "scaling": lambda _: scaling_curves({"weak": [step(1.0), step(1.1, 16)]}, "x"),
    "scatter": lambda _: scatter(POINTS, "x"),
    "steps": lambda _: step_bars({"a": step(1.0), "b": step(2.0, fits=False)}, "x"),
    "timeline": lambda priced: timeline(priced, "x"),
}


def texts(shapes, x=0.0):
    """Left and right edge, and words, of every text."""
    for shape in shapes:
        if isinstance(shape, Group):
            yield from texts(shape.shapes, x + shape.x)
        elif isinstance(shape, Text) and not shape.turn:
            wide = text_width(shape.words, shape.size)
            left = x + shape.x - {"start": 0, "middle": 0.5, "end": 1}[shape.anchor] * wide
            yield left, left + wide, shape.words


@pytest.mark.parametrize("kind", DRAWN)
def test_every_kind_is_drawn_and_the_same_twice(kind, hand_priced, tmp_path):
    paths = [tmp_path / f"picture.{end}" for end in ("svg", "png", "pdf")]
    write_picture(DRAWN[kind](hand_priced), *paths)
    first = [path.read_bytes() for path in paths]
    write_picture(DRAWN[kind](hand_priced), *paths)
    assert first == [path.read_bytes() for path in paths]
    assert ElementTree.fromstring(first[0]).tag.endswith("svg")
    assert first[1].startswith(b"\x89PNG") and first[2].startswith(b"%PDF")


@pytest.mark.parametrize("kind", DRAWN)
def test_no_words_leave_their_picture(kind, hand_priced):
    drawn = DRAWN[kind](hand_priced)
    for left, right, words in texts(drawn.shapes):
        assert left > -8 and right < drawn.width + 8, words


def test_long_names_make_a_picture_wider():
    name = "a name of more than thirty letters, " * 2
    drawn = [
        step_bars({name: step(1.0)}, 4 * name),
        grouped_bars([(name, (1.0, None))], (name, f"not {name}"), str),
        scatter([ScatterPoint(2 * name, 1.0, 1.1)], 4 * name),
    ]
    for picture in map(titled, drawn):
        for left, right, words in texts(picture.shapes):
            assert left > -8 and right < picture.width + 8, words


def test_a_picture_is_known_by_its_name(hand_priced, tmp_path):
    check_picture("--plot-memory", None)
    check_picture("--plot-memory", Path("memory.PNG"))
    with pytest.raises(InputError, match="--plot-memory memory.txt: end the name with .png"):
        check_picture("--plot-memory", Path("memory.txt"))
    drawn = step_memory(hand_priced, None, "hand")
    with pytest.raises(InputError, match="--plot-memory .*memory.xyz: end the name with .png"):
        write_picture(drawn, tmp_path / "memory.xyz", option="--plot-memory")


def test_a_picture_that_cannot_be_written_is_reported(tmp_path):
    for name in ("a.svg", "a.png"):
        with pytest.raises(InputError, match=f"--plot .*none/{name}: cannot write the picture"):
            write_picture(scatter(POINTS, "x"), tmp_path / "none" / name)
