"""Compiled programs that come with the package: priced where no compiler is, as in a browser.

    scaling/program/data/index.json       what each is of, and with which versions it was compiled
    scaling/program/data/KEY.json.gz      the Program

`python -m experiments.stored_programs` makes them. A key is a hash of what was compiled (`key_of`).
"""

import gzip
import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from scaling.meshes.reading import PACKAGE, parse_json
from scaling.program.ir import Program
from scaling.program.serialization import read_program_dict

FOLDER = PACKAGE / "program" / "data"
INDEX = "index.json"
KEY_LENGTH = 12  # hexadecimal digits, of which some hundred programs never share all


@dataclass(frozen=True)
class StoredProgram:
    """One kept program: what `sc.predict` takes to price it, and what compiled it."""

    key: str
    run: str  # a recipe's name
    cluster: str
    nodes: int
    mesh: str
    set: Mapping[str, Any]  # values of the run by dotted key
    group: str  # what programs of one comparison have in common
    versions: Mapping[str, str]  # of jax and its relatives
    date: str

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `sc.predict`, with source="stored"."""
        asked = {"run": self.run, "cluster": self.cluster, "nodes": self.nodes, "mesh": self.mesh}
        return asked | {"set": dict(self.set), "source": "stored"}

    @property
    def command(self) -> str:
        """The command line that prices the same step, compiled anew."""
        settings: list[str] = []
        for key, value in self.set.items():
            settings += "--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        where = ["--cluster", self.cluster, "--nodes", str(self.nodes), "--mesh", self.mesh]
        return shlex.join(["scaling", "predict", self.run, *where, *settings])


def key_of(run: Mapping[str, Any], mesh: Mapping[str, int], chip: str) -> str:
    """Return the key of a step.

    Args:
        run: as in run.json, without what leaves the step alone.
        mesh: axis -> devices, in device order.
        chip: the compiler's target.
    """
    what = json.dumps([run, list(mesh.items()), chip], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()[:KEY_LENGTH]


@cache
def stored_programs() -> tuple[StoredProgram, ...]:
    """Return what is kept, in the order of the index."""
    file = FOLDER / INDEX
    if not file.is_file():
        return ()
    return tuple(StoredProgram(**entry) for entry in parse_json(file.read_text("utf-8"), INDEX))


def stored_program(key: str) -> Program | None:
    """Return the program of a key; None if it is not kept."""
    file = FOLDER / f"{key}.json.gz"
    if not file.is_file():
        return None
    text = gzip.decompress(file.read_bytes()).decode()
    return read_program_dict(parse_json(text, file.name), file.name)
