# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 11: will it fit?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="11. Will it fit?")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.api.pricing import price_program
    from scaling.course.ladder.rungs import Rung, ladder
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_rate, format_time
    from scaling.pictures.timeline import step_memory


@app.cell
def opening():
    group = parts.stored("remat")
    model = max((entry.run for entry in group), key=lambda name: sc.learn.count(name).answer)
    entry = next(e for e in group if e.run == model)
    same = [e for e in group if (e.run, e.cluster) == (model, entry.cluster)]
    steps = {e.set["remat"]: sc.predict(**e.arguments) for e in same}
    run = sc.load_run(model, mesh=entry.mesh, set=entry.set)
    field = parts.guess(
        "How much memory does a device need at its peak, when all activations are kept?", "GB"
    )
    parts.opening(
        "lesson 11",
        "say what fills the memory of a device during a step, and what each way to save it "
        "costs in time",
        f"""
A step of `{model}` on {steps["none"].devices} H100 with `fsdp`: {run.batch.global_batch}
sequences of {run.batch.seq_len:,} tokens. Each device holds its share of the parameters, of their
gradients and of the optimizer's two moments, in fp32, all the time. The forward pass adds what the
backward pass will need. **Remat** keeps less of that and computes it again.
""",
        field,
        minutes=30,
        chapter="transformers",
    )
    return entry, field, run, steps


@app.cell
def after_the_guess(entry, field, run, steps):
    whole = steps["none"]
    count = sc.learn.count(run)
    state = 12 * count.answer / whole.devices
    closed = sc.predict(
        run, cluster=entry.cluster, nodes=entry.nodes, source="analytic", set={"remat": "none"}
    )
    with_gradients = state + 4 * count.answer / whole.devices
    closed_form = "closed form: what the backward pass needs, tensor by tensor"
    walked = "buffers of the compiled step, walked in its order"
    peak_gb = float(whole.memory.peak) / 1e9
    mistakes = (
        *(f"state alone {1e9 * peak_gb / state:.4g}", f"all members {whole.devices}"),
        *("bytes per element 2", "bits"),
    )
    page = parts.opened(field, peak_gb, mistakes)
    rungs = (
        Rung("bound", state, "fp32 weights and two moments of Adam, cut over all devices"),
        Rung("textbook", with_gradients, "16 bytes a parameter: gradients too"),
        Rung("fitted", float(closed.memory.peak), closed_form),
        Rung("compiled", float(whole.memory.peak), walked),
    )
    climbed = ladder(f"peak of a device, {run.name}, remat none", "bytes", 1e9 * page.guess, rungs)
    policy = mo.ui.radio(list(steps), value="none", label="remat", inline=True)
    title = "## Where the bytes are, moment by moment"
    page.show(
        page.guessed,
        page.derivation(
            ("S_weights = 4*P / X", "fp32, cut over X devices"),
            ("S_moments = 8*P / X", "Adam's two, as many numbers as weights each"),
            ("S_gradients = 4*P / X", "from the backward pass until the update"),
            ("S_state = 16*P / X", "all three: nothing here depends on the batch"),
            (
                "S_kept = B*L*a",
                "B tokens of a device, L layers, a bytes that each keeps of a token",
            ),
            (
                "S_peak ≈ S_weights + S_moments + S_kept",
                "before gradients replace what was kept; with remat a is smaller",
            ),
        ),
        page.ladder(climbed),
        title,
        policy,
    )
    return page, policy


@app.cell
def shown_picture(page, policy, steps):
    shown = steps[policy.value]
    priced = price_program(shown.pricing, record=True)
    curve = step_memory(priced, shown.memory.capacity)
    peak = format_rate(shown.memory.peak, "B")
    alt = f"Memory over a step with remat {policy.value}: it peaks at {peak}"
    page.show(
        page.picture(curve, alt),
        f"**{policy.value}**: {peak} at the peak, {format_time(shown.step_time)} a step, HFU "
        f"{shown.hfu:.0%} of which MFU {shown.mfu:.0%}: the difference is what is computed again.",
    )
    return


@app.cell
def take_away(page, steps):
    filled = 70e9 * 16 / 80e9
    longer = float(steps["full"].step_time / steps["none"].step_time)
    problems = page.problems(
        parts.on_paper(
            "70e9 parameters, 16 bytes each, H100 with 80e9 bytes: how many devices "
            "do weights, gradients and optimizer fill?",
            (filled, "devices"),
            mistakes=("bytes per element 4", "bits", f"state alone {16 / 12:.4g}"),
            why="Before a single activation.",
        ),
        parts.in_simulator(
            "how many times as long is the step with remat full as with none?",
            (longer, "times"),
            mistakes=("remat",),
            why="Less than 4/3: the attention kernel recomputes its scores anyway, and what is "
            "gathered once serves both passes.",
        ),
        parts.on_trainer(
            "train `tiny` for 20 steps with --set remat=none and with "
            "--set remat=full, each in a --run-dir of its own: divide the last losses",
            (1.0, "ratio"),
            tolerance=0.001,
            why="Remat changes no number, only when it is computed.",
        ),
    )
    page.takeaway(
        "Fsdp shards parameters, gradients and moments, whose size does not depend on the batch. "
        "Activations grow with the tokens of a device, and remat reduces only them. It costs up to "
        "a third more FLOPs.",
        problems,
        lesson=11,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems, steps):
    rows = [
        {
            "remat": name,
            "peak (bytes)": float(step.memory.peak),
            "XLA's plan (bytes)": float(step.pricing.program.compiler_peak or 0),
            "step (s)": float(step.step_time),
        }
        for name, step in steps.items()
    ]
    page.ending(
        problems,
        "Our peak follows the order in which buffers are made and freed; XLA's own plan may place "
        "them differently. Both are below. The driver, NCCL and other libraries need memory as "
        "well: what has to fit is the pool that they leave to XLA.",
        rows,
    )
    return (rows,)


@app.cell
def test_less_kept_is_less_memory_and_more_time(steps):
    peaks = [steps[name].memory.peak for name in ("none", "selective", "full")]
    assert peaks == sorted(peaks, reverse=True)
    assert steps["full"].step_time > steps["none"].step_time
    return


@app.cell
def test_the_walk_is_within_a_few_percent_of_the_compilers_plan(rows):
    for row in rows:
        assert abs(row["peak (bytes)"] / row["XLA's plan (bytes)"] - 1) < 0.05
    return


if __name__ == "__main__":
    app.run()
