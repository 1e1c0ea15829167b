"""The measured rows of the source documents, priced by the commands that their pages show."""

import pytest

from experiments.plans.measured import bridged, cards, qwen


@pytest.fixture(scope="module")
def steps():
    return {row.title: float(row.predicted().step_time) for row in cards()}


def test_cards_that_wait_for_pcie_are_predicted_within_a_half(steps):
    """The errors that the page shows; the PCIe links were fitted on four of these rows."""
    for row in cards():
        assert 0.66 < steps[row.title] / row.measured < 1.5, row.title


def test_uneven_shards_are_priced(steps):
    """1,024 rows on 20 cards; two nodes of ten take longer than one."""
    for name in ("DDP", "ZeRO-2"):
        assert steps[f"20 x RTX 3090, {name}"] > steps[f"10 x RTX 3090, {name}"]


def test_a_bridge_pays():
    without, with_bridge = (row.predicted() for row in bridged())
    assert with_bridge.step_time < 0.7 * without.step_time


def test_p5e_is_faster_by_less_than_its_peak():
    old, new = list(qwen())[:2]
    assert 1.2 < old.predicted().step_time / new.predicted().step_time < 3.17
