"""How far bandwidths that were measured carry: on collectives that were published, and left out.

    sizes    every second size of a sweep is given, the others are priced
    largest  the largest call alone is given
    kinds    the sweep of one kind is given, the other kinds are priced
    nodes    of the Playbook's jobs: bus bandwidths on fewer nodes are given, the most nodes priced

    python -m experiments.published.score_measured

Beside each stands the error of the fits alone, which know the systems. Half ranges of
`scaling.collectives.network` are 90 % quantiles: `sizes` of the systems that may be fitted, and
`kinds` of the Playbook's jobs on the network that was sick; all others score.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import mean, median

import numpy as np

from experiments.published.collectives import Case, _kind, cases, system_cases
from experiments.published.split import part_of_key
from experiments.published.sweeps import NODE, playbook
from scaling.collectives.algorithms import bus_factor
from scaling.collectives.cost import collective_time, with_timed_calls
from scaling.meshes import catalog
from scaling.meshes.bandwidths import MeasuredCall
from scaling.profiles.grades import half_range
from scaling.profiles.io import profile_of
from scaling.report.formatting import columns

BUFFER = 2**30  # bytes; the Playbook does not state those of its bandwidths
Row = tuple[str, str, float, float, float]  # test, part, errors with and without, half range


def sweeps() -> Iterator[tuple[str, list[list[Case]]]]:
    """Machines, and the sweeps of each over sizes of one group of all ranks."""
    machines: dict[str, dict[object, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in (*cases(), *system_cases()):
        if case.groups == 1 and case.algorithm == "auto":
            machines[case.machine][case.series].append(case)
    for machine, series in machines.items():
        yield machine, [sorted(one, key=lambda c: c.bytes) for one in series.values()]


def call_of(case: Case) -> MeasuredCall:
    """A published measurement as what somebody measured in a job."""
    nodes = case.ranks // case.ranks_per_node
    return MeasuredCall(case.kind, case.ranks, case.bytes, nodes=nodes, seconds=case.time)


def errors(given: Sequence[Case], asked: Sequence[Case]) -> Iterator[tuple[float, float, float]]:
    """Errors with and without what is given, in the size of their logarithm, and half ranges."""
    first = asked[0]
    place = catalog.load(first.cluster, first.nodes, dict(first.overrides))
    fits = profile_of(place.accelerator)
    timed = with_timed_calls(fits, place, [call_of(case) for case in given])
    nodes = np.arange(first.ranks // first.ranks_per_node)[:, None] * place.devices_per_node
    group = (nodes + np.arange(first.ranks_per_node)).reshape(1, -1)
    for case in asked:
        costs = [collective_time(case.kind, case.bytes, group, place, p) for p in (timed, fits)]
        evidence = costs[0].evidence
        assert evidence is not None
        half = half_range(evidence, evidence.grade)
        with_, without = (abs(float(np.log(cost.time / case.time))) for cost in costs)
        yield with_, without, half


def rows() -> Iterator[Row]:
    """Every price of every test."""
    for machine, series in sweeps():
        part = part_of_key(machine)
        for one in series:
            if len(one) > 3:
                yield from (("sizes", part, *e) for e in errors(one[::2], one[1::2]))
                yield from (("largest", part, *e) for e in errors(one[-1:], one[:-1]))
            for other in series:
                alike = (one[0].nodes, one[0].ranks) == (other[0].nodes, other[0].ranks)
                if alike and one[0].kind != other[0].kind and len(one) > 3:
                    yield from (("kinds", part, *e) for e in errors(one, other))
    for fabric in ("good", "slow"):
        of_kind = jobs(fabric)
        for kind, calls in of_kind.items():
            yield from ((f"nodes, {fabric}", "jobs", *e) for e in errors(calls[:-1], calls[-1:]))
            for given in (calls for other, calls in of_kind.items() if other != kind):
                for call in calls:
                    yield from ((f"kinds, {fabric}", "jobs", *e) for e in errors(given, [call]))


def jobs(fabric: str) -> dict[str, list[Case]]:
    """Calls by their kind over more and more nodes: the medians of the Playbook's jobs."""
    rates = defaultdict(list)
    for row in playbook():
        for bus in row.buses:
            if row.fabric == fabric and bus.ranks == row.gpus > NODE:
                rates[bus.collective, bus.ranks].append(bus.bandwidth)
    found = defaultdict(list)
    for (kind, ranks), each in sorted(rates.items()):
        seconds = BUFFER * bus_factor(_kind(kind), ranks) / median(each)
        place = ("p5", ranks // NODE, ranks, NODE)
        case = Case(fabric, _kind(kind), BUFFER, seconds, *place, 1, "auto", (), "Playbook")
        found[kind].append(case)
    return found


def table(every: Sequence[Row]) -> list[str]:
    """A line for each test and part."""
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for test, part, *errors_ in every:
        found[test, part].append(errors_)
    head = ["given", "systems", "n", "median", "mean", "90 %", "worst", "in range"]
    lines = [[*head, "fits alone: median", "90 %"]]
    for (test, part), figures in sorted(found.items()):
        logs, alone, half = np.array(figures).T
        inside, with_, without = np.mean(logs <= np.log1p(half)), np.expm1(logs), np.expm1(alone)
        high = np.quantile(with_, 0.9), with_.max(), inside
        shares = (median(with_), mean(with_), *high, median(without), np.quantile(without, 0.9))
        lines.append([test, part, str(len(figures)), *(f"{share:.1%}" for share in shares)])
    return list(columns(lines, left=(0, 1)))


if __name__ == "__main__":
    print("\n".join(table(list(rows()))))
