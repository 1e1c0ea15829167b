# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lab 1: detective."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="Lab 1. Detective")


with app.setup:
    import marimo as mo

    from scaling.comparing import discrepancy
    from scaling.course.lessons import lab1_programs, parts
    from scaling.pictures.bars import stacked_bars
    from scaling.questions.page import show


@app.cell
def opening():
    listed = lab1_programs.cases()
    first = listed[0]

    def code_view(case):
        """A step with its line numbers, and where its arguments lie."""
        arrays = "\n".join(f"{name}: {what}" for name, what in case.arguments.items())
        return mo.md(f"```\n{arrays}\n\n{case.listing}\n```")

    field = parts.guess(
        "The author meant a single all-reduce, of the result. How large is it on a device?",
        "MB",
    )
    parts.opening(
        "lab 1",
        "find in a table of collectives the array, the axis and the line of code that make a "
        "program move more than was asked",
        "XLA inserts a collective wherever an array is not sharded as the next operation needs it, "
        "and does not say so. Below is a small step over data=4 and tensor=2 of eight H100; "
        "`F_tensor` is a dim that is split over the axis tensor. Its author "
        "meant what textbooks do: multiply, and sum the parts of the result over tensor.",
        code_view(first),
        field,
        minutes=40,
        chapter="sharding",
    )
    return code_view, field, first, listed


@app.cell
def after_the_guess(field, first, listed):
    written = lab1_programs.moved(first, first.written)
    meant = lab1_programs.moved(first, first.meant)
    versions = {"as meant": meant, "as compiled": written}
    kinds = list(dict.fromkeys(row["collective"] for row in [*meant, *written]))
    bars = {
        name: {
            kind: sum(row["size (bytes)"] for row in rows if row["collective"] == kind)
            for kind in kinds
        }
        for name, rows in versions.items()
    }
    sizes = {name: lab1_programs.size_of(rows) for name, rows in versions.items()}
    mistakes = ("bytes per element 2", "copies 2", "copies 4", "all members 8: high")
    page = parts.opened(field, sizes["as meant"] / 1e6, mistakes)
    more = sizes["as compiled"] / sizes["as meant"]
    longer = sum(row["takes (s)"] for row in written) / sum(row["takes (s)"] for row in meant)
    numbered = {f"{i}. {case.name}": case for i, case in enumerate(listed[1:], start=1)}
    choice = parts.dropdown(numbered, "case")
    page.show(
        f"{page.guessed} That is the result in bf16, of the sequences of a device. But the "
        "compiled program has no all-reduce at "
        f"all. Its two gathers are **{more:.1f} times** as large and take {longer:.1f} times as "
        "long (an all-reduce sends its bytes twice):",
        page.table(written),
        page.picture(
            stacked_bars(bars, lambda size: show(size, "bytes")),
            "; ".join(f"{name}: {show(size, 'bytes')}" for name, size in sizes.items()),
        ),
        "Read it like this. *Array*: the largest has a dim F, so it is `hidden`, not the "
        "result. *Axis*: tensor. *Line*: the last one. *Why*: compare how `hidden` and "
        f"`down` are split. {first.why}",
        "## Small steps\n\nThe same eight GPUs. Some of these move bytes that nobody needs, others "
        "only seem to: not every collective is a mistake.",
        choice,
    )
    return choice, meant, more, page, written


@app.cell
def shown_table(choice, code_view, listed, page):
    case = choice.value
    evidence = lab1_programs.moved(case, case.written)
    reasons = sorted({one.cause for one in listed})
    reason = mo.ui.radio(reasons, label="**Why does XLA do it?**")
    line = page.problem(
        "Which line", "is to blame? 0, if none; the table has the line that XLA names", "line"
    )
    page.show(code_view(case), page.table(evidence), reason, line)
    return case, evidence, line, reason


@app.cell
def verdict(case, line, page):
    page.verdict(
        line,
        case.line or 0,
        "",
        why="XLA names the line whose result travels. Who asked for it may stand elsewhere.",
    )


@app.cell
def reply(case, evidence, page, reason):
    hit = parts.chosen(reason) == case.cause
    moves = show(lab1_programs.size_of(evidence), "bytes")
    compared = f"All its calls together are {moves}. "
    if case.meant:
        instead = lab1_programs.size_of(lab1_programs.moved(case, case.meant))
        as_meant = show(instead, "bytes")
        compared = f"It moves {moves} in {len(evidence)} calls; as meant it would be {as_meant}. "
    page.reply(hit, f"**{case.cause}**. {compared}{case.why}")


