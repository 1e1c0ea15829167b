"""Damaged copies of documents: values of JSON and TOML replaced, and characters or bytes turned.

All that is drawn comes from one `random.Random`, so that a seed and a number give a case again.
"""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

# What a reader has to bound, to refuse by its type, or must not resolve as a path or a pattern.
NUMBERS = [
    *(0, -1, 1, 2, 3, 7, 1.5, -0.0, 1e-320, 1e308, float("inf"), float("nan")),
    *(2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**9, 10**15, 10**18 + 9, 10**400),
]
WORDS = [
    "",
    " ",
    "x",
    "0",
    "1e999",
    "../..",
    "/dev/zero",
    "\0",
    "\n",
    "é",
    "\ud800",
    "%s{0}",
    "a" * 5000,
]
VALUES = [None, True, False, [], {}, [[]], [{}], [None], {"": 0}, *NUMBERS, *WORDS]
DEPTH = 100_000  # of brackets: beyond any recursion limit
BITS = [b'"', b"{", b"]", b",", b"=", b"null", b"1e999", b"-", b"\0", b"\xff", b"9" * 5000]


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every value inside a document, tables and lists among them."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def at(value: Any, path: tuple) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value


def mutated(document: Any, random: Random) -> Any:
    """A copy in which one to four values are gone, replaced, doubled, moved or nested."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        paths = [path for path in places(document) if path]
        if not paths:
            return copy.deepcopy(random.choice(VALUES))
        *place, key = random.choice(paths)
        table = at(document, tuple(place))
        match random.randrange(7):
            case 0:
                del table[key]
            case 1:
                table[key] = copy.deepcopy(random.choice(VALUES))
            case 2:
                table[key] = copy.deepcopy(at(document, random.choice(paths)))
            case 3 if isinstance(table, dict):
                table[random.choice(WORDS) or str(key)[1:]] = table.pop(key)
            case 4 if isinstance(table[key], int | float):
                table[key] = table[key] * random.choice((-1, 0, 2, 10**6, 10**12))
            case 5 if isinstance(table, list):
                table.extend([table[key]] * random.choice((1, 3, 1000)))
            case _:
                table[key] = random.choice(([table[key]], {str(key): table[key]}, str(table[key])))
    return document


def turned(text: bytes, random: Random) -> bytes:
    """A copy with one to four spots changed, cut off, or under many brackets."""
    for _ in range(random.choice((1, 1, 2, 4))):
        spot, gone = random.randrange(len(text) + 1), random.choice((0, 1, 1, 6, 60))
        new = random.choice([*BITS, bytes([random.randrange(256)]), text[spot : spot + 40]])
        text = text[:spot] + new + text[spot + gone :]
    match random.randrange(20):
        case 0:
            return text[: random.randrange(len(text) + 1)]
        case 1:
            return text.replace(b"[", b"[" * DEPTH, 1)
        case _:
            return text


def as_json(document: Any) -> bytes:
    """The document as `json` writes it, NaN and lone surrogates too."""
    return json.dumps(document).encode()


def as_toml(document: dict[str, Any]) -> bytes:
    """The document as TOML, tables in one line each; nulls, which TOML lacks, are texts."""
    keys = document.items() if isinstance(document, dict) else [("document", document)]
    lines = [f"{json.dumps(str(key))} = {_toml(value)}\n" for key, value in keys]
    return "".join(lines).encode(errors="surrogatepass")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value if value is not None else "null", ensure_ascii=False)


def shuffled(text: bytes, random: Random) -> bytes:
    """A copy with one to five lines (of a text of one line: words) gone, doubled or swapped."""
    mark = b"\n" if b"\n" in text.strip() else b" "
    parts = text.split(mark)
    for _ in range(random.choice((1, 1, 2, 5))):
        here, there = random.randrange(len(parts)), random.randrange(len(parts))
        match random.randrange(3):
            case 0 if len(parts) > 1:
                del parts[here]
            case 1:
                parts.insert(here, parts[there])
            case _:
                parts[here], parts[there] = parts[there], parts[here]
    return mark.join(parts)
