"""An optimised HLO module read from its text: computations, instructions, attributes. No more.

    %ag = (bf16[2,8]{1,0}, bf16[4,8]{1,0}) all-gather-start(%x), replica_groups=[4,2]<=[8], ...
     |                 |                        |            |        |
    name             shape                   opcode      operands   attributes

Every line of a computation must be understood, else `UnknownHlo` says which one is not. As in XLA
an instruction knows its computation, its operands and what it calls, a computation its module; each
is equal to itself alone.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from scaling.hlo.shapes import Path, Shape, parse_shape
from scaling.hlo.source_lines import frame_lines
from scaling.meshes.errors import InputError

HEADER = re.compile(r"^HloModule ([\w.\-<>]+)(.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([^\s(]+) \(.*\) -> .* \{")
INSTRUCTION = re.compile(r"^  (ROOT )?%?([^\s=]+) = ")
OPCODE = re.compile(r" ?([a-z][\w\-]*)\(")
NAME = re.compile(r"%([^\s,(){}]+)")
OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*+)"')
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[({]|[\])}]|,')  # a string as a whole, or a bracket
ALIAS = re.compile(r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}")
LITERALS = ("parameter", "constant")  # operations with a number between the parentheses
OPENING, CLOSING = "([{", ")]}"
LINE = 400  # characters of a line that are kept for messages
LONGEST = 2**23  # characters of a line that is read, chosen by this project: 1 s, 1 GB of memory
# Attributes that name what a call, a loop or a conditional runs, operation by operation.
BLOCKS = (
    "to_apply", "body", "condition", "branch_computations", "true_computation", "false_computation",
)  # fmt: skip
REPORT = (
    "something in the compiled program is not known yet (please report it with your jax version)"
)


class UnknownHlo(InputError):
    """A line that the reader does not understand, or an instruction that it cannot price.

    No mistake of the user's, who is told so and asked to report the line.
    """

    before = f"{REPORT}: "

    def __init__(self, what: str):
        super().__init__(self.before + what)
        self.what = what


class MayCommunicate(UnknownHlo):
    """A call of which its user has to say that it talks to no other device."""

    before = ""


@dataclass(frozen=True, eq=False)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shape: Shape
    operand_names: tuple[str, ...]  # for `parameter` and `constant` none
    argument: str  # what stands between the parentheses
    attributes: str  # all that follows them
    is_root: bool
    line: str
    computation: "Computation" = field(repr=False)

    def attribute(self, name: str) -> str | None:
        """The value of `name=...` as written, brackets and all; None: there is none."""
        return self._values.get(name)

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The numbers in the value of an attribute: (1, 0) of `dimensions={1,0}`; () without it."""
        return tuple(int(n) for n in re.findall(r"\d+", self.attribute(attribute) or ""))

    @cached_property
    def operands(self) -> tuple["Instruction", ...]:
        """The instructions whose results it takes."""
        return tuple(map(self.computation.instructions.__getitem__, self.operand_names))

    @property
    def users(self) -> tuple["Instruction", ...]:
        """The instructions that take its result."""
        return self.computation.users[self.name]

    def called(self, attribute: str) -> tuple["Computation", ...]:
        """The computations that `attribute` (calls, body, ...) names."""
        names = (name.strip(" {}%") for name in (self.attribute(attribute) or "").split(","))
        return tuple(self.computation.module.computations[name] for name in names if name)

    @cached_property
    def blocks(self) -> tuple["Computation", ...]:
        """The computations that a call, a loop or a conditional runs; else ()."""
        if self.opcode not in ("call", "while", "conditional"):
            return ()
        found = tuple(inner for key in BLOCKS for inner in self.called(key))
        if not found:
            raise UnknownHlo(f"a {self.opcode} without branches: {self.excerpt}")
        return found

    @property
    def excerpt(self) -> str:
        """The beginning of its line, for messages."""
        return repr(self.line.strip()[:LINE])

    @cached_property
    def op_name(self) -> str:
        """Name in the traced function: `jit(step)/jvp(layers)/while/body/...`."""
        found = OP_NAME.search(self.attribute("metadata") or "")
        return found[1] if found else ""

    @cached_property
    def backend_config(self) -> dict[str, Any]:
        """The backend's configuration; empty if there is none, or if it is no JSON object."""
        text = self.attribute("backend_config")
        if text is None or not text.startswith("{"):
            return {}
        try:
            return json.loads(text)
        except ValueError:
            return {}

    @cached_property
    def parameter_number(self) -> int:
        return int(self.argument)

    @cached_property
    def _values(self) -> dict[str, str]:
        """Attributes by name; those inside brackets or strings are no attributes of their own."""
        pairs = (part.split("=", 1) for part in _parts(self.attributes) if "=" in part)
        return {name.strip(): value.strip() for name, value in pairs}


