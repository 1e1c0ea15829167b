"""How configurations that others ran are ranked, beside how they were measured."""

from collections import defaultdict

from experiments.published.csv_rows import rows_of
from experiments.published.score_plans import SHOWN, WORDS
from experiments.published.training import FOLDER
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.shapes import Picture

CONFIGURATIONS = FOLDER.parent / "results" / "2026-11-28-plans" / "configurations.csv.gz"
SOURCE = "Ultra-Scale Playbook"


def ranks() -> Picture:
    """Predicted over measured rank of every run of the Playbook that ranks, constants left out."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of(CONFIGURATIONS):
        if row["model"] == SHOWN and row["measured"] and row["problem"].startswith(SOURCE):
            times = float(row["measured"]), float(row["predicted"])
            found[row["problem"], row["fabric"]].append(times)
    points = []
    for (_, fabric), every in sorted(found.items()):
        by_measured, by_predicted = (sorted(pair[i] for pair in every) for i in (0, 1))
        for one, other in every:
            rank = by_measured.index(one) + 1, by_predicted.index(other) + 1
            points.append(ScatterPoint(WORDS[fabric][2:], *rank))
    title = f"Rank in its problem of each run of the {SOURCE}"
    words = "measured: the fastest is 1", "predicted"
    return scatter(points, title, words, lambda rank: f"{rank:.0f}")
