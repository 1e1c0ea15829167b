"""How much Python a function runs, as a number that no machine's speed changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(function: Callable[[], object]) -> int:
    """How many functions, Python's and C's, are called meanwhile."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
