"""The cell magic of notebooks, after `%load_ext scaling`: the price of the call at a cell's end,
which is not made.

    %%price --cluster dgx-h100
    step(params, batch)
"""

import ast
import shlex
import sys
from typing import Any

import scaling as sc
from scaling.cli.commands import HINTS, OWN
from scaling.cli.generated import Generated, parse_command
from scaling.meshes.errors import InputError

CELL, TAKEN = "<%%price>", "scaling takes the arguments"  # no name of a notebook has blanks


def load_ipython_extension(ipython: Any) -> None:
    """Register %%price, as `%load_ext scaling` asks for."""

    def price(line: str, cell: str) -> Any:
        try:
            return priced_cell(line, cell, ipython.user_ns)
        except InputError as error:  # as a command says it, without our lines
            print(f"error: {error}", file=sys.stderr)

    ipython.register_magic_function(price, magic_kind="cell", magic_name="price")


def priced_cell(line: str, cell: str, names: dict[str, Any]) -> Any:
    """The price of the call that a cell ends with; what stands before it is run.

    Args:
        line: options, as of `scaling price`; %%price --help prints them, and runs nothing.
        names: of the notebook, which the cell sees and adds to.

    Raises:
        InputError: an option that there is not, no call at the end, a step without a price.
    """
    example = "%%price --cluster dgx-h100, and below it a cell that ends with step(x, y)"
    face = Generated("scaling.cli.magic:options", example, (), OWN, texts=HINTS)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"%%price {line}: {error}") from None
    command = parse_command("%%price", face, words)
    if command is None:
        return None
    body = ast.parse(cell, CELL).body
    last = body.pop() if body else None
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        raise InputError("%%price: end the cell with the call of a jitted step: step(x, y)")
    exec(compile(ast.Module(body, []), CELL, "exec"), names)
    call = last.value
    call.func, call.args = (
        ast.copy_location(ast.Name(TAKEN, ast.Load()), call),
        [call.func, *call.args],
    )
    given = {**names, TAKEN: lambda *arguments, **keywords: (arguments, keywords)}
    (step, *arguments), keywords = eval(compile(ast.Expression(call), CELL, "eval"), given)
    return sc.predict_step(step, *arguments, step_kwargs=keywords, **command.given)


def options(
    cluster: str,
    *,
    nodes: int | None = None,
    mesh: str | None = None,
    tokens: float | None = None,
    what_if: tuple[str, ...] = (),
    trips: tuple[str, ...] = (),
    branches: tuple[str, ...] = (),
    kernels: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> None:
    """Price the call that a notebook's cell ends with, which is not made.

    Args:
        cluster: catalogue name (`scaling cluster list`) or TOML file.
        nodes: number of hosts; None: as many as the mesh needs.
        mesh: axes of any names, outermost first, for a step whose arguments carry no mesh:
            data=8,model=8; None: that of the arguments, else one device.
    """
