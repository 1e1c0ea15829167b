# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 5: data parallelism and FSDP."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="5. Data parallelism and FSDP")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_collective, measured_kernel
    from scaling.course.lessons import parts
    from scaling.pictures.curves import curves
    from scaling.pictures.pipeline import overlap
    from scaling.questions.page import show


@app.cell
def opening():
    places = {
        "8 H100 of a node": ("dgx-h100", 1),
        "16 H100 of two nodes": ("dgx-h100", 2),
        "128 H100 of 16 nodes": ("dgx-h100", 16),
        "8 A100 of a node": ("dgx-a100", 1),
        "8 B200 of a node": ("dgx-b200", 1),
        "16 B200 of two nodes": ("dgx-b200", 2),
    }
    place = parts.dropdown(places, "devices")
    D, F = 4096, 16_384  # width of the model and of its MLP, F = 4 D
    parts.opening(
        "lesson 5",
        "say how many tokens per device hide the traffic of weights on any cluster, and choose "
        "between replicas and shards",
        place,
        minutes=30,
        chapter="training",
        needs="no jax; the last problem, jax with 8 fake devices",
    )
    return D, F, place


@app.cell
def _(D, F, place):
    cluster, nodes = place.value
    X = sc.load_cluster(cluster, nodes).devices
    layer = 2 * 2 * D * F  # bytes: two matrices of D x F in bf16
    mo.md(f"""
X = {X} devices train one model, each with B tokens of the batch. With **data** every device holds
all weights, and gradients are summed over X at the end. With **fsdp** each holds one X-th of
weights, gradients and moments. It gathers the weights of a layer before it uses them, forward and
backward, and the gradients are reduce-scattered.

Take a layer's MLP as the guide does: D = {D:,}, F = {F:,}, two products of 2 B D F FLOPs each. Its
weights, {show(layer, "bytes")} in bf16, are gathered while the previous layer computes. The
products grow with B, the weights do not. So from some B on the gather costs nothing.
""")
    return X, cluster, layer, nodes


@app.cell
def guess():
    field = parts.guess(
        "From how many tokens per device is the all-gather of weights hidden?", "tokens"
    )
    field
    return (field,)


@app.cell
def after_the_guess(D, F, X, cluster, field, layer, nodes):
    mlp = {"model.n_layers": 32, "model.d_model": D, "model.d_ff": F, "model.n_heads": 32,
           "model.vocab_size": 32_000, "model.mlp": "gelu"}  # fmt: skip
    limit = sc.learn.limits("custom", cluster=cluster, nodes=nodes, mesh=f"fsdp={X}", set=mlp)
    forward = limit["fsdp, forward"]
    memory = sc.learn.chip(sc.load_cluster(cluster).accelerator.name)["memory bandwidth"].answer
    nic = parts.links(cluster)["NIC of a chip"]
    mistakes = (
        *("both directions: low", "sparse peak: high", "training for forward: low"),
        *(f"all members {X}: high", f"ring {X}: high"),
        *(f"memory for network {memory / forward.figures['W']:.4g}: low", "bytes per element"),
        f"other network {forward.figures['W'] / nic:.4g}: high",
    )
    page = parts.opened(field, forward.ideal, mistakes)
    product = measured_kernel("matmul", (16_384,) * 3, "bf16", "h100-sxm")
    rate = 2 * 16_384**3 / product.seconds  # FLOP/s
    # The products of a layer take 4 B D F FLOPs, its weights 4 D F bytes: B FLOPs per byte.
    gathered = measured_collective("all-gather", layer, cluster, X)
    as_measured = gathered and gathered.seconds * rate / layer
    tokens = parts.powers("B", 8, 14, value=2**10)
    both = f"a measured all-gather (JAX, dispatch included) over a measured product, {product.date}"
    page.show(
        page.guessed,
        page.derivation(
            ("T_compute = 4*B*D*F / C", "two products of B tokens, 2 B D F FLOPs each"),
            ("V = 4*D*F", "bytes of the two matrices: D F numbers each, two bytes a number"),
            ("V_in = V * (X - 1)/X", "a device has one X-th already; the rest must arrive"),
            ("T_comm = V/W * (X - 1)/X", "over the slowest link on the way, W bytes per second"),
            (
                "T_compute > T_comm",
                "the question: when is the next layer's gather hidden?",
            ),
            ("4*B*D*F / C > 4*D*F / W * (X - 1)/X", "both put in"),
            (
                "B > C/W * (X - 1)/X",
                "4 D F drops out: neither the layer's width nor its depth is left",
            ),
            (
                "8*B*D*F / C > 8*D*F / W * (X - 1)/X",
                "backward: twice the products, gather and scatter",
            ),
            ("B > C / W", "for many devices: the rule to remember"),
            numbers=forward,
        ),
        "C is the peak of the chip. A wider layer has more to send and more to multiply.",
        page.ladder(
            f"tokens per device from which fsdp over {X} hides its gather",
            "tokens",
            textbook=(forward.ideal, "C / W (X - 1) / X: peak of the chip over its links"),
            fitted=(forward.fitted, "the share that real products and real links reach"),
            measured=(as_measured, both),
        ),
        mo.accordion({"all limits of this mesh": page.formula(limit)}),
        "## Move the batch across it",
        tokens,
    )
    return forward, page, rate, tokens


