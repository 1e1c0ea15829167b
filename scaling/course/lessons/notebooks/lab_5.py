# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lab 5: the best of a measured sweep, in five tries."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="Lab 5. The best of a measured sweep, in five tries")


with app.setup:
    import math
    from statistics import median
    from types import SimpleNamespace

    import marimo as mo

    from scaling.course.language import said
    from scaling.course.lessons import lab5_sweeps, parts
    from scaling.course.sweeps.game import TRIES, SweepGame, find_problem, sweep
    from scaling.meshes.units import percent
    from scaling.pictures.curves import ScatterPoint, curves, scatter


@app.cell
def opening():
    problem = find_problem("3.57B-128")
    published = sweep()
    ran, out = len(problem.times), len(problem.rows) - len(problem.times)
    spread = problem.times[-1] / problem.times[0]
    field = parts.guess(
        f"{ran} of them ran. How many times as long as the fastest did the slowest take?", "times"
    )
    parts.opening(
        "lab 5",
        "choose what to try first, say what a rule of thumb and a planner are worth, and read "
        "from step times what a network did",
        f"The Ultra-Scale Playbook published {published.tried:,} configurations of one trainer on "
        f"8 to 256 H100: {published.outcomes['ok']} were timed, {published.outcomes['oom']:,} "
        "ran out of memory, the others failed. This lab takes the "
        f"{len(published.problems)} problems of them that can be ranked. Here is one: a Llama of "
        f"{problem.model['n_layers']} layers on {problem.gpus} GPUs, "
        f"{problem.global_batch} sequences of {problem.seq_len:,} tokens a step, and "
        f"{len(problem.rows)} configurations of the same work on the same GPUs.",
        field,
        minutes=35,
        chapter="training",
    )
    return field, out, problem, published, ran, spread


@app.cell
def after_the_guess(field, out, problem, ran, spread):
    middle = median(problem.times) / problem.times[0]
    page = parts.opened(field, spread, (f"typical one {spread / middle:.4g}: low", "percent"))
    line = [(place, seconds) for place, seconds in enumerate(problem.times, 1)]
    page.show(
        page.guessed,
        f"The line goes through the {ran} measured steps; {out} more configurations ran out of "
        "memory.",
        page.picture(
            curves([("measured", line, 0, 0)], [], "rank", "seconds of a step"),
            f"Measured step times of {ran} configurations in their order: the slowest takes "
            f"{spread:.3g} times as long as the fastest",
        ),
        f"## Find the fastest in {TRIES} tries\n\nOne that ran out of memory costs a try. `data` "
        "is what remains of the GPUs; `zero=1` shards the optimizer over it; `sequences` are those "
        "of a microbatch, and the fewer there are, the more microbatches a step has.",
    )
    return (page,)


@app.cell
def _(page, problem):
    configurations = {str(row): i for i, row in enumerate(problem.rows)}
    choice = parts.dropdown(configurations, "configuration")
    tries, set_tries = mo.state(())
    page.show(choice)
    return choice, set_tries, tries


@app.cell
def _(choice, page, set_tries):
    def with_one_more(before):
        is_new = choice.value not in before and len(before) < TRIES
        return (*before, choice.value) if is_new else before

    button = mo.ui.button(label="Try it", on_change=lambda _: set_tries(with_one_more))
    page.show(button)


@app.cell
def shown_table(page, problem, tries):
    game = SweepGame(problem, tuple(problem.rows[i] for i in tries()))
    told = [
        {
            "try": number,
            "configuration": str(row),
            "step": row.said,
            "rank": problem.rank(row.seconds) if row.seconds else None,
        }
        for number, row in enumerate(game.tries, 1)
    ]
    page.show(page.table(told), f"{game.left} of {TRIES} tries left")
    return (game,)


@app.cell
def held_against_others(game, page, problem, published):
    yours = parts.chosen(SimpleNamespace(value=game if game.is_over else None))
    # Who only runs this file plays what the planner would.
    played = yours or SweepGame(problem, tuple(problem.rows[i] for i in problem.planner))
    held = [
        {
            "who": name,
            "step": row.said if row else "out of memory",
            "over the best": "" if problem.lost(row) is None else f"{problem.lost(row):+.1%}",
            "configuration": str(row) if row else "",
        }
        for name, row in {
            "your best" if yours else "five tries": played.best,
            **played.others,
        }.items()
    ]
    luck = "" if played.luck is None else f"{percent(played.luck)} of the time"
    page.show(
        "## Compared with others",
        page.table(held),
        f"The best of {TRIES} configurations drawn at random is as good as yours **{luck}**."
        if luck
        else "Everything you tried ran out of memory: a rule of thumb would have run.",
        f"The rule of thumb is told what ran, you were not. The planner is version "
        f"{published.made['scaling']} of {published.made['date']}; it was told neither, but knows "
        "this trainer from runs of both models, these among them. The line without this model's "
        "runs is what it says when it knows the trainer from the other model alone. More: "
        "`scaling learn sweep` plays all problems.",
    )


@app.cell
def all_problems(page, published):
    lost = lab5_sweeps.lost()
    scores = [
        {
            "who": name,
            "median over the best": f"{median(each):+.1%}",
            "worst": f"{max(each):+.0%}",
            "found the best": f"{sum(one == 0 for one in each)} of {len(each)}",
        }
        for name, each in lost.items()
    ]
    page.show(
        f"## All {len(published.problems)} problems",
        page.table(scores),
        f"A first choice is one try. {TRIES} of the planner's, measured, nearly always hold the "
        "best: the use of a model is a short list, not a verdict.",
    )
    return (lost,)


