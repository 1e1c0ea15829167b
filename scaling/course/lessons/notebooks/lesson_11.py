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
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_rate, format_time
    from scaling.pictures.timeline import step_memory
    from scaling.questions.answer import Input, by_formula


@app.cell
def opening():
    group = parts.stored("remat")
    model = max((entry.run for entry in group), key=lambda name: sc.learn.count(name).answer)
    entry = next(e for e in group if e.run == model)
    same = [e for e in group if (e.run, e.cluster) == (model, entry.cluster)]
    steps = {e.set["remat"]: sc.predict(**e.arguments) for e in same}
    X = steps["none"].devices
    run = sc.load_run(model, mesh=entry.mesh, set=entry.set)
    field = parts.guess(
        "How much memory does a device need at its peak, when all activations are kept?", "GB"
    )
    parts.opening(
        "lesson 11",
        "say what fills the memory of a device during a step, and what each way to save it "
        "costs in time",
        f"""
A step of `{model}` on {X} H100 with `fsdp`: {run.batch.global_batch}
sequences of {run.batch.seq_len:,} tokens. Each device holds its share of the parameters, of their
gradients and of the optimizer's two moments, in fp32, all the time. The forward pass adds what the
backward pass will need. **Remat** keeps less of that and computes it again.
""",
        field,
        minutes=30,
        chapter="transformers",
    )
    return X, entry, field, run, steps


@app.cell
def after_the_guess(X, entry, field, run, steps):
    whole, count = steps["none"], sc.learn.count(run, batch=run.batch.tokens // X)
    P, _peak = count.answer, float(whole.memory.peak)
    closed = sc.predict(
        run, cluster=entry.cluster, nodes=entry.nodes, source="analytic", set={"remat": "none"}
    )
    kept = next(r for r in count["activations kept"].rows if r["remat"] == "none")
    a = Input("a", kept["of a token and layer (bytes)"], "bytes", "of a token and layer")
    figures = (
        Input("P", P, "parameters"),
        Input("X", X, "devices"),
        Input("B", run.batch.tokens // X, "tokens", "of a device"),
        Input("L", run.model.n_layers, "layers"),
        a,
    )
    counted = by_formula("peak", "bytes", "16*P / X + B*L*a", figures)
    wrong = {
        "state alone": 12 * P / X,
        "no activations": 16 * P / X,
        "uncut": 12 * P,
        "all members": _peak * X,
    }
    betrayed = (f"{name} {size / _peak:.4g}: high" for name, size in wrong.items())
    mistakes = (*betrayed, f"uncut {16 * P / _peak:.4g}: high", "bits: high")
    page = parts.opened(field, _peak / 1e9, mistakes)
    policy = mo.ui.radio(list(steps), value="none", label="remat", inline=True)
    page.show(
        page.guessed,
        page.derivation(
            ("S_weights = 4*P / X", "P parameters in fp32, cut over X devices"),
            ("S_moments = 8*P / X", "Adam's two, each as many numbers as there are weights"),
            ("S_gradients = 4*P / X", "from the backward pass until the update"),
            ("S_state = 16*P / X", "all three; nothing here depends on the batch"),
            ("S_layer = B*a", "what a layer keeps for its backward pass: a bytes of each token"),
            ("S_kept = B*L*a", "of L layers; one loop runs them and frees it when it ends"),
            ("S_peak ≈ S_state + S_kept", "the question: both are there in the backward pass"),
            ("S_peak ≈ 16*P / X + B*L*a", "both put in; remat makes a smaller, and nothing else"),
            numbers=counted,
        ),
        f"The compiler finds {_peak / counted.answer - 1:.0%} more: gathered weights, logits and "
        "their gradients are not in the formula.",
        page.ladder(
            f"peak of a device, {run.name}, remat none",
            "bytes",
            scale=1e9,
            bound=(12 * P / X, "fp32 weights and two moments of Adam, cut over all devices"),
            textbook=(counted.answer, "gradients, and what every layer keeps of each token"),
            fitted=(closed.memory.peak, "closed form: what the backward pass needs, by tensor"),
            compiled=(_peak, "buffers of the compiled step, walked in its order"),
        ),
        "## Where the bytes are, moment by moment",
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


@app.cell
def take_away(page, steps):
    filled = 70e9 * 16 / 80e9
    longer = float(steps["full"].step_time / steps["none"].step_time)
    problems = page.problems(
        parts.on_paper(
            "70e9 parameters, 16 bytes each, H100 with 80e9 bytes: how many devices "
            "do weights, gradients and optimizer fill?",
            (filled, "devices"),
            mistakes=("bytes per element 4: low", "bits: high", f"state alone {16 / 12:.4g}: low"),
            why="Before a single activation.",
        ),
        parts.in_simulator(
            "how many times as long is the step with remat full as with none?",
            (longer, "times"),
            why="Less than 4/3: the attention kernel recomputes its scores anyway, and what is "
            "gathered once serves both passes.",
        ),
        parts.same_losses(
            "tiny",
            "--set remat=none",
            "--set remat=full",
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


if __name__ == "__main__":
    app.run()
