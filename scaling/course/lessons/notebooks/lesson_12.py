# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 12: why was my prediction wrong?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="12. Why was my prediction wrong?")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_series
    from scaling.course.lessons import parts
    from scaling.course.lessons.lab3_testbed import (
        TERMS,
        line_over_rates,
        recorded_on,
        recorded_steps,
    )
    from scaling.meshes.units import format_rate, format_time
    from scaling.pictures.bars import stacked_bars
    from scaling.questions.answer import Input, by_formula
    from scaling.questions.page import show


@app.cell
def opening():
    steps = recorded_steps()
    cases = list(dict.fromkeys((step.hosts, step.mesh) for step in steps))
    field = parts.guess(
        "The cable's rate is halved, from 1 Gbit/s to 500 Mbit/s. By what factor does a step "
        "of fsdp over 2 hosts grow?",
        "times",
    )
    parts.opening(
        "lesson 12",
        "take a predicted and a measured step apart, and name the term that is off, with two "
        "measurements at two rates of one link",
        f"""
A correct total may hide two errors that cancel. `scaling testbed` makes a cluster of network
namespaces inside one machine, with cables whose rate is set; {len(steps)} training steps ran on
it, over {len(cases)} meshes, each predicted before. All hosts share the machine's cores, so
arithmetic is slow; the network has the rate of its cable, which can be changed and measured again.
Further down is a published step whose prediction is far off, and you find the term.
""",
        field,
        minutes=30,
        chapter="profiling",
        needs="no jax; the trainer's problem needs Linux and root",
    )
    return cases, field, steps


@app.cell
def after_the_guess(cases, field, steps):
    two = {s.bandwidth: s for s in steps if (s.hosts, s.mesh) == (2, "fsdp=2")}
    grew = two["500Mbit"].median / two["1Gbit"].median
    foretold = two["500Mbit"].predicted / two["1Gbit"].predicted
    doubled = 1 + two["1Gbit"].time["exposed_communication"] / two["1Gbit"].predicted
    mistakes = (
        *(f"whole step {2 / grew:.4g}: high", f"no wait {grew:.4g}: low"),
        *(f"upside down {grew**2:.4g}: low", f"whole step {4 / grew:.4g}: high"),
    )
    page = parts.opened(field, grew, mistakes, tolerance=0.05)
    times = zip(("T", "T_half"), ("1Gbit", "500Mbit"), strict=True)
    measured = tuple(Input(name, two[rate].median, "s", f"{rate}/s") for name, rate in times)
    date = recorded_on()
    apart = by_formula("a", "s", "2*T - T_half", measured)
    named = {f"{mesh} over {hosts} hosts": (hosts, mesh) for hosts, mesh in cases}
    case = parts.dropdown(named, "mesh")
    page.show(
        page.guessed,
        page.derivation(
            ("T = a + b / W", "a: seconds without the cable; b: bytes that the step waits for"),
            ("W_half = W / 2", "half the rate; a and b are those of the program and stay"),
            ("T_half = a + 2*b / W", "put in: the cable's part doubles"),
            ("T_half - T = b / W", "subtracted: that part at the full rate"),
            ("a = T - b / W", "and the rest is all else"),
            ("a = 2*T - T_half", "so two measurements give both"),
            ("T_half / T = 1 + b / (W*T)", "the question: 1, and the cable's share of the step"),
            ("T_half / T = 2 - a / T", "twice as long only where a is nothing"),
            numbers=apart,
        ),
        f"So {show(apart.answer, 's')} of a step do not depend on the cable: it grows by "
        f"2 - a / T = {2 - apart.answer / two['1Gbit'].median:.3f}, and not by 2.",
        page.ladder(
            "a step at 500 Mbit/s over one at 1 Gbit/s",
            "times",
            bound=(2.0, "no more than this: all of the step would be on the cable"),
            textbook=(doubled, "what waits at 1 Gbit/s takes twice as long, all else as long"),
            compiled=(foretold, "two predictions, by the CPU's compiled program"),
            measured=(grew, f"median of its steps ({date}, 2 shared cores; not fitted on)"),
        ),
        "## Predicted terms, and what was measured",
        case,
    )
    return case, doubled, foretold, grew, page, two


