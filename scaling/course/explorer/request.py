"""What a page asks of one program: its key, factors of figures, a calibration; checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from scaling.meshes.errors import InputError, check_keys
from scaling.profiles.io import profile_from
from scaling.profiles.profile import Profile
from scaling.program.stored import StoredProgram, stored_programs
from scaling.simulate.what_if import FIGURES

LEAST, MOST = 0.01, 100.0  # factors; a figure further off is that of another machine
DIGITS = 4  # of a factor, so that a page, its address and its command say the same
KEYS = ("program", "collective", "look", "calibration", *FIGURES)
MIDDLE = 0.5  # of the step, where the closer look is unless asked otherwise
LONGEST_NAME = 200  # characters of a name that a message repeats
CALIBRATION = "the calibration"
KEPT = 4  # calibrations that are not read again


@dataclass(frozen=True)
class ExplorerRequest:
    """One program with changes."""

    stored: StoredProgram
    changes: tuple[str, ...]  # as `what_if` takes them
    calibration: str  # the text of the reader's file; "": the package's own figures
    collective: str  # name of a call of the chosen collective; "": that which takes longest
    look: float  # moment of the closer look, as a share of the step


def request_of(given: Mapping[str, Any]) -> ExplorerRequest:
    """Return what is asked.

    Raises:
        InputError: an unknown key, program or figure, a factor that is no number or out of range,
            a calibration that is none.
    """
    check_keys(given, KEYS, "explorer")
    changes = []
    for name in FIGURES:
        factor = _number(name, given.get(name, 1), LEAST, MOST)
        text = f"{factor:.{DIGITS}g}"
        if float(text) != 1:
            changes.append(f"{name} x{text}")
    collective = given.get("collective", "")
    if not isinstance(collective, str):
        raise InputError(f"explorer: collective={_shown(collective)} must be the name of a call")
    look = _number("look", given.get("look", MIDDLE), 0.0, 1.0)
    calibration = _calibration(given.get("calibration"))
    return ExplorerRequest(
        _stored(given.get("program")), tuple(changes), calibration, collective, look
    )


@cache
def by_key() -> Mapping[str, StoredProgram]:
    """Return the stored programs by their keys."""
    return {stored.key: stored for stored in stored_programs()}


def _stored(key: Any) -> StoredProgram:
    if not isinstance(key, str):
        raise InputError(f"explorer: program={_shown(key)} must be the key of a stored program")
    if key not in by_key():
        count = len(by_key())
        raise InputError(
            f"explorer: no program {_shown(key)} is among the {count} that come with the package; "
            "choose one of a comparison"
        )
    return by_key()[key]


def _number(name: str, value: Any, least: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # nor NaN
        what = "a factor" if name in FIGURES else "a number"
        raise InputError(
            f"explorer: {name}={_shown(value)} must be {what} from {least:g} to {most:g}"
        )
    return float(value)


def _calibration(document: Any) -> str:
    """The text of a calibration file, given as such or as its JSON; checked."""
    if document is None:
        return ""
    if not isinstance(document, str | dict):
        raise InputError(f"{CALIBRATION} must be the JSON that `scaling calibrate` writes")
    text = document if isinstance(document, str) else json.dumps(document)
    profile_of_text(text)
    return text


@lru_cache(maxsize=KEPT)
def profile_of_text(text: str) -> Profile:
    """Return the profile in the text of a calibration file; InputError if it is none."""
    return profile_from(text, CALIBRATION)


def _shown(value: Any) -> str:
    return repr(value)[:LONGEST_NAME]
