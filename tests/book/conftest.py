"""Printed answers of "How to Scale Your Model", with the tolerance that their digits state."""

from collections.abc import Callable
from decimal import Decimal

import pytest

# What the book rounds before it computes: relative difference of its figures to the catalogue's.
INPUTS = {
    "exact": 0.0,
    "h100": 990 / 989.4 - 1,  # bf16 peak
    "v5e": 820 / 819 - 1,  # memory bandwidth; int8 peak 394 for 393 is more
    "v5e int8": 394 / 393 - 1 + 820 / 819 - 1,
}


def rounded(text: str, inputs: str | float = "exact", cut: bool = False):
    """approx of a printed number: half a unit of its last digit, a whole one where it is cut off.

    Args:
        text: as printed, "1.04e-3".
        inputs: key of INPUTS, or the relative error that rounding beforehand brings in.
        cut: the book cuts the digits off that do not fit.
    """
    number = Decimal(text)
    unit = float(Decimal(1).scaleb(int(number.as_tuple().exponent)))
    share = INPUTS[inputs] if isinstance(inputs, str) else inputs
    tolerance = unit * (1.0 if cut else 0.5) + share * abs(float(number))
    return pytest.approx(float(number), rel=0, abs=tolerance * (1 + 1e-9))


@pytest.fixture(scope="session")
def printed() -> Callable:
    """printed("1.04e-3", inputs="h100"): what the book prints, as far as its digits go."""
    return rounded