@app.cell
def the_sick_month(page, published):
    sick = tuple(one for one in published.problems if one.network == "sick")
    buses = [
        {
            "GPUs": ill.gpus,
            "sound (bytes/s)": find_problem(ill.name.removesuffix("-sick")).bus_bandwidth["across"],
            "sick (bytes/s)": ill.bus_bandwidth["across"],
            "inside a node, sick (bytes/s)": ill.bus_bandwidth["inside"],
        }
        for ill in {one.gpus: one for one in sick}.values()
    ]
    kinds = ("data alone", "tensor inside a node", "stages", "tensor beyond a node")
    suffers = mo.ui.radio(kinds, label="**Which kind of mesh loses most on the sick network?**")
    page.show(
        "## The sick month\n\nEach job measured the all-reduce of its network before it trained. "
        "For a while it reached a fraction of what it had:",
        page.table(buses),
        f"How much did that cost? Nobody knows from the times alone: **{lab5_sweeps.shared()}** "
        "configurations were timed on both networks. So the model stands in for the sound one.",
        suffers,
    )
    ratios = {network: lab5_sweeps.slowdowns(network) for network in ("sound", "sick")}
    return kinds, ratios, sick, suffers


@app.cell
def reply(kinds, page, ratios, sick, suffers):
    picked = parts.chosen(suffers)
    largest = max(one.gpus for one in sick)
    says = lab5_sweeps.foretold(tuple(one for one in sick if one.gpus == largest))
    most = ("data alone", "tensor inside a node")  # whose gradients cross the network
    rows = [
        {
            "split by": name,
            "runs, sound": len(ratios["sound"].get(name, ())),
            "runs, sick": len(ratios["sick"].get(name, ())),
            "measured / as if sound, sick": median(ratios["sick"].get(name, [math.nan])),
            f"the model says, {largest} GPUs": says.get(name, math.nan),
        }
        for name in kinds
    ]
    tails = {network: lab5_sweeps.long_share(network) for network in ratios}
    found = lab5_sweeps.tail()
    points = [
        ScatterPoint(f"{said(one.network)} network", row.seconds, row.on_sound)
        for one in sweep().problems
        for row in one.rows
        if row.seconds is not None
    ]
    page.show(
        page.reply(
            picked in most,
            "what all-reduces the gradients of all weights over all nodes. The model says so, and "
            "the people who ran the sweep acted so: in that month they ran almost only stages, "
            "whose traffic is small.",
        ),
        page.table(rows),
        page.picture(
            scatter(points, "", ("measured", "predicted as if sound")),
            f"Predicted against measured step times of {len(points)} runs on both networks",
        ),
        "The median run of stages hardly noticed. The tail did: "
        f"{percent(tails['sick'])} of the sick month's runs took {lab5_sweeps.LONG:g} times "
        f"their prediction or more, {percent(tails['sound'])} of the others. Some of it the jobs "
        f"tell themselves: {found.ill} of them measured less than half of the bandwidth *inside* "
        f"a node, and {found.both} of these are among the {found.long} long ones. The others had "
        "sound nodes. Stages and the month came together, so that a slow link and a slow pipeline "
        "cannot be told apart in them.",
    )
    return found, most, says, tails


@app.cell
def take_away(page, problem):
    gpus = problem.gpus
    ill = find_problem(f"{problem.name}-sick")
    gradients = 1e9 * 4
    reduce = 2 * (gpus - 1) / gpus * gradients / ill.bus_bandwidth["across"]
    small = find_problem("3.57B-256")
    rule_lost = small.lost(small.rows[small.rule])
    problems = page.problems(
        parts.on_paper(
            f"the sick network all-reduces at {ill.bus_bandwidth['across'] / 1e9:.3g} GB/s of bus "
            f"bandwidth over {gpus} GPUs. How long do fp32 gradients of a billion parameters take?",
            (reduce, "s"),
            mistakes=("all-reduce once: low", "bytes per element 4: low", "bits"),
            why="2 (N - 1)/N of the bytes at the bus bandwidth; each step pays it once, if nothing "
            "hides it.",
        ),
        parts.in_simulator(
            f"play {small.name} (scaling learn sweep {small.name}). How much longer than the best "
            "does the choice of the rule of thumb take, as a ratio less one?",
            (rule_lost, ""),
            mistakes=("percent",),
            tolerance=0.05,
            why="Each of its GPUs sums the gradients of all weights; with tensor it sums its part "
            "of them. And the fastest five do without ZeRO, which saves memory that nobody needs.",
        ),
    )
    page.takeaway(
        "The same work on the same GPUs takes times that differ by a factor of ten and more. A "
        "rule of thumb orders by one thing, and sometimes another one binds. A model orders by "
        "all of them, and about half of the time its first choice is not the best: measure its "
        "first five. And measure the network before: a step time does not say which link is slow.",
        problems,
    )
    return problems, small


@app.cell
def where_the_model_is_wrong(page, problems, ratios):
    wrong = [
        {
            "split by": name,
            "runs": len(each),
            "measured / predicted": median(each),
            "worst": max(each),
        }
        for name, each in ratios["sound"].items()
    ]
    page.ending(
        problems,
        "On the sound network, where each time is one sample of one step. Tensor beyond a node is "
        "foretold too fast; with little memory left, steps take multiples of their neighbours'; "
        "and the description of this trainer was found on these very runs, so that the numbers "
        "above say how well it fits, not how well it carries to another trainer.",
        wrong,
    )
    return (wrong,)


if __name__ == "__main__":
    app.run()
