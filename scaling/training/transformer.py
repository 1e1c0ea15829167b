"""Our own runs as a `Training`: the Transformer's state, its compiled step, batches of a source."""

import statistics
from pathlib import Path

from scaling.models.transformer import Transformer
from scaling.training.data.batches import TrainingBatches, held_out_batches
from scaling.training.data.tokens import parts_of
from scaling.training.optim.trained import joined
from scaling.training.prepare import (
    PreparedRun,
    Programs,
    initial_state,
    own_rows,
    place_tokens,
    rows_of_batch,
)
from scaling.training.protocol import Training
from scaling.training.step import TrainState
from scaling.training.weights.naming import reorder_layers


def training_of(plan: PreparedRun, programs: Programs, weights: Path | None = None) -> Training:
    """The run as what the loop trains, from its first batch on.

    Args:
        weights: safetensors files that the first step begins with; None: random parameters.
    """
    run, (size, own) = plan.run, rows_of_data(plan, programs)
    return Training(
        state=programs.state,
        step=programs.run_step,
        data=TrainingBatches(plan.source, size, run.train.seed, own),
        init=lambda: initial_state(plan, programs, weights),
        place=lambda batch: place_tokens(programs, batch),
        evaluate=lambda state: held_out_losses(plan, programs, state),
        tokens=run.batch.tokens,
        restored=lambda arrays, saved: reorder_layers(arrays, saved, run),
        compiled=programs.step,
    )


def rows_of_data(plan: PreparedRun, programs: Programs) -> tuple[int, list[int]]:
    """Rows of the data in a batch, and those that this process reads; one has both of a pair."""
    size = rows_of_batch(plan.run)
    each = plan.run.batch.global_batch // size
    return size, (own_rows(programs)[::each] // each).tolist()


def held_out_losses(plan: PreparedRun, programs: Programs, state: TrainState) -> dict[str, float]:
    """Mean losses of the held-out batches, as `metrics.jsonl` names them.

    `held_out_loss`, of a mixture by its shares, and that of each source; `held_out_loss_ema` of the
    running mean of the parameters, if there is one.
    """
    parts, (size, own) = list(parts_of(plan.source)), rows_of_data(plan, programs)
    count = plan.run.train.eval_batches
    shared = lambda losses: sum(losses[name] * share for name, _, share in parts)

    def of(params: Transformer) -> dict[str, float]:
        """The mean over the held-out batches of each source."""
        means = {}
        for name, part, _ in parts:
            placed = (place_tokens(programs, b) for b in held_out_batches(part, size, count, own))
            losses = [
                programs.evaluate(params, tokens, state.reference) for tokens in placed
            ]  # not waited for
            means[name] = statistics.fmean(map(float, losses))
        return means

    losses = of(state.params)
    named = {"held_out_loss": shared(losses)}
    named |= {f"held_out_loss/{name}": loss for name, loss in losses.items() if name}
    if state.ema is not None:
        named["held_out_loss_ema"] = shared(of(joined(state.ema, state.params)))
    return named