@app.cell
def two_unknowns(case, page, steps):
    chosen = [s for s in steps if (s.hosts, s.mesh) == case.value]
    WORDS, bars = {"exposed_communication": "waiting"}, {}
    for step in chosen:
        shown = {WORDS.get(t, t): step.time[t] for t in TERMS if t != "bubble"}
        bars[f"{step.bandwidth}, predicted"] = {**shown, "measured": 0.0}
        bars[f"{step.bandwidth}, measured"] = {**dict.fromkeys(shown, 0.0), "measured": step.median}
    words = "; ".join(
        f"{s.bandwidth}: predicted {format_time(s.predicted)}, measured {format_time(s.median)}"
        for s in chosen
    )
    rates = [step.rate for step in chosen]
    fixed, sent = line_over_rates([step.median for step in chosen], rates)
    fixed_predicted, sent_predicted = line_over_rates([step.predicted for step in chosen], rates)
    table = [
        {
            "part": "does not depend on the cable (s)",
            "predicted": format_time(fixed_predicted),
            "measured": format_time(fixed),
            "off by": parts.off(fixed_predicted, fixed),
        },
        {
            "part": "bytes on the cable that the step waits for",
            "predicted": format_rate(sent_predicted, "B"),
            "measured": format_rate(sent, "B"),
            "off by": parts.off(sent_predicted, sent),
        },
    ]
    on_cable = abs(sent_predicted / sent - 1) > abs(fixed_predicted / fixed - 1)
    larger = "the network" if on_cable else "compute and host"
    page.show(
        page.picture(stacked_bars(bars, format_time), words),
        "## Two unknowns\n\nA step is T = a + b / W: seconds without the cable, and bytes that it "
        "waits for. Three rates give both, for the predictions and for the measurements.",
        page.table(table),
        f"Here the larger mistake is in **{larger}**.",
    )


@app.cell
def a_prediction_that_is_wrong(page):
    series = measured_series("tensor in a node")
    settings = {
        f"{point.asked['mesh']}, {point.microbatches} microbatches": (
            point.seconds[0],
            sc.predict(**point.asked, source="analytic"),
        )
        for point in series.points
    }
    held = [
        {"step": name, **parts.beside(_step.step_time, _seconds)}
        for name, (_seconds, _step) in settings.items()
    ]
    wrong = list(settings)[-1]
    before = parts.dropdown(settings.keys(), "compare", list(settings)[2])
    after = parts.dropdown(settings.keys(), "with", wrong)
    causes = {
        "products: the chips multiply more slowly": "products",
        "bytes: the links are slower": "bytes",
        "calls: what is paid for each kernel and each exchange": "calls",
    }
    cause = mo.ui.radio(list(causes), label="**Which term is wrong in the last row?**")
    page.show(
        f"## A prediction that is wrong\n\nMeasured on {series.machine} ({series.source}, "
        f"{series.date}). The same batch, in two microbatches or sixteen. The last prediction is "
        f"off by **{held[-1]['off by']}**. A total does not say why. Compare it with a step of "
        "the same chips that was predicted well, term by term, as `scaling compare` does: what "
        "the two steps have in common cannot be what is wrong.",
        page.table(held),
        [before, after],
    )
    return after, before, cause, causes, held, settings, wrong


