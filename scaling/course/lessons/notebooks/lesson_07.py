# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 7: fsdp and tensor: the best split."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="7. FSDP and tensor: the best split")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.rungs import Rung, ladder
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_time


@app.cell
def opening():
    group = parts.stored("splits of 64 GPUs")
    whole = next(e for e in group if (e.cluster, e.mesh) == ("dgx-h100", "fsdp=64"))
    clusters = list(dict.fromkeys(entry.cluster for entry in group))
    example = sc.load_run(group[0].run, set=group[0].set)
    devices = sc.load_cluster(group[0].cluster, group[0].nodes).devices
    field = parts.guess(
        "How many devices should `tensor` have in the fastest split: 1, 2, 4 or 8?", "device(s)"
    )
    parts.opening(
        "lesson 7",
        "choose between sharding the data and sharding the model for a cluster that you do "
        "not own, and say which link decides",
        f"""
{devices} GPUs train `{group[0].run}`, {example.batch.global_batch} sequences of
{example.batch.seq_len:,} tokens a step. **fsdp** shards the weights and gathers them layer by
layer: it sends weights, whatever the batch. **tensor** splits every product: it sends activations,
which grow with the batch, twice per block in each pass. **data** keeps copies.

The guide weighs the two by one formula: with B tokens, N chips and a layer of width F, fsdp over
X = sqrt(B N / F) chips, and tensor over the others, moves the fewest bytes where all links are
equal. On GPUs they are not: a node's NVLink is many times as wide as a GPU's share of the network.
""",
        field,
        minutes=30,
        chapter="training",
    )
    return clusters, devices, example, field, group, whole


@app.cell
def after_the_guess(clusters, devices, example, field, group, whole):
    priced = lambda entry, source: entry.arguments | {"source": source}
    tensor_of = lambda mesh: int(mesh.partition("tensor=")[2] or 1)
    _on_h100 = [entry for entry in group if entry.cluster == whole.cluster]
    _fastest = {
        source: tensor_of(
            min(_on_h100, key=lambda e: sc.predict(**priced(e, source)).step_time).mesh
        )
        for source in ("stored", "analytic")
    }
    wide = sc.load_run(whole.run).model.d_ff
    equal = devices / (example.batch.tokens * devices / wide) ** 0.5
    best_tensor = _fastest["stored"]
    mistakes = (f"equal links {2 / best_tensor:g}", f"whole node {8 / best_tensor:g}")
    page = parts.opened(field, best_tensor, mistakes, tolerance=0.01)
    climbed = ladder(
        f"devices of `tensor` in the fastest split of {devices} H100",
        "devices",
        page.guess,
        (
            Rung("textbook", equal, "N / X with X = sqrt(B N / F): all links equal"),
            Rung(
                "fitted", _fastest["analytic"], "the fastest by closed forms, of the splits below"
            ),
            Rung("compiled", best_tensor, "the fastest of the same by their compiled steps"),
        ),
    )
    cluster = mo.ui.dropdown(clusters, value=clusters[0], label="cluster")
    network = parts.powers("network times", -3, 3)
    nvlink = parts.powers("NVLink times", -3, 1)
    page.show(
        page.guessed,
        page.derivation(
            ("V_fsdp = 4*D*F / Y", "a layer's weights, which `tensor` over Y has cut already"),
            ("V_tensor = 4*B*D / X", "activations of the B tokens, which `fsdp` over X has cut"),
            ("X*Y = N", "all chips"),
            ("V = 4*D*F*X / N + 4*B*D / X", "what a chip sends; Y = N / X put in"),
            ("4*D*F / N = 4*B*D / X**2", "least where both grow alike: the derivative is zero"),
            ("X = sqrt(B*N / F)", "the guide's formula. It takes all links as equal"),
        ),
        "Inside a node the links are faster, which favours `tensor` there; and what is hidden "
        "behind products costs nothing, which the formula does not know.",
        page.ladder(climbed),
        "## Seven compiled steps, priced again",
        [cluster, network, nvlink],
    )
    return best_tensor, cluster, network, nvlink, page


