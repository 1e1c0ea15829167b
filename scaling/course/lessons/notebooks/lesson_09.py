# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 9: how long does a pipeline stand still?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="9. How long does a pipeline stand still?")


with app.setup:
    from statistics import median

    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_series
    from scaling.course.lessons import parts
    from scaling.pictures.pipeline import held, idle_share, pipeline, timetable
    from scaling.questions.page import show


@app.cell
def opening():
    field = parts.guess(
        "Four stages, eight microbatches: what share of the step is a stage idle?", "%"
    )
    parts.opening(
        "lesson 9",
        "say what share of a step a pipeline waits, how many microbatches make that small, "
        "and what each schedule keeps in memory for it",
        """
A pipeline cuts the layers: of L layers each of P stages holds L / P. Between stages only
activations travel, from one neighbour to the next, so a pipeline may cross slow networks that
`tensor` and `fsdp` should not. But a stage has to wait for the stages before it. So the batch is
split into M microbatches, which follow one another:

    stage 0    1  2  3  4  .  .
    stage 1    .  1  2  3  4  .
    stage 2    .  .  1  2  3  4

The dots are the *bubble*. Backward it is the same, from the last stage to the first. (V counts
the parts that a stage holds, its virtual stages; in the guide it is the size of the vocabulary.)
""",
        field,
        minutes=30,
        chapter="training",
        needs="no jax (the last problem compiles a small step)",
    )
    return (field,)


@app.cell
def after_the_guess(field):

    def bubble(stages, microbatches, virtual_stages=1):
        """The textbook's bubble of a pipeline, as `scaling limits` has it."""
        settings = {"batch.microbatches": microbatches, "pipeline.virtual_stages": virtual_stages}
        if virtual_stages > 1:
            settings["pipeline.schedule"] = "interleaved"
        where = {"cluster": "dgx-h100", "nodes": 2, "mesh": f"stage={stages}"}
        return sc.learn.limits("llama3-1b", **where, set=settings)["bubble of the pipeline"]

    plain = bubble(4, 8)
    few = plain.parts[0]
    P, M = 4, 8
    wrong = {
        "idle over work": (P - 1) / M,
        "a turn too many": P / (M + P),
        "both passes": 2 * (P - 1) / (M + 2 * (P - 1)),
        "one batch": (P - 1) / P,
    }
    betrayed = (f"{name} {share / plain.ideal:.4g}: high" for name, share in wrong.items())
    mistakes = (*betrayed, f"stages {P}: high", "percent: low")
    page = parts.opened(field, 100 * plain.ideal, mistakes, tolerance=0.05)
    entry = next(
        one
        for one in parts.stored("pipelines")
        if one.mesh.startswith(f"stage={P},")
        and one.set["batch.microbatches"] == M
        and "pipeline.virtual_stages" not in one.set
    )
    built = sc.predict(**entry.arguments)
    idle_built = 100 * float(built.time.bubble / built.step_time)
    apart = f"{entry.run} on {entry.mesh}: embedding, head and optimizer are not in the turns"
    schedules = {
        "all forward, then all backward (gpipe)": "gpipe",
        "one forward, one backward (1f1b)": "1f1b",
        "interleaved, two parts a stage": "interleaved",
    }
    schedule = parts.dropdown(schedules, "schedule")
    stages = parts.dropdown({str(n): n for n in (2, 4, 8)}, "stages P", "4")
    microbatches = mo.ui.slider(
        steps=[8, 16, 24, 32], value=8, label="microbatches M", show_value=True
    )
    page.show(
        page.guessed,
        page.derivation(
            (
                "fill = (P - 1)*t",
                "until the first microbatch reaches the last stage; a turn takes t",
            ),
            ("work = M*t", "then the last stage works on all M, one after another"),
            ("T = (M + P - 1)*t", "both: the time of the forward pass"),
            ("idle = T - M*t", "every stage works for M turns and waits for the others"),
            ("idle = (P - 1)*t", "some before its work, the others after it"),
            ("bubble = (P - 1)*t / ((M + P - 1)*t)", "the question: the idle share of the pass"),
            (
                "bubble = (P - 1) / (M + P - 1)",
                "t cancels; backward a turn takes 2 t, which cancels too",
            ),
            ("M = 19*(P - 1)", "with so many microbatches the share is 1 / 20"),
            ("bubble = (P - 1) / (V*M + P - 1)", "V parts of a stage: V M turns of t / V"),
            numbers=plain,
        ),
        f"For a twentieth of the step it takes {few.ideal:.0f} microbatches, {few.ideal / 4:.3g} "
        "for each stage.",
        page.ladder(
            f"share of the step that a stage is idle, {P} stages, {M} microbatches",
            "%",
            textbook=(100 * plain.ideal, "(P - 1) / (M + P - 1)"),
            compiled=(idle_built, apart),
        ),
        "## Draw the step",
        [schedule, stages, microbatches],
    )
    return bubble, microbatches, page, schedule, stages


