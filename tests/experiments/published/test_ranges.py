"""Ranges of predicted collectives: errors on folds that were not fitted, and shipped documents."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.published import validation
from experiments.published.collectives import cases_of
from experiments.published.families import FAMILIES, FOLDER
from experiments.published.fit_links import fitted, series_of
from experiments.published.ship_links import document, summary
from experiments.published.validation import FEWEST, FOLDS, cross_errors, error_quantile
from scaling.meshes import catalog
from scaling.profiles.io import profile_of

VOLTA = FAMILIES["volta"]


def test_a_fold_is_scored_with_parameters_fitted_on_the_others(monkeypatch):
    cases = [case for case in cases_of("fit") if VOLTA.includes(case)]
    seen = []

    def fitted(family, rest, starts):
        seen.append({case.key for case in rest})
        return VOLTA.initial, []

    monkeypatch.setattr(validation, "fitted", fitted)
    errors = cross_errors(VOLTA, cases)
    everything = {case.key for case in cases}
    assert len(seen) == FOLDS
    assert all(everything - rest for rest in seen)
    assert not set.intersection(*seen)  # every row is left out once
    assert {key: len(e) for key, e in errors.items()} == {("all-reduce", "inside"): len(cases)}


@given(st.lists(st.floats(-0.5, 1.0), min_size=FEWEST, max_size=60))
def test_nine_tenths_of_the_points_lie_within_the_range_either_way(errors):
    half = error_quantile({("all-reduce", "inside"): np.array(errors)}, "all-reduce", "inside")
    times = 1 + np.array(errors)  # predicted over measured
    held = (times / (1 + half) <= 1 + 1e-9) & (1 - 1e-9 <= times * (1 + half))
    assert held.mean() >= 0.9 - 1 / len(errors)


def test_kinds_with_few_points_take_the_range_of_all_kinds_in_their_scope():
    many, few = np.full(FEWEST, 0.1), np.full(3, 0.5)
    errors = {("all-reduce", "inside"): many, ("all-to-all", "inside"): few}
    assert error_quantile(errors, "all-reduce", "inside") == pytest.approx(0.1)
    assert error_quantile(errors, "all-to-all", "inside", 1.0) == pytest.approx(0.5)
    assert error_quantile(errors, "all-to-all", "inside", 0.5) == pytest.approx(0.1)
    assert error_quantile(errors, "all-to-all", "between") is None
    assert error_quantile({("all-reduce", "inside"): few}, "all-reduce", "inside") is None


def test_a_shipped_document_states_its_errors_inside_nodes_and_between_them():
    family = FAMILIES["ampere"]
    series = series_of([case for case in cases_of("fit") if family.includes(case)])
    crossed = {
        ("all-reduce", "inside"): np.full(FEWEST, 0.1),
        ("all-reduce", "between"): np.full(FEWEST, -0.5),
    }
    written = document(family, family.initial, series, crossed)
    fitted = [link for link in written["links"] if link["kind"] != "all-to-all"]
    ranges = {link["link"]: link["evidence"]["error_p90"] for link in fitted}
    others = [link["evidence"]["grade"] for link in written["links"] if link not in fitted]
    assert others == ["datasheet"] * 2  # no all-to-all is among the errors
    assert ranges == {"nvlink": pytest.approx(0.1), "network": pytest.approx(1.0)}
    assert "all-reduce over network" in summary("ampere", written)


def test_a_transport_without_measurements_has_the_parameters_of_verbs():
    family = FAMILIES["hopper"]
    parameters, _ = fitted(family, [])
    own = [name for name in parameters if name.startswith("tcpx_")]
    assert own and all(parameters[n] == family.initial[n.replace("tcpx_", "net_")] for n in own)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_links_of_a_shipped_family_follow_from_its_parameters(name):
    shipped = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    family = FAMILIES[name]
    assert family.initial.keys() <= shipped["figures"].keys()
    links = family.links(shipped["figures"], validation.UNKNOWN)
    for link, entry in zip(links, shipped["links"], strict=True):
        assert (link.kind, link.link, link.algorithm) == (
            *(entry["kind"], entry["link"], entry["algorithm"]),
        )
        assert link.efficiency == pytest.approx(entry["efficiency"], rel=1e-3)
        known = entry["evidence"]
        assert known["grade"] == "datasheet" or min(known["samples"], known["held_out_error"]) > 0
    assert profile_of(catalog.accelerator(family.chips[0]), family.software).links
