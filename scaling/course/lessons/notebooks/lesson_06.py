# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 6: how far does tensor parallelism go?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="6. How far does tensor parallelism go?")


with app.setup:
    from dataclasses import replace

    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_series
    from scaling.course.language import said
    from scaling.course.lessons import parts
    from scaling.pictures.bars import grouped_bars
    from scaling.questions.answer import by_formula
    from scaling.questions.page import show


@app.cell
def opening():
    clusters = {
        "DGX A100": "dgx-a100",
        "DGX H100": "dgx-h100",
        "DGX H200": "dgx-h200",
        "DGX B200": "dgx-b200",
    }
    models = {"Llama 3 8B": "llama3-8b", "Llama 3 70B": "llama3-70b", "Llama 3 1B": "llama3-1b"}
    cluster = parts.dropdown(clusters, "cluster", "DGX H100")
    model = parts.dropdown(models, "model")
    parts.opening(
        "lesson 6",
        "say for any model and cluster how many chips can share a layer before they wait for "
        "each other, and what the second node changes",
        [cluster, model],
        minutes=30,
        chapter="training",
        needs="no jax (the last problem compiles a small step)",
    )
    return cluster, model


@app.cell
def _(cluster, model):
    shape = sc.load_run(model.value).model
    place = sc.load_cluster(cluster.value)
    width, inner, per_node = shape.d_model, shape.d_ff, place.devices_per_node
    peak = sc.learn.chip(place.accelerator.name)["peak bf16"].answer
    mo.md(f"""
A layer's MLP is two products. Tensor parallelism cuts both along F, over an axis of Y chips:

    In[B, D]  @  W_in[D, F_Y]   ->  Tmp[B, F_Y]      nothing is sent
    Tmp[B, F_Y]  @  W_out[F_Y, D]  ->  Out[B, D] {{U_Y}}    terms of a sum, on every chip

Before the first product the chips gather `In`; after the second they sum `Out` and each keeps its
part. B is tokens, D = {width:,} and F = {inner:,} the widths of the model and of its MLP. A chip
multiplies {show(peak, "FLOP/s")} (C) and sends W bytes per second. The more chips share the layer,
the less each multiplies. What each receives stays almost the same.
""")
    return inner, per_node, place, width


@app.cell
def guess():
    field = parts.guess(
        "How many chips of a node can share this layer and not wait for each other?", "chips"
    )
    field
    return (field,)


@app.cell
def after_the_guess(cluster, field, inner, model, per_node, width):
    limit = sc.learn.limits(model.value, cluster=cluster.value, nodes=2)["largest tensor axis"]
    mistakes = (
        *(f"ring {per_node}: low", f"whole node {per_node / limit.ideal:.6g}: high"),
        *("both directions: high", "sparse peak: low", "third matrix: high"),
        *("multiply and add: low", "training for forward: high", f"width {inner / width:g}: low"),
    )
    close = 0.065  # 7 chips of a node of H100 are right for llama3-8b, all 8 are not
    page = parts.opened(field, limit.ideal, mistakes, tolerance=close)
    # The guide's letter for the axis is Y here, X where an axis is longer than its node.
    given = (replace(one, symbol=one.symbol.replace("X", "Y")) for one in limit.inputs)
    formula = "F*W / C * Y/(Y - 1)"
    tokens = parts.powers("tokens B", 7, 16, value=2**13)
    exact = mo.ui.switch(value=True, label="fitted figures (off: the textbook's)")
    more = f"That is more than the {per_node} chips of a node."
    fewer = f"That is fewer than the {per_node} chips of a node."
    page.show(
        page.guessed,
        page.derivation(
            ("T_compute = 4*B*D*F / (Y*C)", "two products of 2 B D F FLOPs, each cut into Y parts"),
            ("V = 2*B*D", "bytes of the activations in bf16, before the layer and after it"),
            ("T_gather = V/W * (Y - 1)/Y", "a chip has one Y-th of the input already"),
            (
                "T_scatter = V/W * (Y - 1)/Y",
                "its output is a sum, of which each chip keeps one part",
            ),
            ("T_comm = 2*V / W * (Y - 1)/Y", "both together"),
            ("T_compute > T_comm", "the question: for which Y do chips not wait for each other?"),
            ("4*B*D*F / (Y*C) > 4*B*D / W * (Y - 1)/Y", "both put in"),
            ("Y < F*W / C * Y/(Y - 1)", "B and D drop out; on the right Y is that of a whole node"),
            ("Y < F*W / C", "for a long axis: the rule to remember"),
            numbers=by_formula(limit.name, "chips", formula, tuple(given)),
        ),
        more if limit.ideal > per_node else fewer,
        "Products and exchanges both grow with the batch B and the width D: a larger batch does "
        "not make room for a longer tensor axis.",
        mo.accordion({"the limit on each number of nodes": page.formula(limit)}),
        page.ladder(
            "chips that can share the layer",
            "chips",
            textbook=(limit.ideal, "F W / C Y/(Y - 1): links and products at their full rate"),
            fitted=(limit.fitted, "the share that real products and real links reach"),
        ),
        "The rule has two products, as the guide's MLP. Llama's has a third, the gate, "
        f"which needs no further exchange: {limit['with the gate'].ideal:.3g} chips then.",
        "## Lengthen the axis, past the node",
        tokens,
        exact,
    )
    return exact, limit, page, tokens


