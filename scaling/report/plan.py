"""Predictions side by side: the plans of a run and why the others lose, and its scaling curves.

plans of llama3-8b on dgx-h100, 64 devices: 10 of 7,728 configurations, 5.1 s
   mesh              microbatches  remat      zero    step  tokens/s    MFU   memory
1  data=8,fsdp=8                8  selective     3  5.89 s   712,000  65.1%  52.2 GB
   compute: ...
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.meshes.units import (
    format_days,
    format_dollars,
    format_memory,
    format_time,
    percent,
    three_digits,
)
from scaling.pictures.curves import efficiency
from scaling.planning.front import FrontPoint
from scaling.planning.result import Plan, Plans, RuleOfThumb
from scaling.planning.search import settings_of
from scaling.report.formatting import columns, folded, table_lines, terminal_width, workload

KWH, DAY = 3.6e6, 86_400.0  # J, s
MOST_OF_FRONT = 12  # rows of a page; all are in --csv and --json
TEXTS = "mesh", "remat", "cluster", "besides"  # columns that stand on the left
WHERE = "cluster", "devices", "sequences", "fits"  # columns where plans differ in them
CURVES_HEAD = (
    *("devices", "mesh", "sequences", "step", "from", "to", "tokens/s", "MFU", "efficiency"),
)


def plan_page(result: Plans) -> str:
    """The page of `scaling plan`."""
    lines = [_title(result)]
    if result.error:
        lines.append(result.error)
    if result.plans:
        lines += _table(result.plans)
        lines += _totals(result.plans[0])
    if result.clusters:
        lines += ["the best of each cluster", *_table(result.clusters)]
    if result.pareto:
        lines += _front(result.pareto)
    if result.beyond:
        lines += ["better, but beyond the risk of running out of memory", *_table(result.beyond)]
    lines += [result.network] if result.network else []
    if result.losers:
        count = lambda n: "" if n is None else f"{n:,}"
        rows = [(f"  {x.what}", count(x.configurations), x.why) for x in result.losers]
        lines += ["why others lose", *columns(rows, left=(0, 2))]
    lines += _rules(result.rules)
    page = [folded("\n".join(lines)), *(f"warning: {text}" for text in result.warnings)]
    page += [f"next: {result.next}"] if result.next else []  # in one line, to be copied
    return "\n".join(page)


def _rules(rules: Sequence[RuleOfThumb]) -> list[str]:
    """The rules of thumb that the first plan breaks, at what cost of following; and the others."""
    broken = [
        (f"  {x.rule} ({x.source})", f"{'at most ' * x.at_most}{x.cost:+.1%}", x.plan or "")
        for x in rules
        if x.cost is not None
    ]
    followed = "; ".join(x.rule for x in rules if x.follows)
    head = ["rules of thumb that the first plan breaks, and what following them costs"]
    lines = [*head, *columns(broken, left=(0, 2))] if broken else []
    return [*lines, f"rules of thumb that it follows: {followed}"] if followed else lines


def _table(plans: Sequence[Plan]) -> list[str]:
    """A row for each plan, with why it is there; below the row where a line is too short."""
    every = [_cells(plan) for plan in plans]
    alike = [name for name in WHERE if len({cells[name] for cells in every}) == 1]
    alike += [] if any(plan.besides for plan in plans) else ["besides"]
    alike += ["$/M tokens"] if {"cluster", "devices"} <= {*alike} else []
    names = [name for name in every[0] if name not in alike]
    left = [i for i, name in enumerate(names) if name in TEXTS]
    head, *rows = columns([names, *([cells[n] for n in names] for cells in every)], left=left)
    reasons = [plan.why for plan in plans]
    pairs = list(zip(rows, reasons, strict=True))
    if len(head) + max(map(len, reasons)) + 2 <= terminal_width():
        return [f"{head}  why", *(f"{row}  {why}" for row, why in pairs)]
    indent = " " * (len(str(len(rows))) + 2)
    return [head, *(line for row, why in pairs for line in (row, indent + why))]


def _cells(plan: Plan) -> dict[str, str]:
    """The texts of a row by the name of their column."""
    run, p, dollars = plan.run, plan.prediction, plan.dollars_per_million_tokens
    memory, likely = p.memory, p.memory.fit_probability
    return {
        "": str(plan.rank),
        "cluster": plan.cluster.name,
        "devices": f"{p.devices:,}",
        "mesh": str(run.mesh),
        "sequences": f"{run.batch.global_batch:,}",
        "microbatches": str(run.batch.microbatches),
        "remat": str(run.remat),
        "zero": str(settings_of(run).get("sharding.zero_stage", "-")),
        "step": format_time(p.step_time),
        "tokens/s": "-" if p.tokens_per_second is None else three_digits(p.tokens_per_second),
        "MFU": "-" if p.mfu is None else percent(p.mfu),
        "memory": format_memory(memory.peak if memory.needed is None else memory.needed),
        "fits": "-" if memory.needed is None or likely is None else f"{likely:.0%}",
        "$/M tokens": "-" if dollars is None else f"{dollars:.3g}",
        "besides": plan.besides,
    }


def _front(points: Sequence[FrontPoint]) -> list[str]:
    """The first of the Pareto front, the fastest first."""
    head = ("devices", "mesh", "microbatches", "remat", "step", "tokens/s", "$/M tokens", "free")
    several = len({point.cluster.name for point in points}) > 1
    rows = [
        (
            f"{point.devices:,}",
            f"{point.run.mesh}{f' on {point.cluster.name}' if several else ''}",
            str(point.run.batch.microbatches),
            str(point.run.remat),
            format_time(point.step_time),
            three_digits(point.tokens_per_second),
            "-" if point.price is None else f"{point.dollars_per_million_tokens:.3g}",
            f"{percent(point.share)} of memory",
        )
        for point in points[:MOST_OF_FRONT]
    ]
    more = f", the fastest {len(rows)}" if len(points) > len(rows) else ""
    title = f"Pareto front of time, money and memory margin: {len(points):,} configurations{more}"
    return [title, *columns([head, *rows], left=(1, 3))]


def _title(result: Plans) -> str:
    counts = (
        f"{result.space:,} configurations in {format_time(result.seconds)}: {result.priced:,} "
        f"priced, {result.pruned:,} left out by a bound, {result.infeasible:,} cannot run"
    )
    counts += f"\ncertificate: {result.certificate}" if result.certificate else ""
    if not result.plans:
        return counts
    first = result.plans[0].prediction
    where = f"{first.name} on {result.plans[0].cluster.name}, {first.devices:,} devices"
    source = "closed form"
    if result.verified:
        source = f"compiled programs of the first {result.verified}, closed form of the others"
    title = f"plans for {where}, by {result.objective}{result.limits}, {source}"
    asked = [f"constraints: {', '.join(result.constraints)}"] if result.constraints else []
    if result.critical_batch:
        asked.append(
            "batches are compared at the same loss, which takes 1 + B / B_crit times the fewest "
            f"tokens: B_crit is {three_digits(result.critical_batch)} tokens"
        )
    return "\n".join([title, workload(result.plans[0].run), *asked, counts])


def _totals(plan: Plan) -> list[str]:
    if plan.total_time is None or plan.device_hours is None:
        return []
    days, hours = format_days(plan.total_time), three_digits(plan.device_hours)
    used = f"the whole training: {days}{_span(plan.total_time_range, DAY)}, {hours} device-hours"
    if plan.energy is not None:
        used += f", {three_digits(plan.energy / KWH)} kWh{_span(plan.energy_range, KWH)}"
        used += f" for {format_dollars(plan.electricity or 0.0)}"
    if plan.money is not None and plan.price_range is not None:
        used += (
            f", {format_dollars(plan.money)}{_span(plan.money_range)} at {plan.price_range.words}"
        )
    if plan.goodput is not None and plan.checkpoint_interval is not None:
        used += (
            f"; failures and saves leave {percent(plan.goodput)} of the time, with a save every "
        )
        used += format_time(plan.checkpoint_interval)
    return [used]


def _span(ends: tuple[float, float] | None, unit: float = 1.0) -> str:
    """` (1.2 to 3.4)`; "" where an end is not known."""
    return f" ({' to '.join(three_digits(end / unit) for end in ends)})" if ends else ""


def curves_table(curves: Mapping[str, Sequence[Any]]) -> str:
    """Name -> predictions by number of devices, each curve with its table."""
    lines = []
    for name, predictions in curves.items():
        rows = [
            (
                f"{p.devices:,}",
                p.mesh,
                f"{p.pricing.run.batch.global_batch:,}",
                *map(format_time, (p.step_time, p.step_time_low, p.step_time_high)),
                three_digits(p.tokens_per_second),
                percent(p.mfu),
                percent(share),
            )
            for p, share in zip(predictions, efficiency(predictions), strict=True)
        ]
        table = table_lines(CURVES_HEAD, rows, left=(1,))
        lines += [f"{name} scaling", *(f"  {line}" for line in table)]
    return "\n".join(lines)