@app.cell
def shown_picture(bubble, microbatches, page, schedule, stages):
    virtual = 2 if schedule.value == "interleaved" else 1
    passes = timetable(schedule.value, stages.value, microbatches.value, virtual)
    idle, rule = idle_share(passes), bubble(stages.value, microbatches.value, virtual)
    alt = (
        f"Timetable of {schedule.value}: {stages.value} stages, one row each, pass "
        f"{microbatches.value} microbatches forward and backward; each row is empty for {idle:.1%} "
        "of the step"
    )
    page.show(
        page.picture(pipeline(passes), alt),
        f"Empty: **{idle:.1%}** of each row, counted from the drawing; the formula says "
        f"{rule.ideal:.1%}. A stage keeps what **{float(held(passes)):.3g}** microbatches "
        "have saved for their way back, if nothing is computed again.",
    )


@app.cell
def what_travels(page):
    where = {"cluster": "dgx-h100", "nodes": 8, "mesh": "stage=8,tensor=8"}
    wide = sc.learn.limits("llama3-70b", **where, set={"batch.microbatches": 32})
    hop = wide["hop to the next stage"]
    peak = 64 * sc.learn.chip("h100-sxm")["peak bf16"].answer
    forward = 2 * float(sc.learn.count("llama3-70b")) * hop.figures["B"] / peak
    page.show(
        f"""
Try the three schedules with the same P and M. With one forward and one backward in turn the bubble
is as long as before, but fewer microbatches wait in memory: at most 2 P - 1 instead of M. So M can
grow. With two parts a stage holds layers from the front and from the back of the model. A turn is
half as long, and still P - 1 turns are idle: the bubble halves. Activations travel twice as often,
and M must be a multiple of P. The memory is about the same.

## What travels

Llama 3 70B with a node for each stage: a microbatch's activations reach the next node in
{show(hop.fitted, "s")}. Meanwhile a stage multiplies for at least {show(forward, "s")}, at the peak
of its chips, so the permute can hide behind the next microbatch.
""",
        page.formula(hop),
    )
    return forward, hop


