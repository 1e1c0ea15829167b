"""The least amount from which something holds, found by doubling and halving."""

from collections.abc import Callable

CLOSE = 1e-8  # relative: width of the interval in which a solution is given
LEAST, MOST = 1e-15, 1e30  # amounts below which and beyond which nothing is sought


def least_where(holds: Callable[[float], bool], most: float = MOST, whole: bool = False) -> float:
    """Return the least amount from which `holds` is true; 0.0 where it is below LEAST.

    Args:
        holds: once true, as a rule for all that is more.
        most: an amount of which that is not asked, as if it were true.
        whole: whole numbers alone, from 1 on; `most` is then a power of two.
    """
    low, high = 0.0, 1.0
    while high < most and not holds(high):
        low, high = high, 2 * high
    while high - low > (1 if whole else CLOSE * high):
        if high < LEAST:
            return 0.0
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
