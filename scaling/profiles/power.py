"""How fast products go on under another power limit.

rate(limit) / rate(now) = ((limit / now - IDLE) / (1 - IDLE)) ^ (1 / EXPONENT)
"""

import numpy as np

from scaling.program.ir import Number

# Share of the draw that does not follow the clock, and the power of the clock that the rest does
# (its voltage falls with it): fitted on trainings of small models under power limits of V100, A40,
# P100 and Quadro RTX 6000. Each GPU left out is 7 to 13 % off in the median, a rate in proportion
# to the limit 14 to 16 % (experiments/published/fit_power.py).
IDLE, EXPONENT = 0.25, 2.05
LEAST = 1e-3  # of a rate: a chip under a limit near its idle draw does next to nothing


def rate_under(share: Number, idle: float = IDLE, exponent: float = EXPONENT) -> Number:
    """Rate under `share` of the power that is drawn now, over the rate now."""
    return np.maximum((share - idle) / (1 - idle), LEAST) ** (1 / exponent)