@app.cell
def shown_table(after, before, page, settings):
    (seconds_before, step_before), (seconds_after, step_after) = (
        settings[before.value],
        settings[after.value],
    )
    compared = sc.compare(step_before, step_after)
    terms = [
        {
            "term": {"exposed_communication": "waiting"}.get(name, name),
            "before (s)": float(line.first),
            "after (s)": float(line.second),
            "difference (s)": float(line.difference),
        }
        for name, line in compared.time.items()
        if line.first or line.second
    ]
    page.show(
        f"Measured, the second takes **{seconds_after - seconds_before:+.3f} s**; predicted, "
        f"**{float(compared.step_time.difference):+.3f} s**, of which:",
        page.table(terms),
        mo.accordion({"all that `scaling compare` prints": mo.md(f"```\n{compared}\n```")}),
    )
    return (compared,)


@app.cell
def _(cause):
    cause


@app.cell
def reply(cause, causes, page, settings, wrong):
    _found = causes.get(parts.chosen(cause), "")
    _seconds, _step = settings[wrong]
    calls = sum(int(line.count) for line in _step.collectives)
    missing = (_seconds - float(_step.step_time)) / calls
    page.reply(
        _found == "calls",
        "from two microbatches to sixteen neither the FLOPs change nor the bytes that are sent, "
        "and in two microbatches these eight chips are predicted well: products and links are "
        "right. What grows eightfold is the number of calls, kernels and exchanges that the host "
        f"starts one by one. The model lacks {show(missing, 's')} for each of {calls:,} exchanges. "
        "Whether the host is late or one of eight processes waits for another, two totals cannot "
        "tell; a profile of the run can.",
    )
    return calls, missing


@app.cell
def take_away(page):
    without, _bytes = line_over_rates([3.0, 5.0], [1.0, 0.5])
    summed = sc.learn.collective_ladder("all-reduce", 2**30, cluster="dgx-h100")
    beyond = summed["measured"].value / summed["fitted"].value

    def yours(ratio):
        """What a measured ratio says."""
        if 1 <= ratio <= 2:
            return f"Yours: {2 - ratio:.0%} of the faster step does not cross the cable."
        return "Between 1 (nothing crosses the cable) and 2 (all of it), if nothing else ran."

    problems = page.problems(
        parts.on_paper(
            "in seconds, a step takes 3 at the full rate of a link and 5 at half of it, nothing "
            "hidden: how long without the link?",
            (without, "s"),
            mistakes=("no wait 3: high",),
            why="Half the rate adds the link's time once more: 2; what is left is 1.",
        ),
        parts.in_simulator(
            "`scaling learn ladder` of an all-reduce of 2**30 bytes on dgx-h100: how "
            "many times as long is the measurement as the fitted figure?",
            (beyond, "times"),
            tolerance=0.05,
            why="JAX's dispatch is in the measurement alone, and the fit comes from other "
            "machines.",
        ),
        parts.on_trainer(
            "the commands below, then the same with 250Mbit and another --run-dir: divide the "
            "median of `step_time` in the second metrics.jsonl by that in the first",
            (None, "times"),
            why=yours,
        ),
    )
    commands = (
        "sudo scaling testbed up --hosts 2 --bandwidth 500Mbit",
        "sudo scaling testbed run -- scaling train tiny --mesh data=2,fsdp=2 --steps 20 "
        "--set model.d_model=512 --set model.d_ff=2048 --run-dir runs/cable",
        "sudo scaling testbed down",
    )
    page.takeaway(
        "Change one figure of the machine and measure again: what moves in proportion is the term "
        "that the figure binds. `scaling compare` does the same inside one run, term by term, "
        "with a profile of it.",
        problems,
        parts.typed(*commands),
        lesson=12,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems, steps):
    errors = [
        {
            "hosts": step.hosts,
            "mesh": step.mesh,
            "cable": step.bandwidth,
            **parts.beside(step.predicted, step.median),
        }
        for step in steps
    ]
    off = [abs(step.predicted / step.median - 1) for step in steps]
    page.ending(
        problems,
        f"All recorded steps; the worst prediction is off by {max(off):.0%}. Totals do not say "
        "why: choose a mesh above, and see which of the two unknowns is off.",
        errors,
    )


if __name__ == "__main__":
    app.run()
