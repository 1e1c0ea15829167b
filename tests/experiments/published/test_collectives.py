"""The published measurements and their split."""

import json

import pytest

from experiments.published.collectives import (
    RULE,
    SPLIT,
    SYSTEMS_RULE,
    SYSTEMS_SPLIT,
    cases,
    cases_of,
    machines,
    part_of,
    system_cases,
)
from experiments.published.split import split, write_split
from scaling.meshes import catalog

BUS_LIMIT = 2e12  # bytes/s: twice the fastest link of any machine in the table


@pytest.mark.parametrize("rows", [cases, system_cases])
def test_every_row_is_a_measurement_with_a_source(rows):
    assert len(rows()) > 1400 and len({case.key for case in rows()}) == len(rows())
    assert {case.cluster for case in rows()} <= set(catalog.names())
    for case in rows():
        assert case.time > 0 and case.bytes > 0 and case.source and case.cluster
        assert 2 <= case.ranks <= case.nodes * case.ranks_per_node
        assert case.bytes / case.time < BUS_LIMIT
        assert case.overrides == () or all(value > 0 for _, value in case.overrides)


def test_the_parts_are_those_of_the_rule_and_hold_every_case_once():
    assert json.loads(SPLIT.read_text())["rule"] == RULE
    assert split(SPLIT)["fit"] | split(SPLIT)["left"] == {case.key for case in cases()}
    assert not split(SPLIT)["fit"] & split(SPLIT)["left"]
    assert all(part_of(case) == "fit" for case in cases_of("fit"))
    assert all(part_of(case) == "left" for case in cases_of("left"))
    assert 0.4 < len(cases_of("fit")) / len(cases()) < 0.6


def test_the_splits_can_be_drawn_again(tmp_path):
    write_split(tmp_path / "split.json", (case.key for case in cases()), RULE)
    assert (tmp_path / "split.json").read_bytes() == SPLIT.read_bytes()
    write_split(tmp_path / "systems.json", machines(), SYSTEMS_RULE)
    assert (tmp_path / "systems.json").read_bytes() == SYSTEMS_SPLIT.read_bytes()
