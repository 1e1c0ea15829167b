"""A step over time: a row for each pipeline stage, its compute above its communication.

stage 0   compute        forward ... backward ... optimizer, pale where it has no work
          communication  all-gathers, permutes, ...
"""

from scaling.pictures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.rows import Bar, Row, shares
from scaling.pictures.shapes import Picture
from scaling.simulate.pipeline_bubble import stage_spans
from scaling.simulate.step import Priced

PHASES = {  # of compute, as the program calls them and as legends do
    "forward": "forward",
    "remat": "computed again",
    "backward": "backward",
    "optimizer": "optimizer",
    "": "other compute",
}
WORDS = {**PHASES, "bubble": "no work", "permute": "to the next device"}
COLOURS = {  # of what runs, in the order of the legend
    "forward": BLUE,
    "computed again": SKY,
    "backward": ORANGE,
    "optimizer": GREEN,
    "other compute": GREY,
    "no work": "#eeeeee",
    "communication": PURPLE,
    "to the next device": VERMILION,
}
LANES = {  # pixels of a lane, and below it; the share from which on a column of it is drawn
    "compute": (26.0, 2.0, 0.5),
    "communication": (7.0, 2.0, 0.0),
    "permute": (7.0, 10.0, 0.0),
}
MOST_STAGES = 32  # rows of more are too thin to be read: the first and last ones are drawn
WIDTH = 900.0  # pixels


def timeline(priced: Priced, title: str = "") -> Picture:
    """Return what every stage computes and sends over the time of a step.

    Args:
        priced: with its timeline recorded.
    """
    stages = stage_spans(priced)
    shown = list(range(len(stages)))
    if len(shown) > MOST_STAGES:
        shown = [*shown[: MOST_STAGES // 2], *shown[-MOST_STAGES // 2 :]]
    end = max((event.end for event in priced.timeline.events), default=1.0)
    rows: dict[str, Row] = {}
    for stage in shown:
        for lane, sizes in LANES.items():
            name = f"stage {stage}" if len(stages) > 1 else "every device"
            bars = [
                Bar(span.start, span.end, WORDS.get(span.what, "communication"))
                for span in stages[stage]
                if span.stream == lane
            ]
            rows[name if lane == "compute" else f"_{name} {lane}"] = Row(bars, *sizes)
    return shares(rows, COLOURS, end, title, WIDTH)