@app.cell
def the_trainers_own_steps(page):
    asked = (
        ("llama3-8b", "fsdp=4,tensor=2", 16, None),
        ("gpt2-124m", "data=8", 512, None),
        ("mixtral-8x7b", "fsdp=8,expert=8", 128, None),
        ("gpt2-1.5b", "fsdp=8", 512, None),
        ("llama3-1b", "fsdp=1,context=8", 1, 131_072),
    )
    trained = tuple(lab1_programs.audited(*one) for one in asked)
    names = {f"{i}. {one.name}": i - 1 for i, one in enumerate(trained, start=1)}
    suspect = parts.dropdown(names, "step")
    page.show(
        "## The trainer's own steps\n\nSteps of real models, compiled for H100, with bytes "
        "of a step on a device. What is *needed* was derived by hand from the parallelism "
        "(`scaling predict --explain` compares the same). Here nobody wrote a wrong line; "
        "what differs is the compiler's choice.",
        suspect,
    )
    return suspect, trained


@app.cell
def shown_table_2(page, suspect, trained):
    step = trained[suspect.value]
    needed, multiplied = step.products()
    answers = {
        "nothing is wrong": None,
        "gradients of a table that is used twice, added before they are summed, in fp32": (
            discrepancy.TIED_TABLE
        ),
        "parts of a layer computed again, because memory is short": discrepancy.REMATERIALISED,
        "a gradient summed once per step instead of per microbatch": discrepancy.ONCE_PER_STEP,
        "groups of devices that are those of no axis": discrepancy.NO_MESH_AXES,
    }
    accused = mo.ui.radio(list(answers), label="**What did the compiler do?**")
    unit = "TFLOPs" if step.of_products else "MB"
    too_much = page.problem("How much", "too much is it in a step, in all? 0, if nothing", unit)
    largest = step.table()[0]
    shown_of = next((row for row in step.table() if row["what"] == "all-reduce"), largest)
    page.show(
        page.table(step.table()),
        f"Matrix products: {show(needed, 'FLOPs')} needed, **{show(multiplied, 'FLOPs')}** found. "
        f"The calls of {shown_of['what']} over {shown_of['over']}:",
        page.table(step.calls(shown_of["over"], shown_of["what"])),
        accused,
        too_much,
    )
    return accused, answers, step, too_much, unit


@app.cell
def verdict_2(page, step, too_much, unit):
    page.verdict(
        too_much,
        step.extra / (1e12 if step.of_products else 1e6),
        unit,
        mistakes=("bytes per element 2", "bytes per element 4", "GiB"),
        why="That is what was found less what was needed.",
    )


@app.cell
def reply_2(accused, answers, page, step):
    truth = step.discrepancy.reason if step.discrepancy else None
    right = answers.get(parts.chosen(accused), "") == truth
    report = step.discrepancy or "all bytes and FLOPs are those needed"
    again = f"The same step, compiled anew: `{step.entry.command} --explain`"
    page.reply(right, f"{report}. {again}")


@app.cell
def take_away(page, trained):
    costs = [
        {
            "step": one.name,
            "of the step": f"{one.discrepancy.seconds / float(one.priced.timeline.total):+.1%}",
            "costs (s)": one.discrepancy.seconds,
            "for": one.discrepancy.kind,
        }
        for one in trained
        if one.discrepancy
    ]
    page.show(
        page.takeaway(
            "Say before you compile which bytes go over which axis. Then a table of collectives "
            "proves you right or wrong: dims name the array, groups the axis, and XLA keeps the "
            "line. A program may cost more without moving one byte more: look at FLOPs too.",
        ),
        page.where_wrong(
            "Bytes are read from compiled programs, exactly; what they cost is priced and was not "
            "measured on GPUs. And a finding holds for one compiler: the small steps are of "
            f"{lab1_programs.compiled_with()}. Another version may move less, or more. Where the "
            "two differ and no cause is known, the table made by hand may be what is wrong.",
            costs,
        ),
    )


if __name__ == "__main__":
    app.run()
