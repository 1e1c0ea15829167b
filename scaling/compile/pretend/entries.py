"""Who has changed jax: changes are undone in order, whoever leaves first.

jax is one for all threads and tasks, and every entry replaces what the entry before has put there.

    enters    nobody is inside, or the one who entered last: a thread, and in it a task (of asyncio
              or a relative: each has a context of its own); anybody else is refused
    leaves    what is inside of it still stands: its changes are undone when that has left too
    ended     a thread that ended inside left, too: the next to enter undoes its changes
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock, Thread, current_thread

from scaling.meshes.errors import InputError


@dataclass(eq=False)
class _Entry:
    thread: Thread
    outer: "_Entry | None"  # what its task was inside of before
    changes: ExitStack = field(default_factory=ExitStack)
    has_left: bool = False
    is_undone: bool = False  # or is about to be


_LOCK = RLock()  # held for moments; a generator that Python collects meanwhile leaves, too
_ENTRIES: list[_Entry] = []  # not undone yet, innermost last
_INSIDE: ContextVar[_Entry | None] = ContextVar("inside", default=None)


@contextmanager
def changing_jax() -> Iterator[ExitStack]:
    """A stack for changes of jax; they are undone after leaving it, and all entries inside of it.

    It may be left by another thread than entered.

    Raises:
        InputError: another thread or task is inside.
    """
    entry = _enter()
    try:
        yield entry.changes
    finally:
        with _LOCK:
            entry.has_left = True
            if _INSIDE.get() is entry:
                _INSIDE.set(entry.outer)
            _undo()


def _enter() -> _Entry:
    with _LOCK:
        for entry in _ENTRIES:
            entry.has_left |= not entry.thread.is_alive()
        _undo()
        innermost, inside = _ENTRIES[-1] if _ENTRIES else None, _INSIDE.get()
        while inside and inside.is_undone:  # by another thread, which cannot tell this one
            inside = inside.outer
        if innermost and not (innermost is inside and innermost.thread is current_thread()):
            other = "task" if innermost.thread is current_thread() else "thread"
            raise InputError(
                f"another {other} is inside sc.pretend, which changes jax for all threads and "
                f"tasks: leave it there first, or start the {other}s inside of it"
            )
        entry = _Entry(current_thread(), inside if innermost else None)
        _ENTRIES.append(entry)
        _INSIDE.set(entry)
        return entry


def _undo() -> None:
    """Undo the innermost entries that have left, up to one that has not."""
    while _ENTRIES and _ENTRIES[-1].has_left and not _ENTRIES[-1].is_undone:
        _ENTRIES[-1].is_undone = True
        try:
            _ENTRIES[-1].changes.close()
        finally:
            _ENTRIES.pop()
