"""Every kind of picture is drawn from little, the same twice, and refused by name where not."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.pictures.drawing.frames import frames
from scaling.pictures.plots import (
    ScatterPoint,
    check_picture,
    plot_bandwidth,
    plot_cluster,
    plot_memory,
    plot_mesh,
    plot_ring,
    plot_scaling,
    plot_scatter,
    plot_step_roofline,
    plot_steps,
    plot_timeline,
)

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
    "bandwidth": lambda path, _: plot_bandwidth(collectives(), "$x", path, {"us": [(2**20, 1e9)]}),
    "cluster": lambda path, _: plot_cluster(sc.load_cluster("rtx3090-10-nvlink", 8), "x", path),
    "memory": lambda path, priced: plot_memory(priced, 78e9, "hand", path),
    "mesh": lambda path, _: plot_mesh({"data": 3, "tensor": 4}, 8, "x", path),
    "ring": lambda path, _: plot_ring(frames("reduce-scatter", 2), "x", path),
    "roofline": lambda path, priced: plot_step_roofline(priced, "x", path),
    "scaling": lambda path, _: plot_scaling({"weak": [step(1.0), step(1.1, 16)]}, "x", path),
    "scatter": lambda path, _: plot_scatter(POINTS, "x", path),
    "steps": lambda path, _: plot_steps({"a": step(1.0), "b": step(2.0, fits=False)}, "x", path),
    "timeline": lambda path, priced: plot_timeline(priced, "x", path),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_every_kind_is_drawn_and_the_same_twice(kind, hand_priced, tmp_path):
    paths = [tmp_path / name for name in ("first.svg", "second.svg")]
    for path in paths:
        DRAWN[kind](path, hand_priced)
    first, second = (path.read_text(encoding="utf-8") for path in paths)
    assert first == second and "<svg" in first and "<dc:date>" not in first


def test_a_picture_may_be_a_png(tmp_path):
    plot_scatter(POINTS, "x", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_where_nothing_was_measured_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(InputError, match="nothing was both predicted and measured"):
        plot_scatter([], "x", tmp_path / "picture.svg")


def test_a_picture_is_known_by_its_name(hand_priced, tmp_path):
    check_picture("--plot-memory", None)
    check_picture("--plot-memory", Path("memory.PNG"))
    with pytest.raises(InputError, match="--plot-memory memory.txt: end the name with .png"):
        check_picture("--plot-memory", Path("memory.txt"))
    with pytest.raises(InputError, match="--plot-memory .*memory.xyz: end the name with .png"):
        plot_memory(hand_priced, None, "hand", tmp_path / "memory.xyz")


def test_a_picture_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(InputError, match="--plot .*none/a.svg: cannot write the picture"):
        plot_scatter(POINTS, "x", tmp_path / "none/a.svg")
