"""The frozen model of `train.loss` (`scaling.run.reference`) in closed form: sizes and transfers.

It runs forward in each microbatch: a third of what a step of a model like it multiplies. DPO makes
the logits of the trained model once more.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from scaling.analytic.step import StepSizes, Transfer, step_sizes
from scaling.run.reference import reference_run

PLACE = "reference"  # where its transfers are due, in place of "forward"
AGAIN = "forward head weights", "forward head", "forward loss"  # of the trained model in DPO


def reference_step(step: StepSizes) -> StepSizes | None:
    """The sizes of the frozen model beside a step; None where there is none."""
    if step.run.train.loss is None:
        return None
    run, precision = reference_run(step.run), step.run.precision
    assert run is not None
    run = replace(run, precision=replace(precision, parameters=precision.frozen))
    grid = replace(step.grid, remat=0 * step.grid.remat, zero_stage=3 + 0 * step.grid.zero_stage)
    return step_sizes(run, step.shape, grid, step.traits, step.flash, step.node, step.grouped)


def reference_transfers(
    step: StepSizes, every: Callable[[StepSizes], Iterable[Transfer]]
) -> Iterator[Transfer]:
    """Its transfers; `every` gives those of a whole step."""
    frozen = reference_step(step)
    lines = () if frozen is None else every(frozen)
    yield from (
        replace(t, place=f"{PLACE} {t.place}") for t in lines if t.place.startswith("forward")
    )
    if step.run.train.pairs:
        own = every(replace(step, run=replace(step.run, train=replace(step.run.train, loss=None))))
        yield from (replace(t, place=f"{PLACE} own {t.place}") for t in own if t.place in AGAIN)
