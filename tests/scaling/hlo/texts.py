"""Short HLO modules: one instruction per line or between "; ", without what all lines share.

    text("x = f32[8] parameter(0); y = f32[8] call(%x), to_apply=%f", f="a = ...; b = ...")

The last instruction of a computation is its ROOT.
"""

import re

from scaling.hlo.parse import Module, parse_module

ADD = "a = f32[] parameter(0); b = f32[] parameter(1); sum = f32[] add(%a, %b)"


def text(main: str, header: str = "", **others: str) -> str:
    """A scheduled module of an entry `main` and other computations by name."""
    blocks = [_block(f"%{name}", body) for name, body in others.items()]
    return "\n".join(
        [f"HloModule m, is_scheduled=true{header}\n", *blocks, _block("ENTRY %main", main)]
    )


def module(main: str, header: str = "", **others: str) -> Module:
    """The same, parsed."""
    return parse_module(text(main, header, **others))


def _block(head: str, body: str) -> str:
    *lines, last = (line.strip() for line in re.split(r";\s|\n", body) if line.strip())
    inside = "".join(f"  %{line}\n" for line in lines)
    return f"{head} () -> f32[] {{\n{inside}  ROOT %{last}\n}}\n"
