"""How long steps took over what the figures of their chip say, with no constant of any software.

    python -m experiments.published.unfitted                                    a minute

Each run of `training_runs.jsonl` that may be fitted, of at least `LEAST` parameters (smaller steps
wait for their host), is priced with ideal constants: operations cost the host nothing, kernels
reach what the chip's profile says. Measured over priced time then has in it what the software
loses and what the profile promises too much. Medians are of a source on a chip. The same software
on two chips tells how well the profiles of both agree.
"""

from collections import defaultdict

import numpy as np

from experiments.published.fit_software import priced
from experiments.published.training import measured_runs, part_of
from scaling.models.accounting import count_parameters
from scaling.report.formatting import columns
from scaling.run import read_run

LEAST = 1e9  # parameters
IDEAL = {"launch": 0.0, "traffic": 1.0, "products": 1.0, "attention": 1.0}


def ratios(*chips: str) -> dict[tuple[str, str], np.ndarray]:
    """Measured over priced times by (source, chip); of these chips, of all if none is given."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in measured_runs():
        if (
            part_of(row) == "fit"
            and count_parameters(read_run(row.run, row.id).model).total >= LEAST
        ):
            step = priced(row, IDEAL)
            chip = step.cluster.accelerator.name
            if chip in chips or not chips:
                found[row.source, chip].append(row.step_time / float(step.timeline.total))
    return {key: np.array(own) for key, own in sorted(found.items())}


def main() -> None:
    """Print a line for each source and chip."""
    head = ("source", "chip", "n", "median", "5 %", "95 %")
    rows = [
        (*key, str(len(own)), *(f"{x:.2f}" for x in np.quantile(own, [0.5, 0.05, 0.95])))
        for key, own in ratios().items()
    ]
    print("\n".join(columns([head, *rows], left=(0, 1))))


if __name__ == "__main__":
    main()
