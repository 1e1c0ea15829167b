"""The base of what public functions return: named fields, a page, one line and a document.

    str(result)          the page that the command line prints
    repr(result)         one short line
    in a notebook        the page, or a table with pictures
    result.to_dict()     the document that the command line prints with --json

It stands here, below all rooms, because answers are made in several of them.
"""

from abc import ABC, abstractmethod
from html import escape
from typing import Any


class Result(ABC):
    """A result; its class is a frozen dataclass with `repr=False`."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints: text, numbers, lists and tables only."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the page of the command line."""

    @abstractmethod
    def line(self) -> str:
        """Return the result in a few words."""

    def __repr__(self) -> str:
        """Return one line, for lists of results and for debuggers."""
        return f"<{self.line()}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"