@app.cell
def what_the_compiler_makes_of_it(bubble, page):
    priced = [(entry, sc.predict(**entry.arguments)) for entry in parts.stored("pipelines")]

    def described(entry, step):
        """A row of the table: the program's bubble beside the rule's."""
        count = entry.set["batch.microbatches"]
        virtual = entry.set.get("pipeline.virtual_stages", 1)
        stages = int(entry.mesh.partition("stage=")[2].partition(",")[0])
        return {
            "mesh": entry.mesh,
            "schedule": entry.set.get("pipeline.schedule", "1f1b"),
            "M": count,
            "step (s)": float(step.step_time),
            "bubble": f"{step.time.bubble / step.step_time:.1%}",
            "by the rule": f"{bubble(stages, count, virtual).ideal:.1%}",
            "memory (bytes)": float(step.memory.peak),
            "fits": "yes" if step.memory.fits else "no",
        }

    rows = [described(*one) for one in priced]
    wanted = ("stage=4,fsdp=2", 16)
    chosen = next(e for e, _ in priced if (e.mesh, e.set["batch.microbatches"]) == wanted)
    page.show(
        "## What the compiler makes of it\n\nThe trainer's own steps of Llama 3 1B on a DGX H100, "
        "all of the same batch. The bubble of a whole step is smaller than the rule's: embedding, "
        "output head and optimizer are not in the turns. More microbatches are smaller ones: they "
        "shrink the bubble and the memory. Where a step does not fit, the compiler has tried to "
        "make it fit and computes much of it twice, so that it is slower too.",
        page.table(rows),
        "## The ladder of one step",
        page.ladder(sc.learn.step_ladder(**chosen.arguments)),
    )


@app.cell
def take_away(bubble, page):
    asked = {"stages": 2, "microbatches": 8}
    halved = bubble(8, 16, 2)
    problems = page.problems(
        parts.on_paper(
            "eight stages with two parts each, sixteen microbatches: which share of the step is "
            "bubble?",
            (100 * halved.ideal, "%"),
            mistakes=("percent: low",),
            why=f"With one part it would be {bubble(8, 16).ideal:.1%}.",
        ),
        parts.in_simulator(
            "how many microbatches do eight stages of one part need for a bubble of a twentieth? "
            "`scaling limits llama3-70b --cluster dgx-h100 --nodes 8 --mesh stage=8,tensor=8`",
            (bubble(8, 16).parts[0].ideal, "microbatches"),
            mistakes=("stages 8: high",),
            why="Nineteen for each stage after the first.",
        ),
        parts.on_trainer(
            "how many permutes over `stage` has a step of tiny on two stages with eight "
            "microbatches? One for each turn, forward and backward. `scaling predict tiny "
            f"--cluster dgx-h100 --mesh stage={asked['stages']} --set "
            f"batch.microbatches={asked['microbatches']}` compiles it and counts them. (`scaling "
            "train tiny --mesh stage=2 --devices 2` runs it: the loss is that of `--mesh data=2`)",
            (2 * (asked["microbatches"] + asked["stages"] - 1), "calls"),
            mistakes=("one way: low",),
            tolerance=0.001,
            why="As many as turns, twice.",
        ),
    )
    page.takeaway(
        "A stage is idle for (P - 1) / (V M + P - 1) of the step, whatever the schedule. More "
        "microbatches, or more parts per stage, make that small. The schedule decides how many "
        "activations are in memory at once.",
        problems,
        lesson=9,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(bubble, page, problems):
    series = measured_series("microbatches of a pipeline")
    steps = [sc.predict(**point.asked, source="analytic") for point in series.points]
    middle = {point.microbatches: median(point.seconds) for point in series.points}
    compared = [
        {
            "M": point.microbatches,
            "bubble by the rule": f"{bubble(12, point.microbatches).ideal:.1%}",
            "runs": len(point.seconds),
            **parts.beside(step.step_time, median(point.seconds)),
        }
        for point, step in zip(series.points, steps, strict=True)
    ]
    spread = max(max(point.seconds) / min(point.seconds) for point in series.points) - 1
    page.ending(
        problems,
        "The formula asks for ever more microbatches. BigScience tried, before it trained BLOOM: "
        f"{series.machine} ({series.source}, {series.date}; not fitted on). The fastest of these, "
        f"by the median of its runs, has {min(middle, key=middle.get)} microbatches, not more. "
        "Smaller microbatches make smaller kernels and more messages; the predicted steps have "
        "that too, but too little of it. Measurements scatter too: runs whose stated settings are "
        f"the same differ by {spread:.0%}. The formula also assumes that all stages take equally "
        "long, which holds for this trainer and not for others.",
        compared,
    )


if __name__ == "__main__":
    app.run()
