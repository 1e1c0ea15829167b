"""The search for the best answers to the puzzles: what it tries."""

from experiments.puzzles import settings_of
from scaling.course.puzzles.puzzle import find


def test_every_mesh_is_tried_not_only_that_of_the_start() -> None:
    tried = [settings["mesh"] for settings in settings_of(find(8))]
    assert {"fsdp": 64} in tried and {"data": 8, "fsdp": 8} in tried
    assert len({tuple(sorted(mesh.items())) for mesh in tried}) > 100
