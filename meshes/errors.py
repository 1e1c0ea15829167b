"""How bad input is reported: what is wrong, the numbers, how to fix it, in the user's own words."""

import difflib
from collections.abc import Iterable

FEW = 30  # names that are still listed beside a suggestion


class InputError(ValueError):
    """The user's input cannot be used. The command line prints the message and exits with 2."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A phrase that names the closest valid spelling, or lists what there is."""
    names = [str(v) for v in valid]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    known = f"known: {', '.join(names)}"
    if not close:
        return known
    return f"did you mean {close[0]!r}?" + (f" ({known})" if len(names) <= FEW else "")


def check_keys(given: Iterable[str], valid: Iterable[str], where: str, what: str = "key") -> None:
    """Raise InputError for the first key of `given` that is not in `valid`.

    Args:
        given: keys as the user wrote them.
        valid: keys that mean something here.
        where: what is being read, for the message ("run.json: batch", "--mesh").
        what: what such a key is called there ("axis").
    """
    valid = list(valid)
    for key in given:
        if key not in valid:
            raise InputError(f"{where}: unknown {what} {key!r}; {nearest(str(key), valid)}")
