"""The learning rate as a function of the number of finished steps.

          rises linearly to `learning_rate` over `warmup_steps`, then
cosine    falls along a cosine to `final_rate` of it at `steps`
linear    falls along a line to the same
wsd       stays, and falls along a line during the last `decay_steps` (arXiv 2405.18392)
constant  stays
"""

import optax

from scaling.run import Train
from scaling.run.optimizers import decay_steps, final_rate


def schedule(train: Train) -> optax.Schedule:
    """Learning rate as a function of the number of finished steps."""
    peak, warmup = train.learning_rate, min(train.warmup_steps, train.steps)
    first = peak / (warmup + 1) if warmup else peak
    last, end = peak * final_rate(train), max(train.steps, warmup + 1)
    if train.schedule == "cosine":
        return optax.warmup_cosine_decay_schedule(
            init_value=first,
            peak_value=peak,
            warmup_steps=warmup,
            decay_steps=end,
            end_value=last,
        )
    falls = {"linear": end - warmup, "wsd": decay_steps(train), "constant": 0}[train.schedule]
    rise = optax.linear_schedule(first, peak, warmup)
    stay = optax.constant_schedule(peak)
    fall = optax.linear_schedule(peak, last, falls) if falls else stay
    return optax.join_schedules([rise, stay, fall], [warmup, end - falls])
