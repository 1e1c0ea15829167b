# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lab 3: the slow cable."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="Lab 3. The slow cable")


with app.setup:
    import shlex

    import marimo as mo

    import scaling as sc
    from scaling.course import language
    from scaling.course.lessons import lab3_testbed, parts
    from scaling.course.lessons.lab3_testbed import line_over_rates, recorded_steps
    from scaling.meshes.errors import InputError
    from scaling.meshes.units import format_rate, format_time
    from scaling.pictures.bars import stacked_bars
    from scaling.pictures.curves import curves


@app.cell
def opening():
    HOSTS = 4
    every = [one for one in (*recorded_steps(), *recorded_steps(stages=True)) if one.hosts == HOSTS]
    meshes = list(dict.fromkeys(one.mesh for one in every))
    of_mesh = {
        mesh: sorted((one for one in every if one.mesh == mesh), key=lambda one: -one.rate)
        for mesh in meshes
    }
    fast, half, slow = (one.bandwidth for one in of_mesh[meshes[0]])
    small = {f"model.{key}": value for key, value in lab3_testbed.MODEL.items()}
    parameters = sc.learn.count("custom", set=small).answer
    fsdp = of_mesh["fsdp=4"]
    field = parts.guess(
        f"A step of fsdp=4 takes {format_time(fsdp[0].median)} at {fast}/s. The cable is halved, "
        f"to {half}/s: how long is a step?",
        "ms",
    )
    parts.opening(
        "lab 3",
        "say the time of a step on a network that you have not tried yet, and choose the mesh "
        "that survives a slow one",
        f"""
`scaling testbed` makes hosts out of network namespaces and joins them by cables whose rate is set.
{HOSTS} hosts with one device each trained a transformer of {parameters / 1e6:.1f} million
parameters in fp32, {lab3_testbed.BATCH["global_batch"]} sequences of
{lab3_testbed.BATCH["seq_len"]} tokens a step, over {len(meshes)} meshes: {", ".join(meshes)}. Each
cable let {fast}/s pass, then {half}/s, then {slow}/s, which is
{format_rate(of_mesh[meshes[0]][-1].rate, "B/s")}. Meshes with stages send
{lab3_testbed.MICROBATCHES} microbatches through.
""",
        field,
        minutes=40,
        chapter="training",
        needs="no jax to read what was recorded; to run it here, Linux, root and jax",
    )
    return HOSTS, fast, field, fsdp, half, meshes, of_mesh, parameters, slow


@app.cell
def after_the_guess(field, fsdp, half, meshes, slow):
    all_of_it = 2 * fsdp[0].median / fsdp[1].median
    nothing = fsdp[0].median / fsdp[1].median
    halved = 2 * fsdp[1].median / fsdp[0].median
    mistakes = (
        f"whole step {all_of_it:.4g}: high",
        f"no wait {nothing:.4g}: high",
        f"upside down {halved:.4g}: low",
    )
    page = parts.opened(field, 1e3 * fsdp[1].median, mistakes, tolerance=0.05)
    WAITING = "exposed_communication"
    bars = {
        f"{one.bandwidth}/s": {
            "predicted without the cable": one.predicted - one.time[WAITING],
            "predicted waiting for it": one.time[WAITING],
        }
        for one in fsdp[:2]
    }
    waits = ", ".join(f"{format_time(one.time[WAITING])} at {one.bandwidth}/s" for one in fsdp[:2])
    choice = parts.dropdown(meshes, "mesh")
    page.show(
        f"{page.guessed} This was measured at {half}/s, {fsdp[1].median / fsdp[0].median:.2f} "
        f"times as long (the simulator had said {format_time(fsdp[1].predicted)}). What the hosts "
        "compute did not change; what they send took twice as long.",
        page.picture(
            stacked_bars(bars, format_time),
            f"Predicted steps of fsdp=4; waiting for the cable: {waits}",
        ),
        "## Say it before it runs\n\nTwo rates give T = a + b / W: a, what no cable changes, and "
        f"b, the bytes that the step waits for. Then {slow}/s is yours to say.",
        choice,
    )
    return choice, page


@app.cell
def shown_table(choice, of_mesh, page, slow):
    here = of_mesh[choice.value]
    seen = here[:2]
    a, b = line_over_rates([one.median for one in seen], [one.rate for one in seen])
    foretold = a + b / here[2].rate if b > 0 else seen[1].median
    rows = [{"cable": f"{one.bandwidth}/s", "a step (s)": one.median} for one in seen]
    third = page.problem("Before it runs", f"a step of {choice.value} at {slow}/s", "ms")
    page.show(
        page.table(rows),
        f"So a is {format_time(max(a, 0))} and b {format_rate(b, 'B')}."
        if b > 0
        else "The step did not grow at all: b is lost in the noise of the measurement.",
        third,
    )
    return foretold, here, third


@app.cell
def verdict(foretold, here, page, third):
    page.verdict(
        third,
        1e3 * here[2].median,
        "ms",
        mistakes=("both directions",),
        tolerance=max(0.15, here[2].spread),
        why=f"The two rates give {format_time(foretold)}, the simulator said "
        f"{format_time(here[2].predicted)} ({format_time(here[2].low)} to "
        f"{format_time(here[2].high)}), and this was measured.",
    )


