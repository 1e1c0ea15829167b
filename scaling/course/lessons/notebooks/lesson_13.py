# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 13: plan a run."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="13. Plan a run")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.language import said
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_rate, format_time
    from scaling.questions.answer import Input, by_formula
    from scaling.questions.page import show


@app.cell
def opening():
    model, cluster, batch = "llama3-70b", "dgx-h200", {"batch.global_batch": 512}
    tokens = 15e12  # of Llama 3's training
    count = sc.learn.count(model, tokens=tokens)
    field = parts.guess("How many days does that take on 512 H200?", "days")
    parts.opening(
        "lesson 13",
        "say for a model, a number of tokens and a cluster how long a training takes, what it "
        "costs, on which mesh, and what would change that",
        f"""
`{model}` is to be trained on {tokens / 1e12:.0f} trillion tokens, on nodes of eight H200. It has
{count.answer / 1e9:.1f} billion parameters; 6 P D are {6 * count.answer * tokens:.2g} FLOPs. Four
questions come before the first GPU hour: **does it fit, on which mesh, how long, for how much?**
""",
        field,
        minutes=35,
        chapter="applied-training",
    )
    return batch, cluster, count, field, model, tokens


@app.cell
def after_the_guess(batch, cluster, count, field, model, tokens):
    devices = 512
    planned = sc.plan(model, cluster=cluster, nodes=devices // 8, set=batch, top=6)
    best_plan = planned.plans[0]
    least = float(
        sc.learn.budget(model, tokens=tokens, cluster=cluster, nodes=devices // 8, mfu=1.0)
    )
    days = tokens / best_plan.run.batch.tokens * float(best_plan.prediction.step_time) / 86400
    reached = least / 86400 / days
    mistakes = (
        *("backward: low", "remat: high", "sparse peak: low", "hours: high", "node for chip 8"),
        *(f"all members {devices}: high", f"peak for reached {1 / reached:.4g}: low"),
        *(f"usual share {reached / 0.4:.4g}: high",),
        f"scores {float(best_plan.prediction.mfu) / reached:.4g}: low",
    )
    page = parts.opened(field, days, mistakes)
    figures = (
        Input("P", count.answer, "parameters"),
        Input("D", tokens, "tokens"),
        Input("N", devices, "devices"),
        Input("C", sc.learn.chip("h200-sxm")["peak bf16"].answer, "FLOP/s", "dense bf16 peak"),
        Input("u", reached, "", "the share that the best plan's steps reach"),
    )
    sizes = {f"{8 * n:,} GPUs": n for n in (16, 32, 64, 128)}
    nodes = parts.dropdown(sizes, "devices", "512 GPUs")
    page.show(
        page.guessed,
        page.derivation(
            ("F_token = 6*P", "FLOPs of a token: 2 forward and 4 backward for each parameter"),
            ("F = 6*P*D", "of D tokens"),
            ("R_peak = N*C", "FLOP/s of N chips at their peak"),
            ("R = N*C*u", "what they reach: u is the MFU that counts 6 P a token"),
            ("T = F / R", "the question: seconds, without restarts and evaluation"),
            ("T = 6*P*D / (N*C*u)", "F and R put in"),
            ("hours = T*N / 3600", "device hours, which are paid and take power"),
            (
                "hours = 6*P*D / (3600*C*u)",
                "T put in: N cancels; more chips are faster, not cheaper",
            ),
            ("dollars = hours * price", "so money depends on u, the price and the chip"),
            numbers=by_formula("training", "s", "6*P*D / (N*C*u)", figures),
        ),
        page.ladder(
            f"days of {model} on {devices} H200",
            "days",
            bound=(least / 86400, "6 P D FLOPs at the peak of every chip"),
            fitted=(days, f"at u = {reached:.0%}, which the best plan's steps reach"),
        ),
        "## The best mesh of each kind",
        nodes,
    )
    return devices, nodes, page, planned


@app.cell
def _(batch, cluster, devices, model, nodes, planned):
    found = planned
    if 8 * nodes.value != devices:
        found = sc.plan(model, cluster=cluster, nodes=nodes.value, set=batch, top=6)
    best = found.plans[0] if found.plans else None
    predictions = {plan.run.mesh: plan.prediction for plan in found.plans}
    return best, found, predictions


@app.cell
def what_it_takes(batch, best, cluster, count, found, model, nodes, page, predictions, tokens):
    mo.stop(best is None, mo.md("**Nothing fits.** Take more devices."))
    how = batch | {"remat": str(best.run.remat), "batch.microbatches": best.run.batch.microbatches}
    per_token = float(best.prediction.step_time) / best.run.batch.tokens
    peak = 8 * nodes.value * sc.learn.chip("h200-sxm")["peak bf16"].answer
    share = 6 * count.answer / (per_token * peak)
    budget = sc.learn.budget(model, tokens=tokens, cluster=cluster, nodes=nodes.value, mfu=share)
    rows_of_run = [
        {
            "devices": 8 * nodes.value,
            "days": float(budget) / 86400,
            "device hours": budget["device hours"].answer,
            "dollars": budget["money"].answer,
            "energy (kWh)": budget["energy"].answer,
        }
    ]
    page.show(
        page.steps(predictions),
        f"{found.space:,} configurations: {found.priced:,} priced, {found.infeasible:,} cannot "
        f"run, a bound on time leaves out the others. The best, **{best.run.mesh}** with remat "
        f"{best.run.remat}, takes "
        f"{format_time(best.prediction.step_time)} a step at an MFU of {best.prediction.mfu:.0%} "
        f"in {format_rate(best.prediction.memory.peak, 'B')}. {said(best.why)}.",
        f"## What it takes\n\nAll steps take **{said(show(float(budget), 's'))}**. The MFU above "
        f"counts attention too; by 6 P a token alone it is u = {share:.0%}. Prices are those of a "
        "list on one day; they change.",
        page.table(rows_of_run),
        mo.accordion({"all that `scaling budget` prints": mo.md(f"```\n{budget}\n```")}),
        "## The ladder of the best step",
        page.ladder(
            sc.learn.step_ladder(model, cluster, nodes.value, str(best.run.mesh), "analytic", how)
        ),
    )
    return (budget,)


@app.cell
def take_away(page):
    steps = 20
    chips = {"cluster": "dgx-h100", "devices": 4096, "overrides": ["peak_bf16=990e12"]}
    guides = sc.learn.budget(parameters=70e9, tokens=15e12, mfu=0.45, **chips)
    answer_on_paper = float(guides) / 86400
    fewest = sc.learn.budget(
        "llama3-405b", tokens=15e12, cluster="dgx-h100", mfu=0.4, bytes_per_parameter=16, nodes=512
    )["fewest devices for weights and optimizer"].answer
    seen = sc.load_run("tiny").batch.tokens * steps
    problems = page.problems(
        parts.on_paper(
            "70e9 parameters, 15e12 tokens, 4096 chips of 990e12 FLOP/s at an MFU of "
            "0.45: how many days?",
            (answer_on_paper, "days"),
            mistakes=("backward: low", "remat: high", "hours: high", "sparse peak: low"),
            why="6 P D, over what the chips really do.",
        ),
        parts.in_simulator(
            "the fewest H100 that hold weights and optimizer of llama3-405b at "
            "16 bytes a parameter? (scaling budget --bytes-per-parameter 16)",
            (fewest, "devices"),
            mistakes=("bits: high", "GiB", "bytes per element"),
            why="And not one activation among them.",
        ),
        parts.on_trainer(
            "train the best plan of this machine by the commands below: how many tokens has it "
            "seen at the end (`tokens_seen` of metrics.jsonl)? Say it before you run it",
            (seen, "tokens"),
            mistakes=("copies 8: high",),
            tolerance=0.0,
            why="Sequences times tokens times steps: a mesh divides a batch and does not multiply "
            "it.",
        ),
    )
    commands = (
        "scaling plan tiny --cluster host --json > plan.json",
        "python -c \"import json; plans = json.load(open('plan.json'))['plans']; "
        "json.dump(plans[0]['run'], open('best.json', 'w'))\"",
        f"scaling train best.json --devices 8 --steps {steps} --run-dir runs/best",
    )
    page.takeaway(
        "Six times parameters times tokens, over the FLOP/s that you really get: what is uncertain "
        "is the share of the peak, and the mesh decides it. Plan by closed forms, look at why the "
        "second best loses, compile the few that are left, and only then start.",
        problems,
        parts.typed(*commands),
        lesson=13,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, predictions, problems):
    page.ending(
        problems,
        "Plans are closed forms; `scaling plan --verify` prices the best again from their "
        "compiled programs. Meshes whose ranges overlap cannot be told apart. Failures, restarts, "
        "evaluation and data take time as well: `scaling budget` prices failures that you state.",
        parts.ranges(predictions),
    )


if __name__ == "__main__":
    app.run()
