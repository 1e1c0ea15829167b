"""Rules of thumb by which people choose a mesh, as orders over configurations that fit.

A rule is a number of each configuration, the less the better: a plan follows the rule if nothing
that fits has less. So one function says what the rule alone would choose, whether a plan follows
it, and, with the best plan among those of least number, what following it would cost.

    NVIDIA      Narayanan et al. 2021, arXiv 2104.04473, takeaways 1 to 3
    GPipe       Huang et al. 2019, arXiv 1811.06965: the bubble is small from 4 x stages on
    selective   Korthikanti et al. 2022, arXiv 2205.05198: recompute only what does not fit
    guide       How to Scale Your Model, on training: FSDP until the batch is too small for it
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from scaling.analytic.step import policies
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import Remat
from scaling.planning.result import RuleOfThumb
from scaling.planning.search import SearchHit, search, words_of
from scaling.planning.space import Choices
from scaling.program.ir import Number
from scaling.run import Run
from scaling.run.parallelism.rules import weight_shards, zero_stage

SOME = 1  # what remat computes again: neither nothing nor everything
DIGIT = 2.0**20  # of a number that orders by one thing first: more than axes have devices


@dataclass(frozen=True)
class Layout:
    """What rules look at: of one configuration, or arrays [configurations]."""

    mesh: MeshShape
    node: int  # devices of a node
    microbatches: Number
    zero_stage: Number
    recomputes: Number  # 0 nothing, 1 in part, 2 everything


@dataclass(frozen=True)
class Rule:
    """A rule of thumb; one of `settings` compares configurations of one mesh."""

    name: str
    source: str
    key: Callable[[Layout], Number]
    settings: bool = False


def _unfilled(x: Layout) -> Number:
    """1 for a pipeline of fewer microbatches than GPipe asks for."""
    return (x.mesh.stage > 1) * np.less(x.microbatches, 4 * x.mesh.stage)


def _node_first(x: Layout) -> Number:
    """Devices of a copy of the model; of as many, tensor up to a node, then stages."""
    beyond = max(x.mesh.tensor - x.node, 0)
    return (_copy(x) * DIGIT + beyond) * DIGIT + x.mesh.stage


def _copy(x: Layout) -> Number:
    return x.mesh.tensor * x.mesh.stage


def _unsharded(x: Layout) -> Number:
    """Devices that do not share the weights of all layers."""
    return x.mesh.devices / x.mesh.fsdp + np.less(x.zero_stage, 3) / 2


FEWEST = Rule("fewest tensor x stage", "NVIDIA, takeaway 2", _copy)
MEGATRON = Rule("tensor up to a node, then stages", "NVIDIA, takeaway 1", _node_first)
RULES = (
    FEWEST,
    MEGATRON,
    Rule("tensor inside a node", "NVIDIA, takeaway 1", lambda x: max(x.mesh.tensor, x.node)),
    Rule("fsdp alone, as far as it fits", "guide", _unsharded),
    Rule("4 microbatches a stage", "GPipe", _unfilled),
    Rule("largest microbatch that fits", "NVIDIA, takeaway 3", lambda x: x.microbatches, True),
    Rule("least recomputation that fits", "selective", lambda x: x.recomputes, True),
)


def layout_of(run: Run, node: int) -> Layout:
    """What rules see of a run, on nodes of so many devices."""
    assert run.mesh is not None
    zero = zero_stage(run, run.mesh) if weight_shards(run, run.mesh) > 1 else 0
    again = recomputed(run.remat) if run.pipeline.remat_layers is None else SOME
    return Layout(run.mesh, node, run.batch.microbatches, zero, again)


def recomputed(remat: Remat) -> int:
    """0 if nothing is computed again, 2 if everything is, else 1."""
    return {"none": 0, "full": 2}.get(str(remat), SOME)


def judged(
    hit: SearchHit, every: Iterable[Choices], seconds: float | None = None
) -> Iterator[tuple[RuleOfThumb, SearchHit | None]]:
    """Which rules the best configuration follows among all of its space, and what breaking saves.

    The plan of a broken rule, given beside it, is the best of those that follow it; after so many
    seconds in all, the best of a first wave of them, which costs at most that.
    """
    stop = None if seconds is None else time.monotonic() + seconds
    node, spaces = hit.cluster.devices_per_node, [each for each in every if not each.refusal]
    again = np.array([recomputed(remat) for remat in policies(hit.target.run)])

    def keys(rule: Rule, of: Choices) -> np.ndarray:
        some = np.isfinite(of.grid.again)
        remats = np.where(some, SOME, again[np.asarray(of.grid.remat)])
        settings = of.grid.microbatches, of.grid.zero_stage, remats
        return np.broadcast_to(rule.key(Layout(of.mesh, node, *settings)), (of.count,))

    for rule in RULES:
        own = [c for c in spaces if not rule.settings or c.mesh.sizes == hit.choices.mesh.sizes]
        table = [(each, keys(rule, each)) for each in own]
        mine = keys(rule, hit.choices)[hit.index]
        verdict, best = RuleOfThumb(rule.name, rule.source, True), None
        for key in sorted({k for _, row in table for k in row.tolist() if k < mine}):
            some = [each.only(row == key) for each, row in table if key in row]
            left = None if stop is None else max(stop - time.monotonic(), 0.0)
            found = search([(hit.target, some)], 1, left)
            if found.best:
                best = found.best[0]
                cost, at_most = best.value / hit.value - 1, found.least_left < best.value
                words = words_of(best.run)
                verdict = RuleOfThumb(rule.name, rule.source, False, cost, words, at_most)
                break
        yield verdict, best
