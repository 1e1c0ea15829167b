"""Errors for bad input: what is wrong, the numbers, and how to fix it, in the user's words."""

import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
DIGITS = 18  # of an int64 in any case
FEW = 36  # names that are still listed beside a suggestion
CLOSE = 0.55  # share of letters in common from which a name is suggested; chosen by this project


CONTROL = re.compile(r"[^\n\t -~\x80-\U0010ffff]|[\x80-\x9f]")  # C0 but for line breaks, DEL, C1


def printable(text: str) -> str:
    """The text with escapes (`\\x1b`) for characters that would move a terminal's cursor."""
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class InputError(ValueError):
    """The user's input cannot be used. The command line prints the message and exits with 2.

    >>> import scaling as sc
    >>> try:
    ...     sc.load_cluster("dgx-h10")
    ... except sc.InputError as error:
    ...     print("did you mean 'dgx-h100'?" in str(error))
    True
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class UnknownName(InputError, AttributeError):
    """A misspelt attribute of the package; `hasattr` and `getattr` with a default still work."""


@contextmanager
def reworded(before: str = "", after: str = "") -> Iterator[None]:
    """Put words around the message of an InputError: which option it is of, what to do instead."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{before}{error}{after}") from None


def nearest(name: str, valid: Iterable[str]) -> str:
    """A phrase that names the closest valid spelling, or lists what there is."""
    names = [str(v) for v in valid]
    by_lower = {valid_name.lower(): valid_name for valid_name in names}
    name = name.lower()
    close = difflib.get_close_matches(name, by_lower, n=2, cutoff=CLOSE)
    known = f"known: {', '.join(names) or 'none'}"
    if not close:
        return known
    ratio = lambda valid_name: difflib.SequenceMatcher(a=valid_name, b=name).ratio()
    best = [repr(by_lower[each]) for each in close if ratio(each) == ratio(close[0])]
    few = f" ({known})" if len(names) <= FEW else ""
    return f"did you mean {' or '.join(best)}?{few}"


def is_count(text: str) -> bool:
    """True for a whole number in plain digits that an int64 holds."""
    return text.isascii() and text.isdigit() and len(text) <= DIGITS


def check_range(name: str, value: float, least: float, most: float | None = None) -> None:
    """Raise InputError unless `least <= value` (and `value <= most`)."""
    if not least <= value <= (sys.float_info.max if most is None else most):  # nor NaN, nor inf
        allowed = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}={value} must be {allowed}")


def check_fields(
    owner: object, names: Iterable[str], least: float, most: float | None = None, where: str = ""
) -> None:
    """`check_range` of fields of `owner`, called `where` + name; None, no value, passes."""
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            check_range(where + name, value, least, most)


def check_positive(owner: object, names: Iterable[str]) -> None:
    """Raise InputError for a field of `owner` that is neither None nor positive and finite."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name}={value} must be a positive number")


def whole_number(name: str, value: object, least: int = 1) -> int:
    """`value` (numpy's integers and 1e9 too) as an int; InputError for others, or below `least`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={value!r} must be a whole number, at least {least}")
    return int(value)


def check_keys(keys: Iterable[str], valid: Iterable[str], where: str, what: str = "key") -> None:
    """Raise InputError for the first of `keys` that is not in `valid`.

    Messages begin with `where` ("run.json: batch", "--mesh") and call a key `what` ("axis").
    """
    valid = list(valid)
    for key in keys:
        if key not in valid:
            raise InputError(f"{where}: unknown {what} {key!r}; {nearest(str(key), valid)}")


class Problems:
    """Collects InputErrors, so that all mistakes of a file are reported together."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def attempt(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of `function`; None after an InputError, whose message is kept."""
        try:
            return function(*args, **kwargs)
        except InputError as error:
            self.messages.append(str(error))
            return None

    def raise_any(self) -> None:
        """Raise one InputError with all messages, a line each, if there are any."""
        if self.messages:
            raise InputError("\n".join(self.messages))
