"""Measured stages for a reader: a line as each ends, and `results.md` of all."""

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.baselines.alternate import SIDES
from experiments.gpu.stages import Stage, result_of, stages

TERA, GIB, MILLI = 1e12, 2**30, 1e-3
Row = tuple[str, ...]

CASES: Row = (
    *("case", "attention", "step ms", "spread", "tokens/s", "TFLOP/s", "MFU", "peak GiB"),
    *("shipped", "calibrated", "absent"),
)
KERNELS: Row = ("kernel", "right", "largest error", "pass", "ms", "TFLOP/s", "predicted ms")
COUNTS: Row = ("case", "kernels", "calls", "absent", "TFLOPs", "absent", "GB", "absent")
TERMS: Row = ("case", "profile of", "term", "predicted ms", "measured ms", "error")

LEGEND = """\
step: median over windows, spread: least to most. TFLOP/s and MFU credit the model's FLOPs only
(nothing that is recomputed). peak: the allocator's / the compiler's. Errors are predicted /
measured - 1 of the step time, predicted before the step ran: by the shipped figures and by this
device's calibration, both from the program that ran; absent: by the shipped figures, from the
program that is compiled for such a chip without one."""


def line(stage: Stage, found: Mapping[str, Any]) -> str:
    """What came of one stage, in a line after its name."""
    took = f"({found['seconds']:.0f} s)"
    if found["status"] != "ok":
        return f"{found['status']}: {found['error']} {took}"
    result = found["result"]
    if stage.kind == "case":
        cells = dict(zip(CASES, _case(stage.argument, result, None), strict=True))
        text = f"{cells['step ms']} ms, MFU {cells['MFU']}, peak {cells['peak GiB']} GiB"
        text += "" if result["loss_falls"] else ", THE LOSS DID NOT FALL"
        return f"{text} {took}"
    if stage.kind == "kernel":
        return f"{'right' if result['right'] else 'WRONG'} {took}"
    return f"done {took}"


def report(document: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    parts = [f"# {_title(document)}", _machine(document)]
    parts += _table("Kernels", KERNELS, _kernel_rows(document))
    parts += _table("Training steps", CASES, _case_rows(document), LEGEND)
    parts += _table("By term, from a profile of three steps", TERMS, _term_rows(document))
    title = "Kernels in the program that ran, and in that compiled for an absent chip"
    parts += _table(title, COUNTS, _count_rows(document))
    parts += _table("PyTorch", ("case", *SIDES, "ratio"), _torch_rows(document))
    parts += _table("Without a result", ("stage", "status", "reason"), _failures(document))
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(document: Mapping[str, Any]) -> str:
    device = (result_of(document, "machine") or {}).get("device")
    words = f"{device['count']} x {device['kind']}" if device else "GPUs"
    return f"{words}, {document['date'][:10]}{', toys' if document['tiny'] else ''}"


def _machine(document: Mapping[str, Any]) -> str:
    found = result_of(document, "machine")
    if found is None:
        return ""
    peak, ceilings = found["device"]["peak_bf16"], found["ceilings"]
    rate, copy = ceilings["matmul"]["flops_per_second"], ceilings["copy"]["bytes_per_second"]
    of_peak = f" of {peak / TERA:.0f} dense peak" if peak else f" ({found['device']['note']})"
    driver = ", ".join(f"{k} {v}" for gpu in (found["driver"] or [])[:1] for k, v in gpu.items())
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"bf16 matrix product {_number(rate / TERA)} TFLOP/s{of_peak}; copy "
        f"{_number(copy / TERA)} TB/s, read plus written.\n\n"
        f"{driver or 'no driver'}; {versions}; commit {found['commit']}."
    )


def _kernel_rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in _of_kind(document, "kernel"):
        right = "yes" if found["right"] else "NO"
        worst = max(found["errors"].values(), key=lambda e: -1.0 if e is None else e)
        error = "not finite" if None in found["errors"].values() else f"{worst:.2%}"
        for each, rate in found["rates"].items():
            speed = _number(rate["flops_per_second"] / TERA)
            milli, predicted = rate["time"]["median"] / MILLI, rate["predicted"]
            guess = "-" if predicted is None else f"{predicted / MILLI:.3f}"
            limit = f"{error} (limit {found['tolerance']:.0%})"
            yield name, right, limit, each, f"{milli:.3f}", speed, guess


def _case_rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in _of_kind(document, "case"):
        absent = None if document["tiny"] else result_of(document, f"absent {name}")
        yield _case(name, found, absent)


def _case(name: str, case: Mapping[str, Any], absent: Mapping[str, Any] | None) -> Row:
    time, memory = case["step_time"], case["memory"]
    guess = (absent or {}).get("predicted", {}).get("shipped", {}).get("step_time")
    return (
        name,
        case["attention"],
        f"{time['median'] / MILLI:.2f}",
        f"{time['min'] / MILLI:.2f}-{time['max'] / MILLI:.2f}",
        f"{case['tokens_per_second']:,.0f}",
        _number(case["flops_per_second_per_device"] / TERA),
        "-" if case["mfu"] is None else f"{case['mfu']:.1%}",
        f"{_gib(memory['peak_in_use'])} / {_gib(memory['compiled']['peak'])}",
        *(_percent(case["errors"].get(p, {}).get("step_time")) for p in ("shipped", "calibrated")),
        _percent(guess / time["median"] - 1 if guess else None),
    )


def _term_rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in _of_kind(document, "case"):
        for profile, compared in found["compared"].items():
            parts = {**compared.get("time", {}), **compared.get("classes", {})}
            for term, pair in parts.items():
                if pair["predicted"] or pair["measured"]:
                    both = (_milli(pair[key]) for key in ("predicted", "measured"))
                    yield name, profile, term, *both, _percent(pair["error"])


def _count_rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in _of_kind(document, "case"):
        absent = (result_of(document, f"absent {name}") or {}).get("counts") or {}
        ran = found["counts"] or {}
        for kind in dict.fromkeys((*ran, *absent)) if ran and absent else ():
            pairs = [
                f"{program.get(kind, {}).get(count, 0.0) / unit:.4g}"
                for count, unit in (("calls", 1), ("flops", TERA), ("bytes", 1e9))
                for program in (ran, absent)
            ]
            yield name, kind, *pairs


def _torch_rows(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in _of_kind(document, "pytorch"):
        rates = [found["tokens_per_second"][side] for side in SIDES]
        ratio = "-" if found["ratio"] is None else f"{found['ratio']:.2f}"
        yield name, *("failed" if rate is None else f"{rate:,.0f}" for rate in rates), ratio


def _failures(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in document["stages"].items():
        if found["status"] != "ok":
            yield name, found["status"], found["error"].replace("|", "/")


def _of_kind(document: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Argument and result of the stages of a kind that have one, in the order of worth."""
    for stage in stages(document):
        if stage.kind == kind and (found := result_of(document, stage.name)) is not None:
            yield stage.argument, found


def _table(title: str, head: Row, rows: Iterator[Row], legend: str = "") -> list[str]:
    """A heading, a table and what it says; nothing without rows."""
    body = list(rows)
    if not body:
        return []
    lines = [head, ("---",) * len(head), *body]
    return [f"## {title}", "\n".join(f"| {' | '.join(cells)} |" for cells in lines), legend]


def _number(value: float) -> str:
    """Enough digits to tell two values apart, small ones too."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _gib(count: int | None) -> str:
    return "-" if count is None else _number(count / GIB)


def _milli(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / MILLI:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
