"""Lets a signal from outside make the main thread of a Python process stand still, for ever.

SIGRTMIN + 1 sleeps, + 2 spins in Python, + 3 waits in C and keeps Python's lock.
"""

import ctypes
import signal
import time
from collections.abc import Callable

FOR_EVER = 10**6  # s
MUTEX = 64  # bytes; a pthread_mutex_t of Linux takes 40, and zeros are an unlocked one


def spin() -> None:
    """Never come back."""
    while True:
        pass


def keep_lock() -> None:
    """Lock a mutex twice, which no signal ends."""
    mutex, library = ctypes.create_string_buffer(MUTEX), ctypes.PyDLL(None)
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


ACTS: tuple[Callable[[], object], ...] = (
    lambda: time.sleep(FOR_EVER),
    spin,
    keep_lock,
)
for _number, _act in enumerate(ACTS, 1):
    signal.signal(signal.SIGRTMIN + _number, lambda *_, act=_act: act())
