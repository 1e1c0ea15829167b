"""The origin of every instruction of a module: from its own name, else from its neighbours.

%f = fusion(...), calls=%body     the names inside, those of matrix products first
%combined = (...) all-reduce(...) each name weighs as its operand
%copy = copy(%x)                  no name: where the nearest instructions with one come from
%dot.7.remat = dot(...)           computed once more by XLA's rematerialisation: remat
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from scaling.hlo.name_stack import PHASES, Votes, majority, read_name, single_names
from scaling.hlo.parse import Computation, Instruction, Module
from scaling.hlo.shapes import arrays, size
from scaling.program.ir import Origin

# Steps to the nearest with an origin, and which these are
Nearest = tuple[float, tuple[Instruction, ...]]

CLONE = re.compile(r"\.remat\d*$")  # added to the name by XLA's hlo_rematerialization.cc
LOOPS = ("while", "conditional")
CALLING = ("fusion", "call", "async-start")  # what they do stands in the computation they call
NAMELESS = ("parameter", "constant", "tuple", "get-tuple-element")
EMPTY = (*NAMELESS, "bitcast", "broadcast", "iota")  # no work of their own inside a fusion
PRODUCTS = ("dot", "convolution", "custom-call")
MOST_VOTERS = 256  # of the nearest, chosen by this project: sets of them would grow without bound
NOWHERE: Nearest = (math.inf, ())
MOVES = (
    "dynamic-slice", "dynamic-update-slice", "slice", "copy", "transpose", "reshape", "concatenate",
    "pad",
)  # fmt: skip


def origins(module: Module) -> dict[Instruction, Origin]:
    """The origin of every instruction of the entry and of what it loops over, branches to or calls.

    - A fusion (or call) comes from where its matrix products do; if it has none, from where its
      other arithmetic does, weighted by the bytes made; else from where it moves data.
    - A collective combined of several weighs them by the bytes of its operands. What ends an
      asynchronous instruction comes from where its start does.
    - What has no name takes the origin of the nearest instructions that have one, up or down the
      flow of data (into a loop too), producers first; several at the same distance vote, but a
      matrix product is as late as its latest operand. If there are none: that of the loop around.
    - `Origin()`, which is false, is left where nothing is known.
    """
    callers = _callers(module)
    own: dict[Instruction, Origin | None] = {}
    for computation in callers:
        own |= _own(computation)
    nearest = _Nearest(own, callers)
    found: dict[Instruction, Origin] = {}
    for computation, caller in callers.items():
        around = found[caller] if caller else Origin()
        for i in computation:
            origin = own[i]
            if i.opcode.endswith(("-done", "-update")):
                origin = found[i.operands[0]]
            elif origin is None and i.opcode not in (*LOOPS, "parameter", "constant"):
                origin = nearest.origin(i)
            found[i] = around if origin is None else origin
    return found


def _own(computation: Computation) -> dict[Instruction, Origin | None]:
    """Votes of the instructions' own names; none where one instruction serves many others."""
    found: dict[Instruction, Origin | None] = {}
    originals: set[str] = set()
    for i in computation:
        origin = None if i.opcode in NAMELESS else majority(_votes(i))
        if i.opcode in EMPTY and not origin:
            origin = None  # it does nothing itself: what is around tells more
        original = CLONE.sub("", i.name)
        if origin is not None and origin.phase in ("forward", "backward") and original in originals:
            origin = Origin("remat", origin.layer)
        originals.add(original)
        found[i] = origin
    return found


def _votes(i: Instruction) -> Votes:
    """Votes of what it calls, else those of its `op_name`."""
    kinds: tuple[Votes, Votes, Votes] = ({}, {}, {})  # matrix products, other arithmetic, moves
    for inner in i.called("calls") or i.called("to_apply") if i.opcode in CALLING else ():
        for j in inner:
            if j.opcode not in EMPTY and any(array.dims for array in arrays(j.shape)):
                kind = 0 if j.opcode in PRODUCTS else 2 if j.opcode in MOVES else 1
                _add(kinds[kind], _votes(j))
    return next(filter(None, kinds), None) or _named(i)


def _named(i: Instruction) -> Votes:
    """Votes of the names in an `op_name`; of a combined collective's, each weighs as its operand.

    Elsewhere each weighs as the result, of which a buffer updated in place counts with the update.
    """
    names, operands = list(single_names(i.op_name)), i.operands
    made = operands[1].shape if i.opcode == "dynamic-update-slice" else i.shape
    combined = len(names) == len(operands) > 1
    weights = [size(o.shape) for o in operands] if combined else [size(made)] * len(names)
    votes: Votes = {}
    for name, weight in zip(names, weights, strict=True):
        if (origin := read_name(name)) is not None:
            _add(votes, {origin: weight})
    return votes


