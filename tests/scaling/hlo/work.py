"""How much work something is: calls of functions, which no machine makes slower or faster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


class TooMuch(BaseException):
    """Of no kind that a reader handles."""


@contextmanager
def at_most(calls: float) -> Iterator["count[int]"]:
    """Raise TooMuch as soon as more functions were called; the counter says how many."""
    counter = count()

    def called(_frame: object, event: str, _argument: object) -> None:
        if event == "call" and next(counter) > calls:
            sys.setprofile(None)
            raise TooMuch(f"more than {calls:,} calls")

    sys.setprofile(called)
    try:
        yield counter
    finally:
        sys.setprofile(None)


def calls_of(function: Callable[..., object], *given: object) -> int:
    """The number of calls that a function makes."""
    with at_most(1e8) as counter:
        function(*given)
    return next(counter)
