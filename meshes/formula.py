"""Formulas as text: arithmetic over symbols that is shown, filled in with numbers, and computed.

    V * (N - 1) / (N * W)

Operators + - * / **, parentheses, numbers, symbols, and min, max, sqrt, exp, ceil, floor. Because
the formula that a page shows is computed from its own text, it cannot differ from its answer.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "ceil": math.ceil,
    "floor": math.floor,
}
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Input:
    """One symbol of a formula: its number and what it stands for."""

    symbol: str  # the guide's letter where it has one
    value: float | int
    unit: str = ""
    meaning: str = ""


def evaluate(formula: str, values: Mapping[str, Any]) -> float:
    """Return the number of a formula.

    Args:
        formula: see above; symbols are the keys of `values`.
        values: a number for each symbol, or an array of them if the formula has only operators.

    Raises:
        ValueError: anything but arithmetic, or a symbol without a number.
    """
    value: float = 1.0 * _number(ast.parse(formula, mode="eval").body, values)
    return value


def substituted(formula: str, texts: Mapping[str, str]) -> str:
    """Return the formula with each symbol replaced by a text; words without one are kept."""
    return _SYMBOL.sub(lambda word: texts.get(word[0], word[0]), formula)


def symbols(formula: str) -> list[str]:
    """Return the symbols of a formula in their order, without the names of functions."""
    return [word for word in dict.fromkeys(_SYMBOL.findall(formula)) if word not in FUNCTIONS]


def _number(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return BINARY[type(op)](_number(left, values), _number(right, values))
        case ast.Call(func=ast.Name(id=name), args=inner, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_number(part, values) for part in inner))
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic over {', '.join(values)}")
