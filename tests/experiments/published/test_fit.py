"""The fit of all links: it prices as the simulator does, and finds figures again."""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.published import figures as of
from experiments.published.collectives import system_cases
from experiments.published.fit import candidates_of, choices, fits_of, fitted, predictions
from experiments.published.left_out import development, everything, known_figures, system_of
from experiments.published.ranges import (
    PART,
    Observed,
    evidence_of,
    left_out_points,
    link_document,
    quantile,
)
from experiments.published.series import series_of
from experiments.published.ship_links import LINKS, link_text
from scaling.profiles.io import LinkFile, ideal, link_file, links_of

H100 = "aiconfigurator h100_sxm"
MACHINES = (H100, "Vultr HGX B200 x2", "GCP A3 Mega x2 (dstack)", "aiconfigurator l40s")


def of_machine(*names):
    return series_of([case for case in system_cases() if case.machine in names])


def leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """All numbers and texts of nested dicts and lists, by their places."""
    if not isinstance(value, dict | list | tuple):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [leaves(one, (*path, key)) for key, one in items]
    return {place: leaf for one in found for place, leaf in one.items()}


def in_order(file: LinkFile) -> dict[str, Any]:
    """The document with the rows of each group sorted by what they are fits of."""
    document = asdict(file)
    key = lambda row: (row["link"], row["transport"], row["algorithm"], row["kind"])
    for group in (document["inside"][i]["links"] for i in range(len(file.inside))):
        assert len({key(row) for row in group}) == len(group)
    document["between"] = sorted(document["between"], key=key)
    document["inside"] = [{**g, "links": sorted(g["links"], key=key)} for g in document["inside"]]
    return document


def test_what_is_written_is_read_again():
    document = json.loads(link_text(link_file()))
    assert document == json.loads(LINKS.read_text())
    assert sum(len(group["links"]) for group in document["inside"]) < sum(
        len(group.links) for group in link_file().inside
    )


def test_the_fit_prices_a_series_as_the_simulator_does():
    shipped = known_figures()["all"]
    for choice in choices(of_machine(*MACHINES)):
        series = choice.series
        profile = replace(ideal(), links=links_of(series.cluster.accelerator))
        ours = predictions([choice], fits_of(shipped, choice.keys), np.zeros(1), np.ones(1))[0]
        assert series.predicted(profile) == pytest.approx(ours, rel=1e-6)


def test_times_that_follow_from_figures_are_found_again():
    """Of one machine whose calls take three times as long; the rows tell it from the start."""
    series = of_machine(H100)
    slow = {name: of.start(name) for name in of.NAMES} | {"alpha": 3 * of.COMMON["alpha"]}
    for choice in choices(series):
        fits = fits_of(slow, choice.keys)
        choice.series.time[:] = predictions([choice], fits, np.zeros(1), np.ones(1))[0]
    found = fitted([choice.series for choice in choices(series)], most=8)
    for choice in choices(series):
        times = predictions([choice], fits_of(found, choice.keys), np.zeros(1), np.ones(1))[0]
        assert times == pytest.approx(choice.series.time, rel=0.05)


def test_every_system_was_left_out_and_no_figure_is_impossible():
    document = known_figures()
    assert set(document["without"]) == {system_of(case.machine) for case in everything()}
    assert set(document["without_generation"]) == set(of.GENERATIONS)
    assert len(development()) < len(everything())
    for figures in (document["all"], document["development"], *document["without"].values()):
        assert tuple(figures) == of.NAMES and min(figures.values()) > 0


def test_what_is_shipped_follows_from_the_figures_and_the_systems_left_out():
    """To 1e-9: the last digit of a logarithm, and so of a mean, is another one on another CPU."""
    made = leaves(in_order(link_document(known_figures()["all"], left_out_points())))
    shipped = leaves(in_order(link_file()))
    numbers = [place for place, value in shipped.items() if isinstance(value, float)]
    near = pytest.approx([shipped.pop(place) for place in numbers], rel=1e-9)
    assert [made.pop(place) for place in numbers] == near
    assert made == shipped
    assert json.loads(LINKS.read_text())["figures"] == known_figures()["all"]


@given(st.lists(st.floats(-0.7, 0.7), min_size=1, max_size=60), st.integers(1, 4))
def test_nine_tenths_of_the_points_lie_within_the_range_either_way(errors, systems):
    key = of.Key("ring", "all-reduce", "nvlink", "hopper")
    ones = np.ones(1)
    points = [
        Observed(str(i % systems), "ring", (key,), 8, 1, ones, np.abs([error]), 0 * ones)
        for i, error in enumerate(errors)
    ]
    half = quantile(points, late=False)
    shares = [
        np.mean([one.error[0] <= np.log1p(half) + 1e-9 for one in points if one.system == name])
        for name in {one.system for one in points}
    ]
    assert np.mean(shares) >= PART - 1e-9
    assert quantile(points, late=True) is None


def test_a_fit_that_no_point_moved_is_assumed_and_says_so():
    points = left_out_points()
    unknown = evidence_of(of.Key("pat", "all-gather", "network", "verbs"), points)
    assert (unknown.grade, unknown.samples, unknown.measured) == ("datasheet", 0, None)
    assert unknown.source.startswith("assumed")
    known = evidence_of(of.Key("ring", "all-gather", "network", "verbs"), points)
    assert known.grade == "calibrated" and known.measured.nodes == (2, 2)
    assert "Vultr" in known.source or "more" in known.source


def test_rings_of_all_collectives_share_their_figures():
    fits = fits_of(known_figures()["all"], of.keys())
    rings = [fit for key, fit in fits.items() if (key.algorithm, key.scope) == ("ring", "hopper")]
    assert len({(f.alpha, f.hop_overhead, f.efficiency, f.knee) for f in rings}) == 1
    (choice,) = choices(of_machine("GCP A4 x2 (dstack)"))
    names = [priced.algorithm for priced, _ in candidates_of(choice, fits)]
    assert names == ["ring", "tree", "nvls-tree"]
