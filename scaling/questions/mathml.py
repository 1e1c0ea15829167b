"""Formulas as MathML, which browsers draw without scripts, fonts or a network.

    C / W * (X - 1) / X        T_comm = 4*D*F / W        B >= C / W

A formula is that of `scaling.meshes.formula`, or several of them with =, ≈, <, > between them.
`T_comm` has a subscript, names of Greek letters become letters, a product of symbols has no sign.
"""

import ast
import re
from html import escape

GREEK = {"alpha": "α", "beta": "β"}
SIGNS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "−", ast.Eq: "=", ast.Lt: "<", ast.LtE: "≤", ast.Gt: ">", ast.GtE: "≥",
    ast.NotEq: "≈",
}  # fmt: skip
TIMES, DOT, NOTHING = "×", "\N{DOT OPERATOR}", "\N{INVISIBLE TIMES}"


def mathml(formula: str) -> str:
    """Return a formula as a `math` element in one line.

    Raises:
        ValueError: it is no arithmetic.
    """
    equal = re.sub(r"(?<![<>=])=(?!=)", "==", formula).replace("≈", "!=")
    return f'<math displaystyle="true">{_drawn(ast.parse(equal, mode="eval").body, equal)}</math>'


def _drawn(node: ast.AST, text: str) -> str:
    """Return the element of one part of a formula."""
    match node:
        case ast.Constant():
            mantissa, _, power = (ast.get_source_segment(text, node) or "").partition("e")
            drawn = f"<mn>{mantissa}</mn>"
            if not power:
                return drawn
            return _row(drawn, _sign(TIMES), f"<msup><mn>10</mn><mn>{int(power)}</mn></msup>")
        case ast.Name(id=name):
            return _symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _row(_sign("−"), _drawn(inner, text))
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return _product(node, text)
        case ast.BinOp(left=base, op=ast.Pow(), right=power):
            return f"<msup>{_factor(base, text)}{_drawn(power, text)}</msup>"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
            second = _factor(right, text) if isinstance(op, ast.Sub) else _drawn(right, text)
            return _row(_drawn(left, text), _sign(SIGNS[type(op)]), second)
        case ast.Compare(left=left, ops=ops, comparators=others):
            pairs = zip(ops, others, strict=True)
            rest = (_sign(SIGNS[type(op)]) + _drawn(one, text) for op, one in pairs)
            return _row(_drawn(left, text), *rest)
        case ast.Call(func=ast.Name(id="sqrt"), args=[inner]):
            # No <msqrt>: its sign grows with its contents only in a font for mathematics.
            return _row(_sign("√"), _sign("("), _drawn(inner, text), _sign(")"))
        case ast.Call(func=ast.Name(id=name), args=parts):
            inside = _sign(",").join(_drawn(part, text) for part in parts)
            return _row(_symbol(name), _sign("("), inside, _sign(")"))
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic")


def _product(node: ast.BinOp, text: str) -> str:
    """Return a product of fractions: what is multiplied after a division begins a new one."""
    chain: list[tuple[ast.AST, bool]] = []  # factor, whether it is below
    left: ast.AST = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult | ast.Div):
        chain.insert(0, (left.right, isinstance(left.op, ast.Div)))
        left = left.left
    fractions: list[tuple[list[ast.AST], list[ast.AST]]] = [([left], [])]
    for factor, below in chain:
        if not below and fractions[-1][1]:
            fractions.append(([], []))
        fractions[-1][below].append(factor)
    drawn = [
        f"<mfrac>{_times(above, text)}{_times(below, text)}</mfrac>" if below
        else _times(above, text, alone=len(fractions) == 1)
        for above, below in fractions
    ]  # fmt: skip
    firsts = (above[0] for above, _ in fractions[1:])
    lasts = ([*above, *below][-1] for above, below in fractions)
    signs = [_between(last, first, DOT) for last, first in zip(lasts, firsts, strict=False)]
    return _row(drawn[0], *(sign + one for sign, one in zip(signs, drawn[1:], strict=True)))


def _times(factors: list[ast.AST], text: str, alone: bool = True) -> str:
    """Return factors beside one another; a single one needs no parentheses where it is alone."""
    if len(factors) == 1 and alone:
        return _drawn(factors[0], text)
    pairs = zip(factors, factors[1:], strict=False)
    others = (_between(left, right) + _factor(right, text) for left, right in pairs)
    return _row(_factor(factors[0], text), *others)


def _between(left: ast.AST, right: ast.AST, letters: str = NOTHING) -> str:
    """Return the sign of a product: a cross beside numbers and words, none between letters.

    Fractions have a dot between them, or else their bars would look like one.
    """
    names = (one.id.partition("_")[0] for one in (left, right) if isinstance(one, ast.Name))
    words = any(len(name) > 1 and name not in GREEK for name in names)
    return _sign(TIMES if _is_number(right) or words else letters)


def _factor(node: ast.AST, text: str) -> str:
    """Return an element, in parentheses if it is a sum."""
    drawn = _drawn(node, text)
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    return _row(_sign("("), drawn, _sign(")")) if is_sum else drawn


def _is_number(node: ast.AST) -> bool:
    """True if what is drawn begins with a digit."""
    while isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub):
        node = node.left
    return isinstance(node, ast.Constant)


def _symbol(name: str) -> str:
    base, _, below = name.partition("_")
    drawn = f"<mi>{escape(GREEK.get(base, base))}</mi>"
    return (
        f"<msub>{drawn}<mtext>{escape(below.replace('_', ' '))}</mtext></msub>" if below else drawn
    )


def _sign(sign: str) -> str:
    return f"<mo>{escape(sign)}</mo>"


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"
