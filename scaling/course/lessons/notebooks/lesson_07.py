# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 7: fsdp and tensor: the best split."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="7. FSDP and tensor: the best split")


with app.setup:
    import scaling as sc
    from scaling.course.language import said
    from scaling.course.lessons import parts
    from scaling.meshes.units import format_time
    from scaling.questions.answer import Input, by_formula


@app.cell
def opening():
    group = parts.stored("splits of 64 GPUs")
    whole = next(e for e in group if (e.cluster, e.mesh) == ("dgx-h100", "fsdp=64"))
    clusters = list(dict.fromkeys(entry.cluster for entry in group))
    example = sc.load_run(group[0].run, set=group[0].set)
    devices = sc.load_cluster(group[0].cluster, group[0].nodes).devices
    shape = example.model
    field = parts.guess(
        f"All links equal: from how many tokens per device on does fsdp={devices} send fewer bytes "
        f"than fsdp={devices // 2},tensor=2?",
        "tokens",
    )
    parts.opening(
        "lesson 7",
        "choose between sharding the data and sharding the model for a cluster that you do "
        "not own, and say which link decides",
        f"""
{devices} GPUs train `{group[0].run}`, {example.batch.global_batch} sequences of
{example.batch.seq_len:,} tokens a step. **fsdp** shards the weights and gathers them layer by
layer: it sends weights, whatever the batch. **tensor** splits every product: it sends activations,
which grow with the batch, before and after each MLP. **data** keeps copies. The guide weighs the
bytes of the two for an MLP of two matrices, [D, F] and [F, D], here D = {shape.d_model:,} and
F = {shape.d_ff:,}, on N chips with B tokens in all, X chips along fsdp and Y along tensor.
""",
        field,
        minutes=30,
        chapter="training",
    )
    return clusters, devices, example, field, group, shape, whole


@app.cell
def after_the_guess(clusters, devices, example, field, shape, whole):
    least = shape.d_ff / 2  # tokens of a device
    rule = sc.learn.limits(example, whole.cluster, whole.nodes)["rule"].ideal
    mistakes = (
        *("longest axis 2: high", f"width {shape.d_model / least:.4g}: high"),
        f"all members {devices}: high",
        f"width {shape.d_ff / shape.d_model:g}: low",
        *(f"hidden for fewest {part * rule / least:.4g}: high" for part in (1, 7 / 8)),
    )
    page = parts.opened(field, least, mistakes)

    def seconds(tokens, mesh, short=1024):
        """A step with so many tokens per device, in sequences short enough for any batch."""
        batch = {"batch.seq_len": short, "batch.global_batch": devices * tokens // short}
        settings = whole.arguments["set"] | batch
        where = whole.arguments | {"mesh": mesh, "set": settings, "source": "analytic"}
        return sc.predict(**where).step_time

    plain, halved = f"fsdp={devices}", f"fsdp={devices // 2},tensor=2"
    found = (2**n for n in range(10, 15) if seconds(2**n, plain) < seconds(2**n, halved))
    faster = next(found, None)
    figures = (Input("F", shape.d_ff, "", "width of the MLP"),)
    cluster = parts.dropdown(clusters, "cluster")
    network = parts.powers("network times", -3, 3)
    nvlink = parts.powers("NVLink times", -3, 1)
    page.show(
        page.guessed,
        page.derivation(
            ("V_fsdp = 4*D*F / Y", "bytes of a layer's weights in bf16, which tensor cuts by Y"),
            ("V_tensor = 4*B*D / X", "activations before and after the MLP, which fsdp cuts by X"),
            ("Y = N / X", "all N chips are used"),
            ("V = 4*D*F*X / N + 4*B*D / X", "what a chip sends for a layer, Y put in"),
            ("X = sqrt(B*N / F)", "least where both terms are equal: the guide's formula"),
            ("V_plain = 4*D*F + 4*B*D / N", "the question: all chips along fsdp, X = N,"),
            ("V_halved = 2*D*F + 8*B*D / N", "against half of them, X = N / 2"),
            ("4*D*F + 4*B*D/N < 2*D*F + 8*B*D/N", "both put in"),
            ("F / 2 < B / N", "D drops out: half of the width against the tokens of a device"),
            numbers=by_formula("fewer bytes", "tokens", "F / 2", figures),
        ),
        f"This run has {example.batch.tokens // devices:,} tokens per device, and sends the "
        "fewest bytes with fsdp alone. Two things are not in the formula. Inside a node links are "
        "faster, which favours tensor there. And what is hidden behind products costs nothing: "
        "by the time of a step, fsdp alone wins from fewer tokens on.",
        page.ladder(
            f"tokens per device from which {plain} beats {halved}",
            "tokens",
            textbook=(least, "F / 2: fewer bytes, all links equal"),
            fitted=(faster, "a shorter step by closed forms, of powers of two; real links"),
        ),
        "## Seven compiled steps, priced again",
        [cluster, network, nvlink],
    )
    return cluster, faster, least, network, nvlink, page


@app.cell
def _(cluster, group, network, nvlink, page):
    _chosen = (entry for entry in group if entry.cluster == cluster.value)
    steps = parts.priced(_chosen, network=network.value, nvlink=nvlink.value)
    fastest = min(steps, key=lambda mesh: steps[mesh].step_time)
    best = steps[fastest]
    page.show(
        page.steps(steps),
        f"**{fastest}** is fastest: {format_time(best.step_time)}, MFU {best.mfu:.0%}. "
        f"{said(best.bottleneck)}.",
    )


@app.cell
def the_ladder_of_a_step(devices, example, page, whole):
    limits = sc.learn.limits(example, cluster="dgx-h100", nodes=devices // 8)
    answer, alone = limits["fewest tokens with fsdp and tensor"], limits["fsdp, forward"]
    mine = example.batch.tokens / devices
    page.show(
        f"## The ladder of {whole.mesh}",
        page.ladder(sc.learn.step_ladder(**whole.arguments)),
        f"## What the rule says\n\nThis run has {mine:,.0f} tokens a device; fsdp alone "
        f"needs {float(alone):,.0f} to hide its communication, the best split of fsdp "
        f"and tensor {float(answer):,.0f}.",
        page.formula(answer),
    )


@app.cell
def take_away(group, page, whole):
    best_fsdp = (2**18 * 64 / 16384) ** 0.5
    on_h100 = parts.priced(entry for entry in group if entry.cluster == whole.cluster)
    errors = parts.ranges(on_h100)
    (slow,) = parts.priced([whole], network=0.125).values()
    ratio = slow.step_time / on_h100[whole.mesh].step_time
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
        parts.same_losses(
            "tiny",
            "--devices 8 --mesh fsdp=8",
            "--devices 8 --mesh fsdp=4,tensor=2",
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
    return errors, on_h100, problems


@app.cell
def where_the_model_is_wrong(errors, page, problems):
    page.ending(
        problems,
        "No GPU of this project has run these steps. The ranges are those within which published "
        "steps of other trainers fell; two splits whose ranges overlap cannot be told apart. "
        "`make validate` scores the model on measured runs.",
        errors,
    )


if __name__ == "__main__":
    app.run()