@dataclass(frozen=True, eq=False)
class Computation:
    """Instructions by name, in the order of the schedule."""

    name: str
    module: "Module" = field(repr=False)
    instructions: dict[str, Instruction] = field(default_factory=dict, repr=False)

    @cached_property
    def root(self) -> Instruction:
        """The instruction whose result is the computation's."""
        return next(i for i in self if i.is_root)

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """`parameter` instructions by number."""
        found = [i for i in self if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.parameter_number))

    @cached_property
    def users(self) -> dict[str, tuple[Instruction, ...]]:
        """Name -> the instructions that take it as an operand."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for instruction in self:
            for name in dict.fromkeys(instruction.operand_names):
                users[name].append(instruction)
        return {name: tuple(found) for name, found in users.items()}

    @cached_property
    def takers(self) -> dict[tuple[str, Path], list[Instruction]]:
        """(name, (index,)) -> the users that take this part of a result; (name, ()): all of it."""
        takers: dict[tuple[str, Path], list[Instruction]] = {}
        for name, users in self.users.items():
            for user in users:
                index = user.attribute("index") if user.opcode == "get-tuple-element" else None
                part = name, () if index is None else (int(index),)
                takers.setdefault(part, []).append(user)
        return takers

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions.values())


@dataclass(eq=False)
class Module:
    """A scheduled module."""

    name: str
    # index of an output -> (number, index) of the parameter whose memory it takes over
    aliases: dict[Path, tuple[int, Path]]
    places: dict[int, str]  # stack frame -> path:line
    computations: dict[str, Computation] = field(default_factory=dict, repr=False)
    # computation -> what `scaling.hlo.fusions` found in it, as it is asked for
    fusions: dict[Computation, Any] = field(default_factory=dict, repr=False)
    entry: Computation = field(init=False, repr=False)


def parse_module(text: str) -> Module:
    """The module in `text`, as `compiled.as_text()` gives it.

    Raises:
        UnknownHlo: a line that does not read as HLO, or a module without a schedule.
    """
    lines = text.splitlines()
    if (longest := max(map(len, lines), default=0)) > LONGEST:
        raise InputError(f"a line of {longest:,} characters, where up to {LONGEST:,} are read")
    header = HEADER.match(lines[0]) if lines else None
    if header is None:
        raise UnknownHlo(f"not an HLO module: {lines[0][:80] if lines else '(empty)'!r}")
    if "is_scheduled=true" not in header[2]:
        raise UnknownHlo(f"module {header[1]} has no schedule: compile it, lowering is not enough")
    key = "input_output_alias="
    start = header[2].find(f"{key}{{")
    aliases = next(_parts(header[2][start + len(key) :])) if start >= 0 else ""
    module = Module(header[1], read_aliases(aliases), frame_lines(lines))
    _read_computations(lines, module)
    return module


def parse_instruction(line: str, computation: Computation | None = None) -> Instruction:
    """One line of a computation, which is not added to it; None: a line that stands alone.

    Raises:
        UnknownHlo: the line, if it does not read as an instruction.
    """
    head = INSTRUCTION.match(line)
    if head is None:
        raise UnknownHlo(f"not an instruction: {line.strip()[:LINE]!r}")
    try:
        shape, end = parse_shape(line, head.end())
    except ValueError as error:
        raise UnknownHlo(f"{error} in {line.strip()[:LINE]!r}") from None
    opcode = OPCODE.match(line, end)
    if opcode is None:
        raise UnknownHlo(f"no operation: {line.strip()[:LINE]!r}")
    close = _closing(line, opcode.end() - 1)
    argument = line[opcode.end() : close]
    names = () if opcode[1] in LITERALS else tuple(NAME.findall(argument))
    if argument.strip() and not names and opcode[1] not in LITERALS:
        raise UnknownHlo(f"operands without names: {line.strip()[:LINE]!r}")
    rest, is_root = line[close + 1 :].lstrip(", "), bool(head[1])
    computation = computation or Computation("", Module("", {}, {}))
    return Instruction(head[2], opcode[1], shape, names, argument, rest, is_root, line, computation)


def _read_computations(lines: list[str], module: Module) -> None:
    body: Computation | None = None
    for line in lines[1:]:
        if body is None:
            if head := COMPUTATION.match(line):
                body = Computation(head[2], module)
                if head[1]:
                    module.entry = body
            elif INSTRUCTION.match(line):
                raise UnknownHlo(f"an instruction outside any computation: {line.strip()[:LINE]!r}")
        elif line.startswith("}"):
            if sum(i.is_root for i in body) != 1:
                raise UnknownHlo(f"computation {body.name} has not one ROOT")
            for i in body:
                for name in i.operand_names:
                    if name not in body.instructions:
                        raise UnknownHlo(f"no %{name} in {body.name}: {i.excerpt}")
            module.computations[body.name], body = body, None
        elif line.strip():
            instruction = parse_instruction(line, body)
            body.instructions[instruction.name] = instruction
    if body is not None:
        raise UnknownHlo(f"computation {body.name} has no end: the text is cut off")
    if not hasattr(module, "entry"):
        raise UnknownHlo(f"module {module.name} has no ENTRY computation")


def read_aliases(text: str) -> dict[Path, tuple[int, Path]]:
    """`{ {0}: (1, {}, may-alias) }`: output 0 lives where operand 1 did."""
    return {_path(out): (int(n), _path(index)) for out, n, index in ALIAS.findall(text)}


def _path(text: str) -> Path:
    return tuple(int(n) for n in text.split(",") if n.strip())


def _parts(text: str) -> Iterator[str]:
    """The parts of a text between commas outside brackets and strings."""
    start = depth = 0
    for token in TOKEN.finditer(text):
        if token[0] == "," and depth == 0:
            yield text[start : token.start()]
            start = token.end()
        depth += (token[0] in OPENING) - (token[0] in CLOSING)
    if start < len(text):
        yield text[start:]


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one at `start`."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        depth += (token[0] in OPENING) - (token[0] in CLOSING)
        if depth == 0:
            return token.start()
    raise UnknownHlo(f"unclosed bracket: {text.strip()[:200]!r}")
