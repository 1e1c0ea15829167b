"""Measured cases for a reader: a line as each ends, and a table of all at the end."""

from typing import Any

COLUMNS = ("case", "attention", "step ms", "spread", "tokens/s", "TFLOP/s", "MFU", "peak GiB",
           "predicted ms", "error")  # fmt: skip
TERA, GIB, MILLI = 1e12, 2**30, 1e-3


def line(case: dict[str, Any]) -> str:
    """One case in one line."""
    if case["status"] != "ok":
        return f"{case['name']}: {case['status']} ({case['error']})"
    cells = dict(zip(COLUMNS, _cells(case), strict=True))
    loss, flash = case["loss"], case["flash_calls"]
    return (
        f"{cells['case']}: {cells['step ms']} ms ({cells['spread']}), "
        f"{cells['tokens/s']} tokens/s, {cells['TFLOP/s']} TFLOP/s per device, "
        f"MFU {cells['MFU']}, peak {cells['peak GiB']} GiB, {cells['attention']} attention "
        f"({flash} cuDNN calls), compiled in {case['compile_seconds']:.0f} s, "
        f"loss {_loss(loss['first'])} -> {_loss(loss['last'])}"
        + ("" if case["loss_falls"] else "  THE LOSS DID NOT FALL")
        + (f"  [{case['note']}]" if case["note"] else "")
    )


def table(document: dict[str, Any]) -> str:
    """All cases of a results document, and the ceilings they can be held against."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for case in document["cases"]:
        blank = (case["name"], case["status"], *[""] * (len(COLUMNS) - 2))
        rows.append(_cells(case) if case["status"] == "ok" else blank)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(_align(cell, w) for cell, w in zip(row, widths, strict=True)) for row in rows
    ]
    return "\n".join([_heading(document), "", *(text.rstrip() for text in lines), "", _LEGEND])


_LEGEND = """\
step: median over windows, spread: least to most. TFLOP/s and MFU credit the model's FLOPs only
(nothing that is recomputed). peak: the allocator's, where this case set it, / the compiler's.
predicted: from the compiled program and this machine's calibration, before the step ran."""


def _heading(document: dict[str, Any]) -> str:
    device, ceilings = document["device"], document["ceilings"]
    peak = device["peak_bf16"]
    rate = ceilings["matmul"]["flops_per_second"]
    copy = ceilings["copy"]["bytes_per_second"]
    of_peak = f" of {peak / TERA:.0f} dense peak" if peak else f" ({device['note']})"
    return (
        f"{device['count']} x {device['kind']}: bf16 matrix product {_number(rate / TERA)} TFLOP/s"
        f"{of_peak}; copy {_number(copy / TERA)} TB/s, read plus written"
    )


def _cells(case: dict[str, Any]) -> tuple[str, ...]:
    time, memory = case["step_time"], case["memory"]
    guess = (case["predicted"] or {}).get("step_time")
    error = case["errors"]["step_time"]
    own = _gib(memory["peak_in_use"]) if memory["is_own"] else "-"
    return (
        case["name"],
        case["attention"],
        f"{time['median'] / MILLI:.2f}",
        f"{time['min'] / MILLI:.2f}-{time['max'] / MILLI:.2f}",
        f"{case['tokens_per_second']:,.0f}",
        _number(case["flops_per_second_per_device"] / TERA),
        "-" if case["mfu"] is None else f"{case['mfu']:.1%}",
        f"{own} / {_gib(memory['compiled']['peak'])}",
        "-" if guess is None else f"{guess / MILLI:.2f}",
        "-" if error is None else f"{error:+.1%}",
    )


def _number(value: float) -> str:
    """Enough digits to tell two values apart, small ones too."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _gib(count: int | None) -> str:
    return "-" if count is None else _number(count / GIB)


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"


def _align(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() or cell in ("-", "") else cell.ljust(width)
