"""Results of `experiments.host_check`: errors, spreads, the table, and the files that keep them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from experiments.gpu.machine import git_commit
from scaling.profiles.io import write_profile
from scaling.profiles.machine import machine, versions
from scaling.profiles.profile import Profile
from scaling.report.formatting import columns

SCHEMA = 1  # of the results file; a key that goes or changes its meaning makes it 2
GOAL, SPREADS = 0.10, 2.0  # mean absolute error; or so many spreads


@dataclass(frozen=True)
class Result:
    """One case. Seconds."""

    name: str
    run: dict[str, Any]
    parameters: int
    predicted: float
    parts: dict[str, float]  # of the predicted step
    naive: float
    measured: tuple[float, ...]  # a step, one for every repeat
    steps: int  # in a window

    @property
    def typical(self) -> float:
        """Median over the repeats."""
        return median(self.measured)

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, _, high = quantiles(self.measured, n=4, method="inclusive")
        return (high - low) / self.typical

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.typical - 1

    @property
    def naive_error(self) -> float:
        """Relative error of the naive figure."""
        return self.naive / self.typical - 1


def summary(results: Sequence[Result]) -> dict[str, float]:
    """Absolute errors over all cases, and the goal."""
    errors = [abs(result.error) for result in results]
    naive = [abs(result.naive_error) for result in results]
    spread = mean(result.spread for result in results)
    return {
        "mean_error": mean(errors),
        "median_error": median(errors),
        "worst_error": max(errors),
        "mean_naive_error": mean(naive),
        "median_naive_error": median(naive),
        "worst_naive_error": max(naive),
        "mean_spread": spread,
        "goal": max(GOAL, SPREADS * spread),
    }


def table(results: Iterable[Result]) -> list[str]:
    """One line per case."""
    head = ("case", "parameters", "predicted", "measured", "spread", "error", "naive")
    rows = [
        (
            r.name,
            f"{r.parameters / 1e6:.1f} M",
            f"{1e3 * r.predicted:.0f} ms",
            f"{1e3 * r.typical:.0f} ms",
            f"{r.spread:.1%}",
            f"{r.error:+.1%}",
            f"{r.naive_error:+.1%}",
        )
        for r in results
    ]
    return columns([head, *rows])


def verdict(figures: dict[str, float]) -> str:
    """The summary in words."""
    reached = "reached" if figures["mean_error"] <= figures["goal"] else "missed"
    return (
        f"absolute error: mean {figures['mean_error']:.1%}, median {figures['median_error']:.1%}, "
        f"worst {figures['worst_error']:.1%}; naive (FLOPs over the matmul rate): mean "
        f"{figures['mean_naive_error']:.1%}, median {figures['median_naive_error']:.1%}, worst "
        f"{figures['worst_naive_error']:.1%}. Mean spread of the repeats "
        f"{figures['mean_spread']:.1%}. Goal: mean below {figures['goal']:.1%}: {reached}."
    )


def save(results: Sequence[Result], profile: Profile, folder: Path, other_load: str) -> None:
    """Raw data, calibration and a table."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA,
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "commit": git_commit(),
        "other_load": other_load,
        "summary": summary(results),
        "results": [
            {**asdict(r), "error": r.error, "naive_error": r.naive_error, "spread": r.spread}
            for r in results
        ],
    }
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    write_profile(profile, folder / "calibration.json")
    (folder / "README.md").write_text(page(results, document), encoding="utf-8")


def page(results: Sequence[Result], document: dict[str, Any]) -> str:
    """The README of the results folder."""
    packages = ", ".join(f"{name} {found}" for name, found in document["versions"].items())
    disturbed = f" Disturbed: {document['other_load']}." if document["other_load"] else ""
    lines = [
        "# Predicted and measured steps on this machine's CPU",
        "",
        f"{document['date']}, {document['machine']}, {packages}, commit {document['commit']}."
        f"{disturbed}",
        "",
        "Made by `python -m experiments.host_check`: first calibrated (`calibration.json`),",
        "then all cases predicted, then measured. No case is among the models that were calibrated",
        "with. Layers x width, sequences x tokens; `naive`: error of FLOPs over the matmul rate.",
        "",
        "```",
        *table(results),
        "```",
        "",
        verdict(document["summary"]),
    ]
    return "\n".join(lines) + "\n"
