"""The held-out losses of a run while it is trained."""

import statistics

from scaling.models.transformer import Transformer
from scaling.training.data.batches import held_out_batches
from scaling.training.data.tokens import parts_of
from scaling.training.optim.trained import joined
from scaling.training.prepare import Plan, Programs, own_rows, place_tokens
from scaling.training.step import TrainState


def held_out_losses(plan: Plan, programs: Programs, state: TrainState) -> dict[str, float]:
    """Mean losses of the held-out batches, as `metrics.jsonl` names them.

    `held_out_loss`, of a mixture by its shares, and that of each source; `held_out_loss_ema` of the
    running mean of the parameters, if there is one.
    """
    parts = list(parts_of(plan.source))
    shared = lambda losses: sum(losses[name] * share for name, _, share in parts)

    run, own = plan.run, own_rows(programs).tolist()
    size = run.batch.global_batch, run.batch.seq_len, run.train.eval_batches

    def of(params: Transformer) -> dict[str, float]:
        """The mean over the held-out batches of each source."""
        means = {}
        for name, part, _ in parts:
            placed = (place_tokens(programs, b) for b in held_out_batches(part, *size, own))
            losses = [programs.evaluate(params, tokens) for tokens in placed]  # none is waited for
            means[name] = statistics.fmean(map(float, losses))
        return means

    losses = of(state.params)
    named = {"held_out_loss": shared(losses)}
    named |= {f"held_out_loss/{name}": loss for name, loss in losses.items() if name}
    if state.ema is not None:
        named["held_out_loss_ema"] = shared(of(joined(state.ema, state.params)))
    return named
