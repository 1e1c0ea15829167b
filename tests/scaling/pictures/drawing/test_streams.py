"""The drawings of one step: no second is lost, and no picture grows with the program."""

import numpy as np
import pytest

import scaling as sc
from scaling.api.result import price_program
from scaling.course.explorer.pictures import ALONE, BESIDE, _points, _rows
from scaling.pictures.drawing.cluster import Load, cluster_drawing, shown_nodes, tier_of
from scaling.pictures.drawing.roofline import Point, roofline_of_kernels
from scaling.pictures.drawing.streams import Bar, closer_look, column_shares, legend, whole_step
from scaling.program.stored import stored_programs
from scaling.simulate.kernels import peak_rate
from scaling.simulate.memory import fullest_moments
from scaling.simulate.step import running_kernels


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
    kernels = [kernel for kernel, _ in running_kernels(priced)]
    peak = peak_rate(priced.cluster.accelerator, "bf16")
    points = list(_points(priced, kernels, 1.0))
    assert {"attention", "matmul"} <= {point.kind for point in points}
    assert max(point.rate for point in points) <= peak


def test_a_long_step_is_drawn_as_small_as_a_short_one():
    many = [Bar(i, i + 0.9, "a", "words") for i in range(20_000)]
    assert len(whole_step({"row": many}, {"a": "red"}, 20_000)) < 20_000
    drawn = closer_look({"row": many}, {"a": "red"}, 10.0, 20.0)
    assert drawn.count("<title>words") == 10


def test_the_fullest_moments_are_kept():
    times, sizes = np.linspace(0, 1, 5001)[:-1], np.arange(5000.0)[:, None] % 777
    kept, fullest = fullest_moments(times, sizes, 1.0, 280)
    assert len(kept) == 280 and fullest.max() == sizes.max() and (np.diff(kept) > 0).all()


def test_a_legend_stays_inside_its_drawing():
    shapes, height = legend({f"a rather long name {i}": "red" for i in range(9)}, 20)
    assert len(shapes) == 18 and height > 60


def test_the_area_of_a_kernel_is_its_share_of_the_time():
    points = [Point("a", 100.0, 1e14, 0.25, "x"), Point("b", 1.0, 1e12, 1.0, "x")]
    drawn = roofline_of_kernels(1e15, 3e12, points, {"x": "red"})
    assert 'r="70.0"' in drawn and 'r="35.0"' in drawn


@pytest.mark.parametrize(
    ("nodes", "shown", "words"),
    [
        (1, [0], ">NVSwitch</text>"),
        (8, [0, 1, 2, 3], "leaf switches of 8 nodes"),
        (64, [0, 1, 32, 33], "spine switches"),
        (512, [0, 1, 32, 33], "core switches"),
    ],
)
def test_a_few_nodes_stand_for_all(nodes, shown, words):
    cluster = sc.load_cluster("dgx-h100", nodes=nodes)
    assert shown_nodes(cluster) == shown
    dark = cluster_drawing(cluster, {}, [])
    assert words in dark and "device 0" in dark
    load = Load("NICs of a node", True, "1 GB over 400 GB/s: 2.5 ms")
    lit = cluster_drawing(cluster, {0: 0, 8: 0}, [load, Load("NVLink of a chip", False, "8 B")])
    assert "device 0, in group 0" in lit and "NVLink of a chip: 8 B" in lit
    assert ("NICs of a node: 1 GB" in lit) == (nodes > 1)


def test_loads_light_the_links_that_lead_up():
    tiers = [tier_of(Load(n, True, "")) for n in ("NIC of a chip", "uplinks of a leaf group")]
    assert tiers == ["leaf", "spine"] and tier_of(Load("PCIe of a chip", False, "")) == "node"


@pytest.mark.parametrize("name", ["gb200-nvl72", "rtx3090-10", "mi300x-8", "h100-pcie-8"])
def test_other_machines_are_drawn_too(name):
    assert "node 0" in cluster_drawing(sc.load_cluster(name), {}, [])
