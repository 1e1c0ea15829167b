"""A limit on work, in calls of functions, which no machine makes slower or faster."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


class TooMuch(BaseException):
    """Of no kind that a reader handles."""


@contextmanager
def at_most(calls: float) -> Iterator[None]:
    """Raise TooMuch as soon as more functions were called."""
    counter = count()

    def called(_frame: object, event: str, _argument: object) -> None:
        if event == "call" and next(counter) > calls:
            sys.setprofile(None)
            raise TooMuch(f"more than {calls:,} calls")

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)