@app.cell
def _(D, F, cluster, forward, layer, nodes):
    def products(rows):
        """Seconds of both products of a layer, by the rule and fitted."""
        both = [
            sc.learn.kernel("matmul", (rows, *sizes), cluster=cluster) for sizes in ((F, D), (D, F))
        ]
        return sum(one.ideal for one in both), sum(one.fitted for one in both)

    gather = tuple(
        sc.price_collective("all-gather", layer, cluster, nodes, ideal=rule).time
        for rule in (True, False)
    )
    swept = [(rows, *products(rows)) for rows in (2**power for power in range(8, 15))]
    lines = [
        (f"{name}, {grade}", [(rows, 1e3 * value(row, i)) for rows, *row in swept], colour, i)
        for name, value, colour in (
            ("products", lambda row, i: row[i], 0),
            ("all-gather", lambda row, i: gather[i], 2),
        )
        for i, grade in enumerate(("textbook", "fitted"))
    ]
    marks = [
        (f"fitted {forward.fitted:,.0f}", forward.fitted, 1e3 * gather[1]),
        (f"textbook {forward.ideal:,.0f}", forward.ideal, 1e3 * gather[0]),
    ]
    drawn = lambda at: curves(lines, marks, "tokens per device", "ms", at)
    return drawn, gather, products


@app.cell
def shown_picture(drawn, forward, gather, page, products, tokens):
    here = products(tokens.value)[1]
    waits = max(0.0, gather[1] - here)
    said = f"a layer computes for {show(here, 's')}, its gather takes {show(gather[1], 's')}"
    result = f"each layer waits {show(waits, 's')}" if waits else "only the first layer waits"
    page.show(
        f"With fitted figures {said}: **{result}**.",
        page.picture(overlap(gather[1], here), f"Five layers: {said}; {result}"),
        page.picture(
            drawn(tokens.value),
            f"Time of products and gather against tokens; they cross at {forward.ideal:,.0f} "
            f"by the textbook and {forward.fitted:,.0f} fitted",
        ),
    )


@app.cell
def replicas_or_shards_compiled_steps(page):
    def named(entry):
        """The model of a stored step and the tokens that a GPU has at a time."""
        batch = sc.load_run(entry.run, set=dict(entry.set)).batch
        return f"{entry.run}, {batch.tokens // batch.microbatches // 8:,} tokens per GPU at a time"

    group = parts.stored("data and fsdp in a node")
    group.sort(key=lambda entry: entry.set["batch.global_batch"])
    labels = dict.fromkeys(map(named, group))
    cases = {
        label: [entry.arguments for entry in group if named(entry) == label] for label in labels
    }
    case = parts.dropdown(cases, "step of 8 H100")
    page.show("## Replicas or shards: compiled steps", case)
    return (case,)


@app.cell
def shown_ladder(case, page):
    sharded = next(asked for asked in case.value if asked["mesh"] == "fsdp=8")
    priced = [(asked, sc.predict(**asked)) for asked in case.value]

    def moved(found, kind):
        """Bytes of all calls of one kind in a step, as nccl-tests counts them."""
        return sum(line.bytes * line.count for line in found.collectives if line.kind == kind)

    kinds = ("all-reduce", "all-gather", "reduce-scatter")
    bytes_rows = [
        {"mesh": asked["mesh"]} | {f"{kind} (bytes)": moved(found, kind) for kind in kinds}
        for asked, found in priced
    ]
    step_rows = [
        {
            "mesh": asked["mesh"],
            "weights, moments (bytes)": found.memory.parameters + found.memory.optimizer_state,
            "peak (bytes)": found.memory.peak,
            "fits": "yes" if found.memory.fits else "no",
            "optimizer (s)": found.time.optimizer,
            "waiting (s)": found.time.exposed_communication,
            "step (s)": found.step_time,
        }
        for asked, found in priced
    ]
    page.show(
        "An all-reduce is a reduce-scatter and an all-gather: its bytes travel twice, those of the "
        "others once. FSDP gathers weights forward and again backward and reduce-scatters "
        "gradients: three passes over the bytes instead of two. In return a device holds and "
        "updates only an X-th of weights and moments; with `data` all make the same update.",
        page.table(bytes_rows),
        page.table(step_rows),
        page.ladder(sc.learn.step_ladder(**sharded)),
    )
    return bytes_rows, step_rows