@app.cell
def the_mesh_that_survives(meshes, page, slow):
    survivor = mo.ui.radio(meshes, label=f"**Which mesh survives {slow}/s best?**")
    page.show("## The mesh that survives", survivor)
    return (survivor,)


@app.cell
def reply(fast, meshes, of_mesh, page, slow, survivor):
    choice_of_reader = parts.chosen(survivor)
    last = {mesh: of_mesh[mesh][-1].median for mesh in meshes}
    grew = {mesh: last[mesh] / of_mesh[mesh][0].median for mesh in meshes}
    best = min(last, key=last.get)
    lines = [
        (mesh, [(one.rate * 8 / 1e6, 1e3 * one.median) for one in of_mesh[mesh]], i % 5, i // 5)
        for i, mesh in enumerate(meshes)
    ]
    table = [
        {
            "mesh": mesh,
            f"{fast}/s (s)": of_mesh[mesh][0].median,
            f"{slow}/s (s)": last[mesh],
            "grew": f"{grew[mesh]:.2f}",
        }
        for mesh in meshes
    ]
    words = ", ".join(f"{mesh} {format_time(last[mesh])}" for mesh in meshes)
    page.show(
        page.reply(
            choice_of_reader == best,
            f"**{best}**, with {format_time(last[best])}. Stages hand on activations of a few "
            "sequences; replicas sum every gradient, and fsdp gathers every weight twice besides.",
        ),
        page.table(table),
        page.picture(
            curves(lines, [], "Mbit/s of a cable", "ms a step"),
            f"Measured steps over the cable's rate; at {slow}/s: {words}",
        ),
    )
    return best, grew, last


@app.cell
def run_it_here(HOSTS, half, page, slow):
    reason = lab3_testbed.why_not_here()
    where = parts.dropdown((slow, half), "cable")
    which = parts.dropdown(("stage=4", "data=4", "fsdp=4"), "mesh")
    ahead = mo.ui.number(label="I say (ms; nothing runs before you do)", value=None)
    button = mo.ui.run_button(label="train it here, a minute or two", disabled=bool(reason))
    by_hand = (
        lab3_testbed.up_command(HOSTS, slow),
        lab3_testbed.train_command("stage=4"),
        lab3_testbed.DOWN,
    )
    commands = parts.typed(*(f"sudo scaling {shlex.join(words)}" for words in by_hand))
    run_file = mo.md(f"```json\n{lab3_testbed.run_text()}\n```")
    can = f"Not on this machine: {reason}." if reason else "This machine can."
    page.show(
        f"## Run it here\n\n{can} By hand it is (run.json is the accordion's second page):",
        mo.accordion({language.said("commands"): commands, "run.json": run_file}),
        [where, which, ahead, button],
    )
    return ahead, button, where, which


@app.cell
def _(HOSTS, ahead, button, where, which):
    mo.stop(not button.value)
    mo.stop(ahead.value is None, mo.md("Say first how long a step will be."))
    with mo.status.spinner(f"training {which.value} at {where.value}/s"):
        try:
            live = lab3_testbed.train_here(HOSTS, where.value, which.value)
            told = (
                f"You said {ahead.value:.0f} ms, the simulator {format_time(live.predicted)}; "
                f"measured: **{format_time(live.median)}** (median of {len(live.measured)} steps)."
            )
        except InputError as error:
            told = f"It could not run: {error}"
    mo.md(told)


@app.cell
def take_away(HOSTS, of_mesh, page, parameters, slow):
    sent = 2 * (HOSTS - 1) / HOSTS * parameters * 4
    alone = sent / of_mesh["data=4"][-1].rate
    problems = page.problems(
        parts.on_paper(
            f"data={HOSTS}: a ring sums the fp32 gradients of all parameters. How many MB does a "
            "host send in a step?",
            (sent / 1e6, "MB"),
            mistakes=("all-reduce once: low", f"ring {HOSTS}: high", "bytes per element 4: low"),
            why="2 (N - 1)/N of four bytes a parameter.",
        ),
        parts.in_simulator(
            f"and how long does that take at {slow}/s, with nothing else on the cable and no "
            "latency?",
            (1e3 * alone, "ms"),
            mistakes=("bits", "all-reduce once: low"),
            why="Nearly the whole of the measured step; the rest is arithmetic.",
        ),
    )
    page.takeaway(
        "Two measurements at two rates of one link foretell a third. And what decides on a slow "
        "network is not how many devices there are but what crosses it: gradients and weights "
        "grow with the model, activations with the tokens of a step. A small batch of a large "
        "model belongs in stages.",
        problems,
    )
    return alone, problems


@app.cell
def where_the_model_is_wrong(meshes, of_mesh, page, problems):
    errors = [
        {
            "mesh": mesh,
            "cable": f"{one.bandwidth}/s",
            **parts.beside(one.predicted, one.median),
        }
        for mesh in meshes
        for one in of_mesh[mesh]
    ]
    worst = max(abs(one.predicted / one.median - 1) for some in of_mesh.values() for one in some)
    page.ending(
        problems,
        f"The worst prediction is off by {worst:.0%}. The steps were recorded on "
        f"{lab3_testbed.recorded_on()}. All hosts share two cores; while meshes with stages ran, "
        "other processes used half of them, so that their steps at the fast cable are long and "
        "scatter. That makes the survivor look worse than it is, not better.",
        errors,
    )


if __name__ == "__main__":
    app.run()
