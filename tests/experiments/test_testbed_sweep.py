"""The sweep over testbeds: what is measured, and what the results folder says of it."""

import json
from collections import Counter

import pytest

from experiments.gloo.messages import KINDS, groups_over, link_bytes, payload_bound
from experiments.testbed_case import MOST, SIZES, SMALL, WINDOW, Point, points
from experiments.testbed_sweep import LARGE, main, predict, read_point, save

MIB = 2**20


def bound(p):
    link = link_bytes(p.kind, groups_over(p.axis, p.hosts, p.devices), p.devices, p.bytes)
    return payload_bound(link, p.bandwidth)


def measured(slower=1.1, hosts=2, devices=1):
    """Points that took `slower` times their payload, three times."""
    wanted = points(hosts, devices, 125e6, (MIB, 4 * MIB))
    return [
        Point(
            **{**vars(p), "seconds": (1e-4,) * 3 if p.bytes == SMALL else 3 * (slower * bound(p),)}
        )
        for p in wanted
    ]


@pytest.mark.parametrize(("devices", "axes"), [(1, {"all"}), (2, {"all", "hosts"})])
def test_every_kind_axis_and_size_is_measured_once_and_each_latency_first(devices, axes):
    made = points(3, devices, 25e6, SIZES)
    large = [p for p in made if p.bytes != SMALL]
    counts = Counter((p.kind, p.axis) for p in large)
    assert counts == {(kind, axis): len(SIZES) for kind in KINDS for axis in axes}
    assert made[0].bytes == SMALL and {p.axis for p in made if p.bytes == SMALL} == axes
    assert all(p.bytes % (4 * 3 * devices) == 0 for p in large if p.axis == "all")


def test_a_program_lasts_as_long_as_it_should_and_no_longer():
    for p in points(2, 2, 125e6, SIZES):
        if p.bytes != SMALL and p.iterations < MOST:
            assert WINDOW <= p.iterations * bound(p) < WINDOW + bound(p)


def test_a_point_is_read_back():
    point = measured()[3]
    assert read_point(json.loads(json.dumps(vars(point)))) == point


def test_predictions_leave_out_what_the_latency_was_taken_from():
    results = predict(measured(slower=2.0))
    assert len(results) == 2 * len(KINDS)
    assert all(r.bound_error == pytest.approx(-0.5) for r in results)
    assert all(r.predicted > r.bound for r in results)


def test_the_folder_has_raw_data_and_a_page_and_can_be_priced_anew(tmp_path, capsys):
    save(measured(), [0.5], "", tmp_path)
    document = json.loads((tmp_path / "results.json").read_text())
    large = [p for p in document["points"] if p["bytes"] > LARGE]
    assert document["above_1MiB"]["n"] == len(large) == 5
    assert {"date", "machine", "versions", "commit", "congestion_control"} <= set(document)
    before = (tmp_path / "README.md").read_text()
    assert "nothing else ran" in before and "Goal: mean below 10%" in before
    main(["--again", str(tmp_path)])
    assert (tmp_path / "README.md").read_text() == before
    assert json.loads((tmp_path / "results.json").read_text()) == document