@app.cell
def take_away(page):
    blackwell = sc.learn.limits("llama3-8b", cluster="dgx-b200", nodes=1)
    figure = {given.symbol: show(given.value, given.unit) for given in blackwell.inputs}
    sparse = sc.learn.limits("mixtral-8x7b", cluster="dgx-h100", nodes=16)
    tiny = sc.learn.count("tiny")
    whole = tiny["norms and biases"].answer  # too small to be cut
    held = 4 * ((tiny.answer - whole) / 8 + whole)
    problems = page.problems(
        parts.on_paper(
            f"a chip of {figure['C']} sends {figure['W']} in one direction over NVLink: how many "
            "tokens per device hide the gather, by C / W?",
            (blackwell["rule"].ideal, "tokens"),
            mistakes=("both directions: low", "sparse peak: high"),
            why="The chip is faster and so are its links: nearly the same number as before.",
        ),
        parts.in_simulator(
            "mixtral-8x7b has 8 experts, of which a token takes 2. How many tokens per device does "
            "it need on 16 nodes of H100? (scaling limits mixtral-8x7b --cluster dgx-h100 --nodes "
            "16 --ideal)",
            (sparse.ideal, "tokens"),
            mistakes=(
                "experts 4: low",
                "experts 2: high",
                "ring 16: high",
                "node for chip 8: high",
            ),
            why="All experts are sent and a token uses two of them: E / k more tokens.",
        ),
        parts.on_trainer(
            "run `scaling train tiny --mesh data=8 --devices 8 --steps 3`, then the same with "
            "`--mesh fsdp=8 --run-dir runs/shards`. The losses agree. How many bytes of parameters "
            "does a device hold in the second? Say it before you run it",
            (held, "bytes"),
            mistakes=("copies 8: high", "bytes per element 4: low", "bytes per element 2: low"),
            tolerance=0.005,
            why="An eighth of every matrix in fp32; the norms are small and stay whole.",
        ),
    )
    page.takeaway(
        "Gathering weights costs nothing while each device has more tokens than C / W, the peak of "
        "the chip over the bandwidth of its links, whatever the model's width. More devices with "
        "the same batch have fewer tokens each: that is where data parallelism and fsdp end.",
        problems,
        lesson=5,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems, rate):
    def hiding(size):
        """A measured all-gather on 8 H100 beside ours, and the tokens that hide it."""
        seen = measured_collective("all-gather", size, "dgx-h100", 8).seconds
        priced_so = lambda rule: (
            sc.price_collective("all-gather", size, "dgx-h100", ideal=rule).time
        )
        return {
            "weights of a layer (bytes)": size,
            "textbook (s)": priced_so(True),
            "fitted (s)": priced_so(False),
            "measured (s)": seen,
            "tokens that hide it": round(seen * rate / size),
        }

    measured_on = measured_collective("all-gather", 2**30, "dgx-h100", 8).date
    gathers = [hiding(2**power) for power in (22, 24, 27, 28, 30)]
    large = {"batch.global_batch": 256, "batch.microbatches": 1, "remat": "full"}
    published = sc.learn.step_ladder(
        "llama2-70b", "dgx-h100", 16, "fsdp=128", source="analytic", set=large
    )
    small, more = (show(row["weights of a layer (bytes)"], "bytes") for row in gathers[:2])
    of_device = sc.load_run("llama2-70b", set=large).batch.tokens // 128
    needed = sc.learn.limits("llama2-70b", "dgx-h100", 16, "fsdp=128", set=large)["rule"].ideal
    page.ending(
        problems,
        "The rule knows no latency. The gathers below were measured in JAX on a node of H100, "
        f"dispatch included (the guide's figures, {measured_on}): {small} take nearly as long as "
        f"{more}, so that a small layer needs many more tokens than the rule says. Our fitted "
        "times leave out the dispatch, which a compiled step pays once and not for each gather.",
        gathers,
        f"A step whose gathers are hidden is not yet at the peak. The step below has {of_device:,} "
        f"tokens a device where the rule asks for {needed:,.0f}, and takes longer than the "
        "textbook's: products stay below the peak, and so do links.",
        page.ladder(published),
    )


if __name__ == "__main__":
    app.run()
