"""Fit what a product loses beside an all-gather, and leave every machine out in turn.

    python -m experiments.published.fit_overlap                                 seconds

`kernels/overlap.csv.gz` (Dazz993/Mist @ d69e530) has a product, an all-gather and copies to and
from the host, each alone and all begun at once. A mixture is priced from its parts alone:

    product beside the all-gather     1 - (`cores` + share of the memory bandwidth) of its rate
    all-gather, copies                as alone; copies one after the other on one stream

(`scaling.profiles.profile.InterferenceFit`), by the schedule of a step. `cores` is fitted on pairs
of a product and an all-gather, all other figures are datasheets'. Least mean of log errors. Columns
`before` have one loss for all collectives, 0.189/1.189 (arXiv 2507.03114), `none` no loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from experiments.published.csv_rows import rows_of
from experiments.published.training import FOLDER
from scaling.collectives.algorithms import memory_passes
from scaling.meshes import catalog
from scaling.profiles.io import INTERFERENCE
from scaling.profiles.profile import InterferenceFit
from scaling.program.ir import Collective, Kernel, Program, Wait
from scaling.report.formatting import columns
from scaling.simulate.timeline import run_schedule

TABLE = FOLDER / "kernels/overlap.csv.gz"
SIZES = ("gemm_n", "allgather_total_MiB", "host_to_device_MiB", "device_to_host_MiB")
PARTS = ("product", "gather", "to device", "to host")
PAIR = (True, True, False, False)
CHIPS = {"a100-sxm4-40gb": "a100-sxm-40g", "v100-sxm2-16gb": "v100-sxm-16g"}
BEFORE = InterferenceFit(0.189 / 1.189, 0.189 / 1.189, INTERFERENCE.evidence)
BALANCED = 1.5  # the longer of a pair over the shorter, at most
MIB = 2**20
SCHEDULE = (
    Collective("gather"),
    Kernel("to device", asynchronous=True),
    Kernel("to host", asynchronous=True),
    Kernel("product"),
    *(Wait(name) for name in PARTS[1:]),
)


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of parts; arrays [mixtures]."""

    machine: np.ndarray  # "a100-sxm-40g 8 in 1 node"
    alone: np.ndarray  # s of each of PARTS, float [parts, mixtures]; 0: absent
    share: np.ndarray  # of the memory bandwidth that the all-gather takes
    seconds: np.ndarray  # of all together

    def __getitem__(self, which: np.ndarray) -> "Mixtures":
        """The mixtures that a mask selects."""
        return Mixtures(
            self.machine[which], self.alone[:, which], self.share[which], self.seconds[which]
        )

    @property
    def crosses(self) -> np.ndarray:
        """True where the all-gather is between nodes, bool [mixtures]."""
        return ~np.char.endswith(self.machine, " 1 node")


def mixtures() -> Mixtures:
    """The mixtures of two parts and more whose parts were all timed alone."""
    rows = rows_of(TABLE)
    number = lambda key: np.array([float(row[key] or 0) for row in rows])
    sizes, seconds = np.array([number(key) for key in SIZES]), number("time_ms") / 1e3
    ranks = (number("group_gpus_in_node") * number("group_nodes")).astype(int)
    chips = [CHIPS[row["gpu"]] for row in rows]
    nodes = [int(row["group_nodes"]) for row in rows]
    machine = np.array(
        [
            f"{chip}, groups of {n}, {k} node{'s' * (k > 1)}"
            for chip, n, k in zip(chips, ranks, nodes, strict=True)
        ]
    )
    known = {
        (machine[i], *sizes[:, i]): seconds[i] for i in np.flatnonzero((sizes > 0).sum(0) == 1)
    }
    only = lambda i, part: (machine[i], *np.where(np.arange(len(SIZES)) == part, sizes[:, i], 0.0))
    alone = np.array(
        [
            [known.get(only(i, part), np.nan) if sizes[part, i] else 0.0 for i in range(len(rows))]
            for part in range(len(SIZES))
        ]
    )
    of = {chip: catalog.accelerator(chip).required("memory_bandwidth") for chip in set(chips)}
    moved = memory_passes("all-gather", ranks) * sizes[1] * MIB
    bandwidth = np.array([of[chip] for chip in chips])
    share = moved / np.where(alone[1] > 0, alone[1], np.inf) / bandwidth
    found = Mixtures(machine, alone, share, seconds)
    return found[((sizes > 0).sum(0) > 1) & ~np.isnan(alone).any(0)]


def predicted(of: Mixtures, fit: InterferenceFit | None, held_up: float = 0.0) -> np.ndarray:
    """Seconds of each mixture; None: nothing is lost."""
    times = dict(zip(PARTS, of.alone, strict=True))
    program = Program("mixture", "analytic", {}, SCHEDULE)
    lost = {"gather": fit.lost(of.share)} if fit else {}
    line = run_schedule(program, times, lost=lost, held_up=held_up, named=False)
    return np.asarray(line.total)


