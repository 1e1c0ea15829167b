"""The drawings of one step: no second is lost, and no picture grows with the program."""

import numpy as np
import pytest

import scaling as sc
from scaling.api.pricing import price_program
from scaling.course.explorer.pictures import ALONE, BESIDE, _rows
from scaling.pictures.axes import Scale
from scaling.pictures.cluster import LIT, cluster_levels, letters, shown_nodes
from scaling.pictures.legend import Look, legend
from scaling.pictures.roofline import LARGEST, Dot, kernel_dots, roofline
from scaling.pictures.rows import Bar, Row, boxes, column_shares, shares
from scaling.pictures.shapes import Circle, Line, Text, text_width
from scaling.pictures.svg import svg_text
from scaling.program.stored import stored_programs
from scaling.simulate.kernels import peak_rate
from scaling.simulate.memory import fullest_moments


def test_columns_hold_the_time_of_all_bars():
    bars = [Bar(0.0, 1.0, "a"), Bar(1.5, 4.0, "a"), Bar(9.0, 10.0, "a")]
    shares = column_shares(bars, np.linspace(0, 10, 6))
    assert shares == pytest.approx([0.75, 1.0, 0.0, 0.0, 0.5])


def test_communication_that_is_alone_is_what_the_step_waits_for():
    stored = next(s for s in stored_programs() if s.mesh == "data=8,fsdp=8")
    priced = price_program(sc.predict(**stored.arguments).pricing, record=True)
    rows, line = _rows(priced.timeline.events), priced.timeline
    seconds = lambda kind: sum(b.end - b.start for b in rows["collectives"] if b.kind == kind)
    assert seconds(ALONE) == pytest.approx(line.exposed_communication)
    assert seconds(BESIDE) == pytest.approx(line.hidden_communication)
    compute = sum(bar.end - bar.start for bar in rows["compute"])
    assert compute == pytest.approx(line.compute + line.optimizer)


def test_no_kernel_stands_above_the_roof():
    """Of an attention the scores count that its mask leaves."""
    stored = next(s for s in stored_programs() if s.mesh == "data=8,fsdp=8")
    priced = price_program(sc.predict(**stored.arguments).pricing)
    peak = peak_rate(priced.cluster.accelerator, "bf16")
    dots = kernel_dots(priced)
    assert {"attention", "matrix products"} <= {dot.kind for dot in dots}
    assert max(dot.rate for dot in dots) <= peak
    assert 0.5 < sum(dot.share for dot in dots) <= 1


def test_a_long_step_is_drawn_as_small_as_a_short_one():
    many = [Bar(i, i + 0.9, "a", "words") for i in range(20_000)]
    rows = {"row": Row(many)}
    assert len(svg_text(shares(rows, {"a": "red"}, 20_000))) < 20_000
    drawn = svg_text(boxes(rows, {"a": "red"}, Scale(10.0, 20.0)))
    assert drawn.count("<title>words") == 10


def test_the_fullest_moments_are_kept():
    times, sizes = np.linspace(0, 1, 5001)[:-1], np.arange(5000.0)[:, None] % 777
    kept, fullest = fullest_moments(times, sizes, 1.0, 280)
    assert len(kept) == 280 and fullest.max() == sizes.max() and (np.diff(kept) > 0).all()


def test_a_legend_stays_inside_its_drawing():
    shapes, height = legend({f"a rather long name {i}": Look("red") for i in range(9)}, 20, 640)
    assert len(shapes) == 18 and height > 60


def test_the_area_of_a_kernel_is_its_share_of_the_time():
    found = [Dot(100.0, 1e14, "x", 0.25), Dot(1.0, 1e12, "x", 1.0)]
    drawn = roofline(1e15, 3e12, found, {"x": "red"})
    radii = [shape.radius for shape in drawn.shapes if isinstance(shape, Circle)]
    assert radii[:2] == [LARGEST, LARGEST / 2]


@pytest.mark.parametrize(
    ("nodes", "shown", "words"),
    [
        (1, [0], "NVLink of a chip, 450 GB/s, joins 8 chips"),
        (8, [0, 1, 2, 3], "NICs of a node, 400 GB/s, joins 64 chips"),
        (64, [0, 1, 32, 33], "uplinks of a leaf group, 12.8 TB/s, joins 512 chips"),
        (512, [0, 1, 32, 33], "uplinks of a spine layer, 51.2 TB/s, joins 4,096 chips"),
    ],
)
def test_a_few_nodes_stand_for_all(nodes, shown, words):
    cluster = sc.load_cluster("dgx-h100", nodes=nodes)
    assert shown_nodes(cluster) == shown
    dark = svg_text(cluster_levels(cluster))
    assert words in dark and "device 0" in dark and LIT not in dark
    loads = {"NICs of a node": "1 GB over 400 GB/s: 2.5 ms", "NVLink of a chip": "8 B"}
    lit = svg_text(cluster_levels(cluster, "", {0: 0, 8: 0}, loads))
    assert "device 0, in group A" in lit and "NVLink of a chip: 8 B" in lit
    assert "NICs of a node: 1 GB" in lit  # below the drawing where it has no such level


def test_groups_have_letters_and_one_group_alone_has_none():
    """A number on a chip would read as that of the chip."""
    assert [letters(n) for n in (0, 25, 26, 51, 52, 701, 702)] == "A Z AA AZ BA ZZ AAA".split()
    cluster = sc.load_cluster("dgx-h100", nodes=1)
    for groups, written in (({0: 0, 1: 0}, 0), ({0: 0, 1: 1}, 1)):
        drawn = cluster_levels(cluster, "", groups)
        assert sum(isinstance(s, Text) and s.words == "A" for s in drawn.shapes) == written


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "rtx3090-10", "tpu-v5e"])
def test_no_line_lies_on_words(name):
    drawn = cluster_levels(sc.load_cluster(name), "", {0: 0, 1: 1})
    lines = [s.points for s in drawn.shapes if isinstance(s, Line)]
    for text in (s for s in drawn.shapes if isinstance(s, Text) and s.anchor == "middle"):
        half = text_width(text.words, text.size) / 2
        for (x0, y0), (x1, y1) in lines:
            beside = max(x0, x1) < text.x - half or min(x0, x1) > text.x + half
            above, below = min(y0, y1), max(y0, y1)
            assert beside or below <= text.y - 0.8 * text.size or above >= text.y, text.words


def test_loads_light_the_links_of_chips_that_talk():
    cluster = sc.load_cluster("dgx-h100", nodes=64)
    drawn = cluster_levels(cluster, "", {0: 0, 8: 0}, {"NVLink of a chip": "8 B"})
    lit = [shape for shape in drawn.shapes if isinstance(shape, Line) and shape.stroke == LIT]
    wires = [line for line in lit if line.points[0][0] == line.points[1][0]]
    assert len(wires) == 2 and len(lit) == 2 + 4  # of devices 0 and 8, and the bars of four nodes


@pytest.mark.parametrize("name", ["gb200-nvl72", "rtx3090-10", "mi300x-8", "h100-pcie-8"])
def test_other_machines_are_drawn_too(name):
    assert "node 0" in svg_text(cluster_levels(sc.load_cluster(name)))
