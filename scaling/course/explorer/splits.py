"""The first picture: one model on one cluster, split in several ways."""

from collections.abc import Mapping
from typing import Any

from scaling.api.predict import predict
from scaling.course.explorer.programs import programs
from scaling.course.explorer.request import by_key
from scaling.course.language import svg_said
from scaling.meshes.errors import check_keys
from scaling.pictures.bars import step_bars
from scaling.pictures.svg import svg_text


def splits(given: Mapping[str, Any]) -> dict[str, str]:
    """Return name and picture of the explorer's first family: a bar for each step, as built."""
    check_keys(given, (), "splits")
    count = lambda group: sum(len(family["stops"]) for family in group["families"])
    family = max(programs({}), key=count)["families"][0]
    steps = {s["label"]: predict(**by_key()[s["key"]].arguments) for s in family["stops"]}
    return {"name": family["name"], "svg": svg_said(svg_text(step_bars(steps)))}
