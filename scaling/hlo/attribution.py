"""The origin of every instruction of a module: from its own name, else from its neighbours.

%f = fusion(...), calls=%body     the names inside, those of matrix products first
%combined = (...) all-reduce(...) each name weighs as its operand
%copy = copy(%x)                  no name: where the nearest instructions with one come from
%dot.7.remat = dot(...)           computed once more by XLA's rematerialisation: remat
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from scaling.hlo.name_stack import PHASES, Votes, majority, read_name, single_names
from scaling.hlo.parse import Computation, Instruction, Module
from scaling.hlo.shapes import arrays, size
from scaling.program.ir import Origin

Key = tuple[str, str]  # (computation, instruction)
Node = tuple[Computation, Instruction]

CLONE = re.compile(r"\.remat\d*$")  # added to the name by XLA's hlo_rematerialization.cc
LOOPS = ("while", "conditional")
CALLING = ("fusion", "call", "async-start")  # what they do stands in the computation they call
NAMELESS = ("parameter", "constant", "tuple", "get-tuple-element")
EMPTY = (*NAMELESS, "bitcast", "broadcast", "iota")  # no work of their own inside a fusion
PRODUCTS = ("dot", "convolution", "custom-call")
MOVES = (
    "dynamic-slice", "dynamic-update-slice", "slice", "copy", "transpose", "reshape", "concatenate",
    "pad",
)  # fmt: skip


def origins(module: Module) -> dict[Key, Origin]:
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
    own: dict[Key, Origin | None] = {}
    for name in callers:
        own |= _own(module.computations[name], module)
    found: dict[Key, Origin] = {}
    for name, caller in callers.items():
        around = found[caller] if caller else Origin()
        for i in module.computations[name]:
            origin = own[name, i.name]
            if i.opcode.endswith(("-done", "-update")):
                origin = found[name, i.operands[0]]
            elif origin is None and i.opcode not in (*LOOPS, "parameter", "constant"):
                origin = _nearest((module.computations[name], i), own, module)
            found[name, i.name] = around if origin is None else origin
    return found


def _own(computation: Computation, module: Module) -> dict[Key, Origin | None]:
    """Votes of the instructions' own names; none where one instruction serves many others."""
    found: dict[Key, Origin | None] = {}
    originals: set[str] = set()
    for i in computation:
        origin = None if i.opcode in NAMELESS else majority(_votes(i, computation, module))
        if i.opcode in EMPTY and not origin:
            origin = None  # it does nothing itself: what is around tells more
        original = CLONE.sub("", i.name)
        if origin is not None and origin.phase in ("forward", "backward") and original in originals:
            origin = Origin("remat", origin.layer)
        originals.add(original)
        found[computation.name, i.name] = origin
    return found


def _votes(i: Instruction, computation: Computation, module: Module) -> Votes:
    """Votes of what it calls, else those of its `op_name`."""
    kinds: tuple[Votes, Votes, Votes] = ({}, {}, {})  # matrix products, other arithmetic, moves
    for name in i.called("calls") or i.called("to_apply") if i.opcode in CALLING else ():
        inner = module.computations[name]
        for j in inner:
            if j.opcode not in EMPTY and any(array.dims for array in arrays(j.shape)):
                kind = 0 if j.opcode in PRODUCTS else 2 if j.opcode in MOVES else 1
                _add(kinds[kind], _votes(j, inner, module))
    return next(filter(None, kinds), None) or _named(i, computation)


def _named(i: Instruction, computation: Computation) -> Votes:
    """Votes of the names in an `op_name`; of a combined collective's, each weighs as its operand.

    Elsewhere each weighs as the result, of which a buffer updated in place counts with the update.
    """
    names, operands = list(single_names(i.op_name)), computation.operands(i)
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


def _nearest(start: Node, own: Mapping[Key, Origin | None], module: Module) -> Origin | None:
    """Origin of the closest instructions with one; loops without one are not walked through."""
    producers, users = [start], [start]
    seen = {(start[0].name, start[1].name)}
    while producers or users:
        producers = _fresh((p for node in producers for p in _producers(node)), seen)
        users = _fresh((u for node in users for u in _users(node, own, module)), seen)
        votes = _known(producers, own)
        if _multiplies(start[1], module):
            votes = _latest(votes)
        if votes := votes or _known(users, own):
            return majority(votes)
    return None


def _known(nodes: Iterable[Node], own: Mapping[Key, Origin | None]) -> Votes:
    """Votes of those that have an origin, by the bytes they make."""
    votes: Votes = {}
    for computation, i in nodes:
        if (origin := own[computation.name, i.name]) is not None:
            _add(votes, {origin: size(i.shape)})
    return votes


def _latest(votes: Votes) -> Votes:
    """The votes for the last phase: nothing of a phase needs results of a later one."""
    last = max((PHASES.index(origin.phase) for origin in votes), default=0)
    return {origin: weight for origin, weight in votes.items() if origin.phase == PHASES[last]}


def _multiplies(i: Instruction, module: Module) -> bool:
    """Return True for a matrix product, alone or in a fusion."""
    inside = [j for name in i.called("calls") for j in module.computations[name]]
    return any(j.opcode in PRODUCTS for j in (i, *inside))


def _producers(node: Node) -> Iterator[Node]:
    computation, i = node
    if i.opcode not in LOOPS:
        yield from ((computation, operand) for operand in computation.operands(i))


def _users(node: Node, own: Mapping[Key, Origin | None], module: Module) -> Iterator[Node]:
    """Users; what a loop without an origin carries is used by the loop's body."""
    computation, i = node
    for user in computation.users[i.name] if i.opcode not in LOOPS else ():
        yield computation, user
        for loop in computation.users[user.name] if user.opcode == "tuple" else ():
            if loop.opcode == "while" and own[computation.name, loop.name] is None:
                carried = {n for n, name in enumerate(user.operands) if name == i.name}
                yield from _carried(module.computations[loop.called("body")[0]], carried)


def _carried(body: Computation, positions: set[int]) -> Iterator[Node]:
    """The values of a loop's body that stand at these positions of its argument."""
    for value in body.users[body.parameters[0].name]:
        if value.opcode == "get-tuple-element" and int(value.attribute("index") or 0) in positions:
            yield body, value


def _fresh(nodes: Iterable[Node], seen: set[Key]) -> list[Node]:
    fresh = {(c.name, i.name): (c, i) for c, i in nodes if (c.name, i.name) not in seen}
    seen.update(fresh)
    return list(fresh.values())


def _callers(module: Module) -> dict[str, Key | None]:
    """Computations that run as blocks of their own (a fusion's is one kernel), callers first.

    Each with the instruction that enters it; None for the entry.
    """
    callers: dict[str, Key | None] = {module.entry.name: None}
    waiting = [module.entry]
    for computation in waiting:
        for i in computation:
            for name in i.called("calls") if i.opcode == "async-start" else i.blocks:
                if name not in callers:
                    callers[name] = computation.name, i.name
                    waiting.append(module.computations[name])
    return callers