@app.cell
def _(cluster, group, network, nvlink, page):
    changes = parts.changes(network=network.value, nvlink=nvlink.value)
    steps = {
        entry.mesh: sc.predict(**entry.arguments, what_if=changes)
        for entry in group
        if entry.cluster == cluster.value
    }
    fastest = min(steps, key=lambda mesh: steps[mesh].step_time)
    best = steps[fastest]
    page.show(
        page.steps(steps),
        f"**{fastest}** is fastest: {format_time(best.step_time)}, MFU {best.mfu:.0%}. "
        f"{best.bottleneck}.",
    )
    return


@app.cell
def the_ladder_of_a_step(devices, example, page, whole):
    limits = sc.learn.limits(example, cluster="dgx-h100", nodes=devices // 8)
    answer, alone = limits["fewest tokens with fsdp and tensor"], limits["fsdp, forward"]
    mine = example.batch.tokens / devices
    page.show(
        "## The ladder of a step of the plainest split",
        page.ladder(sc.learn.step_ladder(**whole.arguments)),
        f"## What the rule says\n\nThis run has {mine:,.0f} tokens a device; all of fsdp "
        f"needs {float(alone):,.0f} to hide its communication, the best split of fsdp "
        f"and tensor {float(answer):,.0f}.",
        page.formula(answer),
    )
    return


@app.cell
def take_away(group, page, whole):
    best_fsdp = (2**18 * 64 / 16384) ** 0.5
    on_h100 = [entry for entry in group if entry.cluster == "dgx-h100"]
    errors = parts.ranges({entry.mesh: sc.predict(**entry.arguments) for entry in on_h100})
    slow = sc.predict(**whole.arguments, what_if=["network x0.125"])
    ratio = slow.step_time / sc.predict(**whole.arguments).step_time
    problems = page.problems(
        parts.on_paper(
            "all links equal, B = 2**18 tokens, N = 64 chips, F = 16384: how many "
            "chips should fsdp have by the guide's formula X = sqrt(B N / F)?",
            (best_fsdp, "chips"),
            why="More tokens, more fsdp: its bytes are those of the weights, whatever the batch.",
        ),
        parts.in_simulator(
            "the network is an eighth as fast (scaling predict ... "
            '--what-if "network x0.125", or the slider, on dgx-h100): how many times as long does '
            "fsdp=64 take?",
            (ratio, "times"),
            why="Not eight times: communication behind compute stays hidden until it takes longer.",
        ),
        parts.on_trainer(
            "train `tiny` for 20 steps with --devices 8 and --mesh fsdp=8, then "
            "with fsdp=4,tensor=2, each in a --run-dir of its own: divide the last losses",
            (1.0, "ratio"),
            tolerance=0.001,
            why="The mesh decides who computes what, not what is computed.",
        ),
    )
    page.takeaway(
        "Tensor parallelism allows a smaller batch and pays with communication in every block: it "
        "belongs inside a node. With enough tokens per device plain fsdp is fastest; all "
        "else is for runs that have fewer.",
        problems,
        lesson=7,
    )
    return errors, problems


@app.cell
def where_the_model_is_wrong(errors, page, problems):
    page.ending(
        problems,
        "No GPU of this project has run these steps. The ranges are those within which published "
        "steps of other trainers fell; two splits whose ranges overlap cannot be told apart. "
        "`make validate` scores the model on measured runs.",
        errors,
    )
    return


@app.cell
def test_plain_fsdp_is_the_fastest_of_these_splits_on_h100(best_tensor):
    assert best_tensor == 1
    return


@app.cell
def test_every_prediction_lies_in_its_range(errors):
    assert all(row["low (s)"] <= row["predicted (s)"] <= row["high (s)"] for row in errors)
    return


if __name__ == "__main__":
    app.run()