def inside(of: Mixtures) -> float:
    """Share of the mixtures that lie between the ends of the range (`simulate.uncertainty`)."""
    worst = replace(INTERFERENCE, cores=INTERFERENCE.most)
    low, high = predicted(of, None), predicted(of, worst, worst.held_up)
    return float(np.mean((low <= of.seconds) & (of.seconds <= high)))


def log_errors(of: Mixtures, fit: InterferenceFit | None) -> np.ndarray:
    """log(predicted / measured) of each mixture."""
    return np.log(predicted(of, fit) / of.seconds)


def fitted(pairs: Mixtures) -> InterferenceFit:
    """The loss that fits pairs best, and the largest beside a collective inside of a node."""
    error = lambda cores: np.mean(np.abs(log_errors(pairs, replace(INTERFERENCE, cores=cores))))
    cores = minimize_scalar(error, bounds=(0.0, 0.2), method="bounded").x
    product, gather = pairs.alone[:2]
    is_last = ~pairs.crosses & (product > gather)
    most = np.max((pairs.seconds - product)[is_last] / gather[is_last])
    return replace(INTERFERENCE, cores=round(float(cores), 3), most=round(float(most), 2))


def pairs_of(found: Mixtures) -> Mixtures:
    """A product beside an all-gather and nothing else."""
    return found[((found.alone > 0) == np.array(PAIR)[:, None]).all(0)]


def left_out(pairs: Mixtures, groups: Sequence[str]) -> Iterator[tuple[str, np.ndarray, float]]:
    """Each group of machines by what their names begin with: log errors, `cores` without them."""
    for name in groups:
        own = np.char.startswith(pairs.machine, name)
        fit = replace(INTERFERENCE, cores=fitted(pairs[~own]).cores)
        yield name, log_errors(pairs[own], fit), fit.cores


def pair_table(pairs: Mixtures) -> str:
    """The errors of machines, and of all machines with a chip, that were left out."""
    machines = list(dict.fromkeys(pairs.machine))
    rows: list[tuple[str, ...]] = [
        ("left out", "cores", "n", *STATISTICS, "balanced", "before", "balanced", "none")
    ]
    for name, errors, cores in left_out(pairs, machines + list(CHIPS.values())):
        own = pairs[np.char.startswith(pairs.machine, name)]
        even = np.abs(np.log(own.alone[0] / own.alone[1])) < np.log(BALANCED)
        before, none = (log_errors(own, fit) for fit in (BEFORE, None))
        typical = (median(errors[even]), median(before), median(before[even]), median(none))
        found = *statistics(errors), percent(inside(own))
        rows.append((name, f"{cores:.3f}", str(len(errors)), *found, *map(percent, typical)))
    return "\n".join(columns(rows))


STATISTICS = ("median", "bias", "worst", "90 %", "in range")


def statistics(errors: np.ndarray) -> tuple[str, ...]:
    """Median, bias, worst and 90 % quantile of log errors, as relative errors in words."""
    worst = errors[np.argmax(np.abs(errors))]
    return (
        *map(percent, (median(errors), np.expm1(np.median(errors)), np.expm1(worst))),
        percent(np.quantile(np.abs(errors), 0.9)),
    )


def median(errors: np.ndarray) -> float:
    """The median size of log errors, as a relative error; nan of none."""
    return float(np.expm1(np.median(np.abs(errors)))) if len(errors) else np.nan


def percent(value: float) -> str:
    """0.0123 as "1.2%"."""
    return f"{100 * value:.1f}%"


def mixture_table(found: Mixtures, fit: InterferenceFit) -> str:
    """The errors of all mixtures, by chip and by what is in them."""
    rows: list[tuple[str, ...]] = [("chip", "mixture", "n", *STATISTICS)]
    here = found.alone > 0
    for chip in CHIPS.values():
        for present in np.unique(here.T, axis=0)[::-1]:
            own = np.char.startswith(found.machine, chip) & (here == present[:, None]).all(0)
            names = ", ".join(np.array(PARTS)[present])
            errors = log_errors(found[own], fit)
            row = chip, names, str(len(errors)), *statistics(errors), percent(inside(found[own]))
            rows.append(row)
    return "\n".join(columns(rows, left=(0, 1)))


def main() -> None:
    """Print the fit, what it would be without each machine, and the errors of all mixtures."""
    found = mixtures()
    pairs = pairs_of(found)
    fit = fitted(pairs)
    machines = list(dict.fromkeys(pairs.machine))
    errors = np.concatenate([errors for _, errors, _ in left_out(pairs, machines)])
    print(pair_table(pairs), "", mixture_table(found, fit), sep="\n")
    print(
        f"\ncores {fit.cores}, most {fit.most}, {len(errors)} pairs; machines left out: median "
        f"{median(errors):.3f}, 90 % {np.quantile(np.abs(errors), 0.9):.3f}"
    )


if __name__ == "__main__":
    main()
