"""Rules of thumb by which people choose a mesh, as orders over configurations that fit.

A rule is a number of each configuration, the less the better: a plan follows the rule if nothing
that fits has less. So one function says what the rule alone would choose, whether a plan follows
it, and, with the best plan among those of least number, what following it would cost.

    NVIDIA      Narayanan et al. 2021, arXiv 2104.04473, takeaways 1 to 3
    GPipe       Huang et al. 2019, arXiv 1811.06965: the bubble is small from 4 x stages on
    selective   Korthikanti et al. 2022, arXiv 2205.05198: recompute only what does not fit
    guide       How to Scale Your Model, on training: FSDP until the batch is too small for it
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaling.program.ir import Number
from scaling.run import Run

DIGIT = 2.0**20  # of a number that orders by one thing first: more than axes have devices


@dataclass(frozen=True)
class Layout:
    """What rules look at: of one configuration, or arrays [configurations]."""

    tensor: Number
    stage: Number
    context: Number
    microbatches: Number
    zero_stage: Number
    recomputes: Number  # 0 nothing, 1 in part, 2 everything
    node: int  # devices of a node


@dataclass(frozen=True)
class Rule:
    """A rule of thumb; of `settings` it compares configurations of one mesh."""

    name: str
    source: str
    key: Callable[[Layout], Number]
    settings: bool = False


def _unfilled(x: Layout) -> Number:
    """1 for a pipeline of fewer microbatches than GPipe asks for."""
    return (x.microbatches < 4 * x.stage) & (x.stage > 1)


def _node_first(x: Layout) -> Number:
    """Devices of a copy of the model; of as many, tensor up to a node, then stages."""
    beyond = np.maximum(x.tensor - x.node, 0)
    return (x.tensor * x.stage * DIGIT + beyond) * DIGIT + x.stage


FEWEST = Rule("fewest tensor x stage", "NVIDIA, takeaway 2", lambda x: x.tensor * x.stage)
MEGATRON = Rule("tensor up to a node, then stages", "NVIDIA, takeaway 1", _node_first)
RULES = (
    FEWEST,
    MEGATRON,
    Rule("tensor inside a node", "NVIDIA, takeaway 1", lambda x: np.maximum(x.tensor, x.node)),
    Rule("sharded weights alone", "guide", lambda x: x.tensor * x.stage * x.context),
    Rule("4 microbatches a stage", "GPipe", _unfilled),
    Rule("largest microbatch", "NVIDIA, takeaway 3", lambda x: x.microbatches, settings=True),
    Rule("least recomputation", "selective", lambda x: x.recomputes, settings=True),
)  # fmt: skip


def layout_of(run: Run, node: int) -> Layout:
    """What rules see of a run, on nodes of so many devices."""
    assert run.mesh is not None
    mesh, recomputes = run.mesh, {"none": 0, "full": 2}.get(str(run.remat), 1)
    zero = run.sharding.zero_stage if mesh.fsdp > 1 else 0
    return Layout(
        *(mesh.tensor, mesh.stage, mesh.context, run.batch.microbatches, zero, recomputes, node)
    )
