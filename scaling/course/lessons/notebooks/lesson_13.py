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
    from scaling.course.ladder.rungs import Rung, ladder
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_rate, format_time
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
{count.answer / 1e9:.1f} billion parameters; 6 N D are {6 * count.answer * tokens:.2g} FLOPs. Four
questions come before the first GPU hour: **does it fit, on which mesh, how long, for how much?**
""",
        field,
        minutes=35,
        chapter="applied-training",
    )
    return batch, cluster, count, field, model, tokens


@app.cell
def after_the_guess(batch, cluster, field, model, tokens):
    devices = 512
    planned = sc.plan(model, cluster=cluster, nodes=devices // 8, set=batch, top=6)
    best_plan = planned.plans[0]
    least = float(
        sc.learn.budget(model, tokens=tokens, cluster=cluster, nodes=devices // 8, mfu=1.0)
    )
    days = tokens / best_plan.run.batch.tokens * float(best_plan.prediction.step_time) / 86400
    reached = least / 86400 / days
    mistakes = (
        *("backward", "remat", "sparse peak", "hours", "node for chip 8"),
        f"peak for reached {1 / reached:.4g}",
        f"scores {float(best_plan.prediction.mfu) / reached:.4g}",
    )
    page = parts.opened(field, days, mistakes)
    climbed = ladder(
        f"days of {model} on {devices} H200",
        "days",
        page.guess,
        (
            Rung("bound", least / 86400, "6 N D FLOPs at the peak of every chip"),
            Rung("fitted", days, f"at u = {reached:.0%}, which the best plan's steps reach"),
        ),
    )
    nodes = mo.ui.dropdown(
        {f"{8 * n:,} GPUs": n for n in (16, 32, 64, 128)}, value="512 GPUs", label="devices"
    )
    page.show(
        page.guessed,
        page.derivation(
            ("6*N", "FLOPs of a token: 2 forward, 4 backward for each of N parameters"),
            ("F = 6*N*D", "of D tokens"),
            ("R = devices * C * u", "C is a chip's peak, u the share of it that 6 N a token reach"),
            ("T = F / R", "seconds, without restarts and evaluation"),
            ("hours = T * devices / 3600", "device hours, which are paid and take power"),
            ("dollars = hours * price", "so money depends on u, and hardly on the devices"),
        ),
        page.ladder(climbed),
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
def what_it_takes(best, cluster, count, found, model, nodes, page, predictions, tokens):
    mo.stop(best is None, mo.md("**Nothing fits.** Take more devices."))
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
        f"in {format_rate(best.prediction.memory.peak, 'B')}. {best.why}.",
        f"## What it takes\n\nAll steps take **{show(float(budget), 's')}**. The MFU above counts "
        f"attention too; by 6 N a token alone it is u = {share:.0%}. Prices are those of a list "
        "on one day; they change.",
        page.table(rows_of_run),
        page.formula(budget),
    )
    return (budget,)


@app.cell
def the_ladder_of_that_step(batch, cluster, devices, model, page, planned):
    run = planned.plans[0].run
    how = batch | {"remat": str(run.remat), "batch.microbatches": run.batch.microbatches}
    rungs_of_step = sc.learn.step_ladder(
        model, cluster, devices // 8, str(run.mesh), "analytic", how
    )
    page.show("## The ladder of that step", page.ladder(rungs_of_step))
    return


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
            mistakes=("backward", "remat", "hours", "sparse peak"),
            why="6 N D, over what the chips really do.",
        ),
        parts.in_simulator(
            "the fewest H100 that hold weights and optimizer of llama3-405b at "
            "16 bytes a parameter? (scaling budget --bytes-per-parameter 16)",
            (fewest, "devices"),
            mistakes=("bits", "GiB", "bytes per element"),
            why="And not one activation among them.",
        ),
        parts.on_trainer(
            "train the best plan of this machine by the commands below: how many tokens has it "
            "seen at the end (`tokens_seen` of metrics.jsonl)? Say it before you run it",
            (seen, "tokens"),
            mistakes=("copies 8",),
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
        "evaluation and data take their part: `scaling budget` prices failures that you state.",
        parts.ranges(predictions),
    )
    return


@app.cell
def test_more_than_6_nd_never_takes_less(budget, count, tokens):
    flops = 6 * count.answer * tokens
    assert abs(budget["FLOPs"].answer / flops - 1) < 0.02
    return


@app.cell
def test_the_days_are_those_of_the_steps(best, budget, tokens):
    steps_ = tokens / best.run.batch.tokens
    assert abs(float(budget) / (steps_ * float(best.prediction.step_time)) - 1) < 1e-6
    return


@app.cell
def test_the_best_plan_is_not_slower_than_the_others(found):
    times_ = [float(plan.prediction.step_time) for plan in found.plans]
    assert times_[0] <= min(times_) * 1.05
    return


if __name__ == "__main__":
    app.run()
