"""How fast `scaling plan` goes through configurations: a search against single predictions.

    plan     CPU seconds of 1,000 configurations by `predict --source analytic`, one at a time
             / of as many that a search prices

    python -m experiments.bench --only plan

The searches have their cluster and profile at hand and end with the ten best meshes; what their
bounds leave out is not counted, though it takes time.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

import scaling as sc
from experiments.ratios import Ratio, compare
from scaling.meshes import catalog
from scaling.planning.search import PlanTarget, search
from scaling.planning.space import all_choices
from scaling.profiles.io import profile_of
from scaling.run.recipes import recipe

NAME, GPUS = "dgx-h100", 8  # of a node
CASES = tuple((name, nodes) for nodes in (8, 128) for name in ("llama3-8b", "mixtral-8x7b"))
COUNT = 1_000
SINGLES = 20  # predictions of a round, of configurations far apart


def plan_time(rounds: int) -> Iterator[Ratio]:
    """Configurations predicted one by one against those of a search."""
    for name, nodes in CASES:
        yield _of_search(name, nodes, rounds)


def _of_search(name: str, nodes: int, rounds: int) -> Ratio:
    run, cluster = replace(recipe(name), mesh=None), catalog.load(NAME, nodes)
    profile = profile_of(cluster.accelerator)
    runnable = [each for each in all_choices(run, cluster.devices) if not each.refusal]
    singles = cycle(runnable[:: max(1, len(runnable) // SINGLES)])

    def searched() -> float:
        target = PlanTarget(run, cluster, profile, lambda seconds, devices: seconds)
        start = time.process_time()
        found = search([(target, all_choices(run, cluster.devices))], 10)
        return (time.process_time() - start) / found.priced * COUNT

    def predicted() -> float:
        runs = [next(singles).run(run, 0) for _ in range(SINGLES)]
        start = time.process_time()
        for one in runs:
            sc.predict(one, cluster, source="analytic")
        return (time.process_time() - start) / SINGLES * COUNT

    what = f"{name} on {nodes * GPUS:,} GPUs, {COUNT:,} one at a time / priced by a search"
    return compare(f"plan {name} {nodes * GPUS}", what, predicted, searched, rounds)
