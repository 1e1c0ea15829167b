"""The score of power: what it reads, and that nodes are within what the page says."""

from statistics import median

import pytest

from experiments.published.fit_power import trainings
from experiments.published.score_energy import node_lines, nodes, samples
from scaling.profiles.power import power_file


def test_samples_lie_on_the_references_and_between():
    assert samples(8) == pytest.approx(3072) and samples(128) == pytest.approx(11_136)
    assert samples(32) < samples(64) < samples(128)


def test_trainings_have_their_largest_limit_first():
    every = trainings()
    assert {"V100", "A40", "P100", "RTX6000"} == every.keys()
    assert all(rows[0][0] == max(limit for limit, *_ in rows) for rows in every["V100"])


@pytest.mark.slow
def test_hosts_are_as_shipped_and_nodes_within_an_eighth_in_the_median():
    shares = sorted(node.host for node in nodes())
    host = power_file().host
    shipped = host.low, host.value, host.high
    assert (shares[0], median(shares), shares[-1]) == pytest.approx(shipped, rel=0.05)
    assert "4 within 12 %" in "\n".join(node_lines())