def _add(votes: Votes, more: Votes) -> None:
    for origin, weight in more.items():
        votes[origin] = votes.get(origin, 0.0) + weight


class _Nearest:
    """The closest instructions with an origin of each one; loops without are not walked through."""

    def __init__(
        self, own: Mapping[Instruction, Origin | None], computations: Iterable[Computation]
    ):
        self.own = own
        self.producers, self.users = (_spread(own, way) for way in _steps(own, computations))
        self.known: dict[int, Votes] = {}  # identity of a set -> its votes

    def origin(self, i: Instruction) -> Origin | None:
        """Origin of the closest, producers first; None: there are none."""
        above, below = (way.get(i, NOWHERE) for way in (self.producers, self.users))
        if above[0] > below[0]:
            return majority(self.votes(below[1]))
        votes = self.votes(above[1])
        inside = [j for inner in i.called("calls") for j in inner]
        if any(j.opcode in PRODUCTS for j in (i, *inside)):
            # the last phase only: nothing of a phase needs results of a later one
            last = max((PHASES.index(origin.phase) for origin in votes), default=0)
            votes = {o: weight for o, weight in votes.items() if o.phase == PHASES[last]}
        return majority(votes)

    def votes(self, nearest: tuple[Instruction, ...]) -> Votes:
        """Votes of those that have an origin, by the bytes they make."""
        votes = self.known.setdefault(id(nearest), {})
        for i in () if votes else nearest:
            if (origin := self.own[i]) is not None:
                _add(votes, {origin: size(i.shape)})
        return votes


def _spread(
    own: Mapping[Instruction, Origin | None], steps: Mapping[Instruction, Sequence[Instruction]]
) -> dict[Instruction, Nearest]:
    """The nearest with an origin of each instruction, along steps; each step is taken once."""
    back: dict[Instruction, list[Instruction]] = defaultdict(list)
    for key, others in steps.items():
        for other in others:
            back[other].append(key)
    found: dict[Instruction, Nearest] = {
        k: (0, (k,)) for k, origin in own.items() if origin is not None
    }
    edge, distance = list(found), 0
    while edge:
        distance += 1
        reached: dict[Instruction, list[tuple[Instruction, ...]]] = defaultdict(list)
        for key in edge:
            for before in back[key]:
                if before not in found:
                    reached[before].append(found[key][1])
        for key, parts in reached.items():
            one = all(part is parts[0] for part in parts)  # one and the same set stays itself
            union = parts[0] if one else tuple(islice(dict.fromkeys(chain(*parts)), MOST_VOTERS))
            found[key] = distance, union
        edge = list(reached)
    return found


def _steps(
    own: Mapping[Instruction, Origin | None], computations: Iterable[Computation]
) -> tuple[dict[Instruction, list[Instruction]], dict[Instruction, list[Instruction]]]:
    """Producers and users of each instruction but of loops.

    What a loop without an origin carries is used by the loop's body.
    """
    up: dict[Instruction, list[Instruction]] = {}
    down: dict[Instruction, list[Instruction]] = defaultdict(list)
    for i in chain.from_iterable(computations):
        used = [(operand, i) for operand in dict.fromkeys(i.operands)]
        if i.opcode not in LOOPS:
            up[i] = [operand for operand, _ in used]
        if i.opcode == "while" and own[i] is None:
            used += _carried(i)
        for operand, user in used:
            if operand.opcode not in LOOPS:
                down[operand].append(user)
    return up, down


def _carried(loop: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
    """What stands at each place of a loop's argument, and the value of the body that it becomes."""
    argument, (body,) = loop.operands[0], loop.called("body")
    values = dict(enumerate(argument.operands if argument.opcode == "tuple" else ()))
    for value in body.parameters[0].users:
        if value.opcode == "get-tuple-element":
            if (place := int(value.attribute("index") or 0)) in values:
                yield values[place], value


def _callers(module: Module) -> dict[Computation, Instruction | None]:
    """Computations that run as blocks of their own (a fusion's is one kernel), callers first.

    Each with the instruction that enters it; None for the entry.
    """
    callers: dict[Computation, Instruction | None] = {module.entry: None}
    waiting = [module.entry]
    for computation in waiting:
        for i in computation:
            for inner in i.called("calls") if i.opcode == "async-start" else i.blocks:
                if inner not in callers:
                    callers[inner] = i
                    waiting.append(inner)
    return callers
