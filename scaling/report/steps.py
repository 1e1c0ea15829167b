"""The page of `scaling plan-step`: compiled meshes of a step, the best first, and why others lose.

step.py:make on 2 x dgx-h100, 16 devices: 8 of 8 programs compiled, 21 s
   mesh             step                        memory  fits
1  data=16,model=1  12.1 ms (9.1 ms to 15 ms)  12.3 GB  yes
   compute: ...
"""

from scaling.meshes.units import format_memory, format_range, format_time
from scaling.planning.steps import StepPlan, StepPlans
from scaling.report.formatting import columns, folded

HEAD = ("", "mesh", "variant", "step", "range", "memory", "fits")
FITS = {True: "yes", False: "no", None: "?"}
SHOWN = 5  # meshes that were left out


def steps_page(result: StepPlans) -> str:
    """The page."""
    cells = [HEAD, *map(_cells, result.plans)]
    if not any(plan.variant for plan in result.plans):
        cells = [(*row[:2], *row[3:]) for row in cells]
    head, *rows = columns(cells, left=(1,) if len(cells[0]) < len(HEAD) else (1, 2))
    compiled = sum(plan.prediction is not None for plan in result.plans)
    lines = [
        f"{result.name} on {result.cluster.nodes} x {result.cluster.name}, "
        f"{result.cluster.devices:,} devices: {compiled} of {len(result.plans)} programs compiled, "
        f"{format_time(result.seconds)}",
        head,
    ]
    indent = " " * (len(str(len(rows))) + 2)
    for row, plan in zip(rows, result.plans, strict=True):
        lines += [row, indent + plan.why]
    if result.ranked_by:
        lines += [f"not compiled: {len(result.left_out)} meshes, by {result.ranked_by}"]
        left = list(result.left_out.items())[:SHOWN]
        known = lambda s: "cannot run, or does not fit" if s == float("inf") else format_time(s)
        lines += [f"  {mesh}  {known(seconds)}" for mesh, seconds in left]
    return folded("\n".join(lines))


def _cells(plan: StepPlan) -> tuple[str, ...]:
    p = plan.prediction
    first = (str(plan.rank), plan.mesh, plan.variant)
    if p is None:
        return (*first, "-", "-", "-", "-")
    low, high = p.step_time_low, p.step_time_high
    step = f"at least {format_time(low)}" if p.unknown else format_time(p.step_time)
    return (
        *first,
        step,
        "not known" if p.unknown else format_range(low, high),
        format_memory(p.memory.peak),
        FITS[p.memory.fits],
    )
