"""Which run or cluster an error is about, for the JSON that says so."""

from collections.abc import Iterator
from contextlib import contextmanager

from scaling.meshes.errors import InputError


@contextmanager
def about(name: str) -> Iterator[None]:
    """Notes on errors raised inside which run or cluster they are about."""
    try:
        yield
    except InputError as error:
        error.about = name  # type: ignore[attr-defined]
        raise
