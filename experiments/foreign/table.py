"""The table of the collection, and its page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from experiments.foreign.result import FLOPS_GOAL, MEMORY_GOAL, Priced
from scaling.meshes.units import format_size, format_time
from scaling.report.formatting import columns

HEADS = [
    "program",
    "GPUs",
    "glue",
    "seconds",
    "price",
    "FLOPs",
    "x least",
    "peak",
    "memory",
    "judged",
]
BLIND = "blind_"  # programs whose work was committed before their first price
WORDS = """\
glue: lines of the file's `price`, what a user adds to the program. seconds: from the call to the
price, compilation included, on two cores. FLOPs: products of the compiled program
over those counted by hand in the file. x least: the price over the time at the chip's peaks of what
was counted by hand, FLOPs or bytes. memory: our peak over the compiler's. judged: by
`experiments/foreign/result.py`; nothing was run on a GPU."""


def table(rows: Sequence[Priced]) -> str:
    """One line for each program."""
    return "\n".join(columns([HEADS, *map(_line, rows)], left=(0, len(HEADS) - 1)))


def _line(row: Priced) -> list[str]:
    start = [row.name, str(row.devices or ""), str(row.glue), f"{row.seconds:.1f}"]
    if row.error:
        return [*start, "", "", "", "", "", row.judgement]
    ratios = [ratio(row.flops_ratio), ratio(row.times_least, 1)]
    memory = [format_size(row.peak), ratio(row.peak_ratio)]
    return [*start, format_time(row.time), *ratios, *memory, row.judgement]


def ratio(value: float | None, digits: int = 3) -> str:
    """A ratio as the table shows it; "" where there is none."""
    return "" if value is None else f"{value:.{digits}f}"


def summary(rows: Sequence[Priced]) -> str:
    """Counts and medians, in sentences."""
    made = [row for row in rows if not row.error]
    judged = counted(row.judgement for row in rows)
    flops = [r.flops_ratio for r in made if r.flops_ratio]
    peaks = [r.peak_ratio for r in made if r.peak_ratio]
    lines = [f"{len(rows)} programs, {len(made)} with a price: {judged}."]
    if made:
        seconds, glue = ([getattr(r, name) for r in made] for name in ("seconds", "glue"))
        lines += [
            f"Glue: median {median(glue):g} lines, most {max(glue)}. "
            f"Seconds: median {median(seconds):.1f}, most {max(seconds):.1f}; "
            f"memory of the process at most {format_size(max(r.memory for r in made))}.",
            f"FLOPs: {within(flops, FLOPS_GOAL)} of the count by hand. "
            f"Peak memory: {within(peaks, MEMORY_GOAL)} of the compiler's.",
        ]
    return "\n".join(lines)


def within(ratios: Sequence[float], goal: float) -> str:
    """How many ratios lie within a goal of 1."""
    near = sum(abs(ratio - 1) <= goal for ratio in ratios)
    return f"{near} of {len(ratios)} within {goal:.0%}"


def counted(judgements: Iterable[str]) -> str:
    """How many programs are judged by which word, the most frequent first."""
    return ", ".join(f"{n} {word}" for word, n in Counter(judgements).most_common())


def page(
    rows: Sequence[Priced],
    commit: str,
    versions: Mapping[str, str],
    earlier: str = "",
) -> str:
    """README.md of the results; `earlier` is its part on an earlier commit."""
    blind = [row for row in rows if row.name.startswith(BLIND)]
    chosen = (
        f"Counted, and committed, before their first price: {summary(blind)}\n\n" if blind else ""
    )
    packages = ", ".join(f"{name} {found}" for name, found in versions.items())
    titles = "\n".join(f"- `{row.name}`: {row.title}.{_remarks(row)}" for row in rows)
    return (
        f"# Programs of others, priced\n\nCommit {commit}, {packages}. Made by "
        f"`python -m experiments.foreign --out experiments/results`.\n\n{summary(rows)}\n\n"
        f"{chosen}{WORDS}\n\n```\n{table(rows)}\n```\n\n{earlier}## The programs\n\n{titles}\n"
    )


def _remarks(row: Priced) -> str:
    """What is refused, open or far from the count, and why."""
    said = [f" With {row.packages}."] * bool(row.packages)
    said += [f" Refused: {row.error}."] * bool(row.error)
    if row.state_by_hand:
        stored, state = format_size(row.stored), format_size(row.state_by_hand)
        said.append(f" Arguments, results, constants {stored}; weights, moments by hand {state}.")
    said += [f" Not known: {', '.join(row.unknown)}."] * bool(row.unknown)
    said += [f" Warned: {warning}." for warning in row.warnings]
    said += [f" Note: {row.note}."] * bool(row.note)
    return "".join(said)
