"""Lets a signal from outside make the main thread of a Python process stand still, for ever.

SIGRTMIN + 1 sleeps, + 2 spins in Python, + 3 sleeps in C and keeps Python's lock.
"""

import ctypes
import signal
import time
from collections.abc import Callable

FOR_EVER = 10**6  # s


def spin() -> None:
    """Never come back."""
    while True:
        pass


ACTS: tuple[Callable[[], object], ...] = (
    lambda: time.sleep(FOR_EVER),
    spin,
    lambda: ctypes.PyDLL(None).sleep(FOR_EVER),
)
for _number, _act in enumerate(ACTS, 1):
    signal.signal(signal.SIGRTMIN + _number, lambda *_, act=_act: act())
