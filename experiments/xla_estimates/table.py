"""The tables of XLA's estimates, and their page."""

from collections.abc import Mapping, Sequence

from experiments.xla_estimates.case import Row
from scaling.meshes.units import format_size, format_time
from scaling.report.formatting import columns

WORDS = """\
One H100 (`network`: eight), compiled without it; one device, one call. By hand: how stands below.
cost_analysis: XLA's HloCostAnalysis of the compiled module, which is what
`Compiled.cost_analysis()` returns where the GPU is; before: `Lowered.cost_analysis()`. x: over the
count by hand; "none": -1, its word for a call that it does not know, which it adds to the rest.
Seconds: the compiler's own estimates of its instructions, each once, and times the iterations of
its loop; without: instructions that it has none for; least: of what was counted by hand, at the
chip's peaks. Nothing was run on a GPU."""


def tables(rows: Sequence[Row]) -> str:
    """FLOPs, bytes, seconds and memory, a line for each program."""
    parts = (_flops(rows), _bytes(rows), _seconds(rows), _memory(rows))
    return "\n\n".join("\n".join(columns(part)) for part in parts)


def ratio(value: float, hand: float | None) -> float | None:
    """An estimate over the count by hand; None where nothing was counted."""
    return value / hand if hand else None


def _flops(rows: Sequence[Row]) -> list[list[str]]:
    head = ["FLOPs", "by hand", "cost_analysis", "x", "before", "ours", "x"]
    lines = [
        [
            *(row.name, _number(row.flops), _number(row.xla_flops)),
            *(_times(row.xla_flops, row.flops), _number(row.traced_flops)),
            *(_number(row.our_flops), _times(row.our_flops, row.flops)),
        ]
        for row in rows
    ]
    return [head, *lines]


def _bytes(rows: Sequence[Row]) -> list[list[str]]:
    head = ["bytes", "by hand", "cost_analysis", "x", "ours", "x"]
    lines = [
        [
            *(row.name, _number(row.bytes), _number(row.xla_bytes)),
            *(_times(row.xla_bytes, row.bytes), _number(row.our_bytes)),
            _times(row.our_bytes, row.bytes),
        ]
        for row in rows
    ]
    return [head, *lines]


def _seconds(rows: Sequence[Row]) -> list[list[str]]:
    head = ["seconds", "least", "XLA", "with loops", "without", "ours", "from", "to", "network"]
    lines = [
        [
            *(row.name, format_time(row.least_seconds) if row.least_seconds else ""),
            *(format_time(row.xla_seconds), format_time(row.xla_seconds_looped)),
            *(str(row.unestimated or ""), format_time(row.our_seconds), format_time(row.our_low)),
            "open" if row.our_high is None else format_time(row.our_high),
            format_time(row.network) if row.network else "",
        ]
        for row in rows
    ]
    return [head, *lines]


def _memory(rows: Sequence[Row]) -> list[list[str]]:
    head = ["memory", "arguments", "results", "donated", "temporary", "sum", "peak", "ours"]
    lines = [
        [
            *(row.name, format_size(row.arguments), format_size(row.results)),
            *(format_size(row.donated), format_size(row.temporary), format_size(planned(row))),
            "" if row.compiler_peak is None else format_size(row.compiler_peak),
            format_size(row.our_peak),
        ]
        for row in rows
    ]
    return [head, *lines]


def planned(row: Row) -> int:
    """Bytes that `memory_analysis` states, all together; what is donated counts once."""
    return row.arguments + row.results - row.donated + row.temporary


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _times(value: float, hand: float | None) -> str:
    found = ratio(value, hand)
    if found is None:
        return ""
    return f"{found:.3g}" if found >= 0 else "none"


def markdown(rows: Sequence[Row]) -> str:
    """The table of docs/xla_estimates.md: FLOPs and bytes over the count by hand, and seconds."""
    head = [
        "| | FLOPs, XLA | ours | bytes, XLA | ours | seconds, least | XLA | ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(_markdown_line, rows)])


def _markdown_line(row: Row) -> str:
    cells = (
        f"`{row.name}`: {row.shows}",
        *(_times(row.xla_flops, row.flops), _times(row.our_flops, row.flops)),
        *(_times(row.xla_bytes, row.bytes), _times(row.our_bytes, row.bytes)),
        format_time(row.least_seconds) if row.least_seconds else "",
        format_time(row.xla_seconds),
        format_time(row.our_seconds) + (" or more" if row.our_high is None else ""),
    )
    return f"| {' | '.join(cells)} |"


def page(rows: Sequence[Row], commit: str, versions: Mapping[str, str]) -> str:
    """README.md of the results."""
    packages = ", ".join(f"{name} {found}" for name, found in versions.items())
    how = "\n".join(f"- `{row.name}`: {row.shows}. By hand: {row.how}." for row in rows)
    return (
        f"# XLA's estimates against counts by hand\n\nCommit {commit}, {packages}. Made by "
        f"`python -m experiments.xla_estimates --out experiments/results`.\n\n{WORDS}\n\n"
        f"```\n{tables(rows)}\n```\n\n{how}\n"
    )