@app.cell
def _(cluster, inner, per_node, place, tokens, width):
    def both(chips):
        """Seconds of products and of exchanges of an MLP's forward pass over so many chips: the
        textbook's, and the fitted ones."""
        chip, nodes = place.accelerator.name, max(1, chips // per_node)
        sizes = (tokens.value, inner // chips, width), (tokens.value, width, inner // chips)
        products = [sc.learn.kernel("matmul", size, accelerator=chip) for size in sizes]
        sent = 2 * tokens.value * width
        where = (sent, cluster.value, nodes, f"tensor={chips}", "tensor")
        kinds = ("all-gather", "reduce-scatter")
        rule, fitted = (
            sum(sc.price_collective(kind, *where, ideal=ideal).time for kind in kinds)
            for ideal in (True, False)
        )
        return (sum(a.ideal for a in products), rule), (sum(a.fitted for a in products), fitted)

    times = {chips: both(chips) for chips in (2, 4, 8, 16, 32)}
    return (times,)


@app.cell
def shown_picture(cluster, exact, page, per_node, times, tokens):
    name = "fitted figures" if exact.value else "the textbook's figures"
    seconds = {chips: found[exact.value] for chips, found in times.items()}
    nodes = {chips: max(1, chips // per_node) for chips in seconds}
    groups = [(f"{chips} chips, {nodes[chips]} node(s)", found) for chips, found in seconds.items()]
    hidden = [chips for chips, (products, exchanges) in seconds.items() if products >= exchanges]
    most = (
        f"{max(hidden)} chips are the most of these whose exchanges are no longer than the products"
        if hidden
        else "exchanges take longer than the products on every axis of these"
    )
    listed = (f"{title}: {show(a, 's')}, {show(b, 's')}" for title, (a, b) in groups)
    alt = f"Products and exchanges of one MLP on {cluster.value}, {tokens.value:,} tokens, {name}: "
    drawn = grouped_bars(groups, ("products", "exchanges"), lambda seconds: show(seconds, "s"))
    page.show(
        page.picture(drawn, alt + "; ".join(listed)),
        f"By {name} {most}. With few tokens the fitted exchanges hardly shrink any more: what "
        "remains is the way from chip to chip, which the textbook leaves out.",
    )


@app.cell
def two_nodes(limit, page, per_node):
    shown = {
        "place": "place",
        "link that binds": "link",
        "textbook (chips)": "textbook (devices)",
        "fitted (chips)": "fitted (devices)",
    }
    places = [{name: row[key] for name, key in shown.items()} for row in limit.rows]
    compiled = (*parts.stored("tensor in a node"), *parts.stored("tensor over two nodes"))
    kept = {(entry.mesh, entry.nodes): entry.arguments for entry in compiled}
    whole = "fsdp=1,tensor=8", 1
    kept["tensor=16", 2] = kept[whole] | {"mesh": "tensor=16", "nodes": 2, "source": "analytic"}
    priced = {asked: sc.predict(**arguments) for asked, arguments in kept.items()}
    rows = [
        {
            "mesh": mesh,
            "nodes": nodes,
            "step (s)": float(step.step_time),
            "waits (s)": float(step.time.exposed_communication),
            "MFU": f"{step.mfu:.0%}",
            "memory (bytes)": float(step.memory.peak),
            "program": step.source,
        }
        for (mesh, nodes), step in priced.items()
    ]
    time = priced[whole].time
    waits = time.exposed_communication / (time.exposed_communication + time.hidden_communication)
    longer = priced[whole].step_time / priced["fsdp=8,tensor=1", 1].step_time
    page.show(
        "## Two nodes\n\nOne group over two nodes has all their NICs to itself, so by "
        "the textbook NVLink may still be the limit. Fitted figures count the hops between nodes "
        "as well. When groups share the NICs, as with `fsdp` inside the nodes and "
        f"`tensor` across, each has one part in {per_node}: "
        "keep `tensor` inside the node.",
        page.table(places),
        "## What the compiler makes of it\n\nThe trainer's own step of Llama 3 8B, compiled for a "
        "DGX H100. Exchanges that *could* hide behind products do not always hide: with `tensor=8` "
        f"{waits:.0%} of all communication waits, and the step takes "
        f"{longer:.2f} times that of `fsdp=8`. The next product needs what is being gathered. "
        "Tensor parallelism pays where `fsdp` alone has too few tokens per chip to hide its "
        "weights: lesson 7. Eight heads of keys and values cannot be divided by sixteen, so that "
        "`tensor=16` is priced in closed form (analytic).",
        page.table(rows),
        "## The ladder of one step",
        page.ladder(sc.learn.step_ladder(**kept[whole])),
    )


@app.cell
def take_away(page):
    layers = 4
    blackwell = sc.learn.limits("llama3-70b", cluster="dgx-b200", nodes=2)["largest tensor axis"]
    over_two = blackwell.rows[1]
    scatters = 4 * layers + 2
    problems = page.problems(
        parts.on_paper(
            f"the rule F W / C for Llama 3 70B, F = {sc.load_run('llama3-70b').model.d_ff:,}, on a "
            "DGX B200: how many chips?",
            (blackwell["rule"].ideal, "chips"),
            mistakes=("both directions: high", "sparse peak: low"),
            why="Twice an H100's bandwidth, more than twice its FLOP/s: fewer chips, not more.",
        ),
        parts.in_simulator(
            "the largest tensor axis of llama3-70b over two DGX B200, by the textbook: `scaling "
            "limits llama3-70b --cluster dgx-b200 --nodes 2 --ideal`, table of the part `largest "
            "tensor axis`",
            (over_two["textbook (devices)"], "chips"),
            mistakes=("third matrix: high", "ring 2: low", "both directions: high"),
            why=f"{said(over_two['link'])} binds: NVLink of a B200 is so fast that the NICs come "
            "first.",
        ),
        parts.on_trainer(
            "how many reduce-scatters over `tensor` has a step of tiny with four layers? Embedding "
            "and output head have one each. `scaling predict tiny --cluster dgx-h100 --mesh "
            f"tensor=2 --set model.n_layers={layers}` compiles it and counts them. (`scaling train "
            "tiny --mesh tensor=2 --devices 2` runs it: the loss is that of `--mesh data=2`)",
            (scatters, "calls"),
            mistakes=("one way: low",),
            tolerance=0.001,
            why="Attention and the MLP have one each, forward and backward; as many all-gathers.",
        ),
    )
    page.takeaway(
        "Tensor parallelism sends activations. Their bytes stay as the axis grows, the products "
        "shrink, and the two meet at Y = F W / C, whatever the batch. Wide models and fast links "
        "allow more chips, faster chips fewer. Keep the axis in the node.",
        problems,
        lesson=6,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems):
    series = measured_series("tensor in a node")
    steps = [sc.predict(**point.asked, source="analytic") for point in series.points]
    compared = [
        {
            "chips": step.devices,
            "microbatches": point.microbatches,
            "host (s)": float(step.time.host),
            **parts.beside(step.step_time, point.seconds[0]),
            "fitted on": "yes" if point.fitted else "no",
        }
        for point, step in zip(series.points, steps, strict=True)
    ]
    four, eight = (row["measured (s)"] for row in compared[-2:])
    page.ending(
        problems,
        f"The rule knows two resources. Measured: {series.machine} ({series.source}, {series.date}"
        "). In two microbatches eight chips are the fastest. In sixteen, of one sequence each, "
        f"eight chips take {eight / four - 1:.0%} longer than four: the kernels are so short that "
        "the host launches them too slowly, which the model knows (`host`). It is still "
        f"{1 - steps[-1].step_time / eight:.0%} too fast there: "
        "something else slows eight processes on one host.",
        compared,
    )


if __name__ == "__main__":
    app.run()
