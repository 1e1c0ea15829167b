"""How fast `scaling plan` goes through configurations: a search against single predictions.

    certified  CPU seconds of 1,000 configurations by `predict --source analytic`, one at a time
               / of as many of a space that a search ends with
    priced     the same / of as many that are priced side by side, none left out by a bound

    python -m experiments.bench --only plan

The searches have their cluster and profile at hand and end with the ten best meshes. Each line says
configurations a second as well, beside those of Calculon's search.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle

import scaling as sc
from experiments.ratios import Ratio, compare
from scaling.meshes import catalog
from scaling.planning import space
from scaling.planning.search import Search, search
from scaling.planning.space import all_choices, batched
from scaling.planning.target import PlanTarget
from scaling.profiles.io import profile_of
from scaling.run.recipes import recipe
from scaling.simulate.batch import timeline_of

NAME, GPUS = "dgx-h100", 8  # of a node
CASES = (("llama3-8b", 8), ("llama3-405b", 2048), ("mixtral-8x7b", 128))  # nodes
BAND = range(256, 1409, 128)  # sequences of the second: 10^6 configurations in one search
COUNT = 1_000
SINGLES = 20  # predictions of a round, of configurations far apart
BATCHES = 4  # of configurations side by side, of those that are priced in a round
# Configurations a second of Calculon's search of GPT-3 175B (calculon-ai/calculon, caa4b11) with
# two processes on two cores, those that cannot run included; measured by this project.
CALCULON = 265


def plan_time(rounds: int) -> Iterator[Ratio]:
    """Configurations predicted one by one against those of a search, and those side by side."""
    for name, nodes in CASES:
        yield from _of_space(name, nodes, rounds)
    yield from _of_space(*CASES[1], 1, BAND)


def _of_space(name: str, nodes: int, rounds: int, sequences: Sequence[int] = ()) -> Iterator[Ratio]:
    run, cluster = replace(recipe(name), mesh=None), catalog.load(NAME, nodes)
    profile = profile_of(cluster.accelerator)
    judged = lambda batch: lambda seconds, devices: seconds / batch.global_batch
    new_target = lambda own=run: PlanTarget(own, cluster, profile, judged(own.batch))
    runs = [replace(run, batch=replace(run.batch, global_batch=n)) for n in sequences] or [run]
    runnable = list(Search(1).runnable(new_target(), all_choices(run, cluster.devices)))
    singles = cycle(runnable[:: max(1, len(runnable) // SINGLES)])

    def predicted() -> int:
        for one in [next(singles).run(run, 0) for _ in range(SINGLES)]:
            sc.predict(one, cluster, source="analytic")
        return SINGLES

    def certified() -> int:
        for kept in (space._in_order, space._meshes):
            kept.cache_clear()  # as in a command
        spaces = [(new_target(own), all_choices(own, cluster.devices)) for own in runs]
        return search(spaces, 10).space

    def priced() -> int:
        target = new_target()
        batches = list(batched(run, runnable))[:BATCHES]
        for choices in batches:
            timeline_of(target.program(choices), target.prices)
        return sum(choices.count for choices in batches)

    for what, ours in (("certified", certified), ("priced", priced))[: 1 if sequences else 2]:
        title = f"plan {name} {nodes * GPUS} {what}" + " band" * bool(sequences)
        found = compare(title, "", _timed(predicted), _timed(ours), rounds)
        rate = f"{COUNT / found.baseline:,.0f} {what}/s, Calculon {CALCULON} configurations/s"
        yield replace(found, what=f"{COUNT:,} one at a time / of a search: {rate}")


def _timed(call: Callable[[], int]) -> Callable[[], float]:
    """CPU seconds of COUNT configurations, of a call that goes through some."""

    def seconds() -> float:
        start = time.process_time()
        count = call()
        return (time.process_time() - start) / count * COUNT

    return seconds
