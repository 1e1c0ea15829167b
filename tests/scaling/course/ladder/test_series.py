"""Measured series of lessons are rows of the published runs, and are priced as those are."""

import pytest

from experiments.published.training import measured_runs, part_of
from scaling.course.ladder.measured import measured_series


@pytest.mark.parametrize("name", ["tensor in a node", "microbatches of a pipeline"])
def test_a_series_is_of_published_runs(name):
    rows = measured_runs()
    for point in measured_series(name).points:
        run = point.asked["run"]
        vocabulary = point.asked["set"].get("model.vocab_size")
        model = {**run["model"], **({"vocab_size": vocabulary} if vocabulary else {})}
        batch = {**run["batch"], "microbatches": point.microbatches}
        found = [row for row in rows if row.run["model"] == model]
        found = [row for row in found if row.run["batch"] == batch]
        mesh = dict(part.split("=") for part in point.asked["mesh"].split(","))
        found = [row for row in found if {k: str(v) for k, v in row.run["mesh"].items()} == mesh]
        assert sorted(row.step_time for row in found) == sorted(point.seconds)
        assert {part_of(row) == "fit" for row in found} == {point.fitted}
        for same in ("sharding", "precision", "remat", "attention", "software"):
            assert all(row.run[same] == run[same] for row in found)
