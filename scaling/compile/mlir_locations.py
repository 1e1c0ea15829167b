"""The names in a lowered text: which scope each operation is in, what each argument is called; and
the lines of code that its operations come from.

    %0 = stablehlo.dot_general ... loc(#loc8)                 the operation
    #loc8 = loc("jit(step)/layers/mlp/dot_general"(#loc6))    its name, and a stack of source lines

MLIR prints them as locations (mlir.llvm.org/docs/Dialects/Builtin, "Location Attributes"), beside
the files and lines of whoever called the function. The names end up in the compiled program, where
they tell the layer of a kernel and the category of a buffer. The innermost line of an operation is
what its price is shown by; those of its callers decide nothing.
"""

import re
from functools import cache

TEXT = r'"(?:[^"\\]|\\.)*"'
DEFINED = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
USED = re.compile(rf"loc\((#loc\d*|{TEXT})\)")
NAME = re.compile(rf"({TEXT})(?!:)")  # of a file it is followed by :line
FUSED = re.compile(r"fused(?:<.*>)?\[(.*)\]")
PART = re.compile(rf"#loc\d*|{TEXT}")
REFERENCE = re.compile(r"#loc\d+")
LINE = re.compile(rf"({TEXT}):(\d+)")


def names_in(text: str) -> list[str]:
    """The name of every operation and argument in `lowered.as_text(debug_info=True)`, in order.

    "" for those without one.
    """
    known = dict(DEFINED.findall(text))
    body = DEFINED.sub("", text)
    return [_name(where, known) for where in USED.findall(body)]


def lines_in(text: str) -> list[str]:
    """The line of code, `"/opt/step.py":6`, of every operation of a function's body, in order.

    "" for those without one.
    """
    known = dict(DEFINED.findall(text))

    @cache
    def line(where: str) -> str:
        where = known.get(where, where)
        if found := LINE.match(where):
            return f"{found[1]}:{found[2]}"
        return next(filter(None, map(line, REFERENCE.findall(where))), "")

    # An operation has a scope within its function's: "jit(step)/mul"; "jit(step)" is the call.
    scoped = (where for where in known if "/" in _name(where, known))
    inner = {where: line(where) for where in scoped}
    return [inner.get(where, "") for where in USED.findall(DEFINED.sub("", text))]


def _name(where: str, known: dict[str, str]) -> str:
    """The name in a location, or in the location that it refers to."""
    where = known.get(where, where)
    if found := NAME.match(where):
        return found[1].strip('"')
    if several := FUSED.fullmatch(where):
        return ";".join(_name(part, known) for part in PART.findall(several[1]))
    return ""
