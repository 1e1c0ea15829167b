# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 3: four collectives and their price."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="3. Four collectives and their price")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_sweep
    from scaling.course.language import said
    from scaling.course.lessons import lesson3_lines, parts
    from scaling.pictures.curves import sweep as sweep_drawing
    from scaling.pictures.ring import KINDS, frames
    from scaling.pictures.ring import ring as ring_drawing
    from scaling.questions.answer import Input, by_formula
    from scaling.questions.page import show

    LINKS = {"chip": "NVLink of a chip", "NIC": "NIC of a chip"}


@app.cell
def opening():
    size, cluster = 2**30, "dgx-h100"
    inside = sc.price_collective("all-gather", size, cluster)
    across = sc.price_collective("all-gather", size, cluster, nodes=4)
    rates = {level.level: show(level.bandwidth, "bytes/s") for level in across.levels}
    field = parts.guess(
        f"How many times as long is an all-gather over {across.ranks} GPUs in four nodes as one "
        f"over the {inside.ranks} GPUs of a node?",
        "times",
    )
    parts.opening(
        "lesson 3",
        "price an all-gather, a reduce-scatter, an all-reduce and an all-to-all on any "
        "cluster, and say from which size on the link decides and not the latency",
        f"""
Devices that share an array have to exchange its parts. In a node of eight H100 every GPU sends
{rates["NVLink of a chip"]} over NVLink. To other nodes it has one NIC of {rates["NIC of a chip"]};
the eight NICs of a node carry {rates["NICs of a node"]} together.

**Letters.** `V` is the array in bytes, all of it; `N` the GPUs that share it; `W` what a link
carries one way; `alpha` the time that a call takes before its bytes count. The example is an
all-gather of V = {show(size, "bytes")}: everyone has a part, and everyone wants all of it.
""",
        field,
        minutes=35,
        chapter="sharding",
        needs="no jax; the last problem measures your machine with it",
    )
    return across, cluster, field, inside, size


@app.cell
def after_the_guess(across, cluster, field, inside, size):
    rule = [sc.price_collective("all-gather", size, cluster, nodes=n, ideal=True) for n in (1, 4)]
    ratio = rule[1].time / rule[0].time
    _of = {level.level: level.bandwidth for level in across.levels}
    W = [Input(f"W_{name}", _of[level], "bytes/s", level) for name, level in LINKS.items()]
    _nic = W[0].value / W[1].value
    _grown, _hops = across.ranks / inside.ranks, (across.ranks - 1) / (inside.ranks - 1)
    mistakes = (
        *("node for chip 8: high", f"other network {_nic:.4g}: high", "bits: high"),
        *(f"other network {_nic * _hops / _grown:.4g}: high", "both directions: high"),
        *(f"grows with members {_grown:.4g}: high", f"grows with members {_hops:.4g}: high"),
    )
    page = parts.opened(field, ratio, mistakes, tolerance=0.25)
    kind = parts.dropdown(KINDS, "collective", "all-gather")
    members = mo.ui.slider(2, 8, value=4, label="GPUs `N`", show_value=True)
    formula = "max(1, 6*W_chip / (7*8*W_NIC))"
    page.show(
        page.guessed,
        page.derivation(
            ("T_ring = (N - 1) * V / (N*W)", "N - 1 steps round a ring, in each V / N over a link"),
            ("T_node = 7*V / (8*W_chip)", "the eight GPUs of a node: W_chip is NVLink of one"),
            ("V_in = 3*V / 4", "of four nodes one has a quarter already; the rest must enter"),
            ("W_node = 8*W_NIC", "its eight NICs let it in together, each another eighth"),
            ("T_network = 3*V / (4*W_node)", "the time of its NICs"),
            (
                "T_inside = 7*V / (8*W_chip)",
                "NVLink hands each GPU the seven eighths of the others",
            ),
            ("T_nodes = max(T_inside, T_network)", "both at once: the slower of them decides"),
            ("T_nodes / T_node = max(1, 6*W_chip / (7*8*W_NIC))", "the question: V cancels"),
            numbers=by_formula("four nodes over one", "times", formula, W),
        ),
        f"""
By the textbook {show(rule[0].time, "s")} in the node and {show(rule[1].time, "s")} across; fitted
{show(inside.time, "s")} and {show(across.time, "s")}. Each byte enters a node once, through any of
its NICs, and NVLink passes it on: eight NICs let in nearly as much as one GPU receives over NVLink.
This works because all GPUs want the same bytes. For one of the four collectives below it does not.

## Around the ring, step by step

Move the slider. A square is a piece of the array; where terms are summed, it fills up with each
one. What arrived in this step has a thick edge.
""",
        [kind, members],
    )
    return kind, members, page, rule


@app.cell
def _(kind, members):
    film = frames(kind.value, members.value)
    step = mo.ui.slider(0, len(film) - 1, value=1, label="step", show_value=True)
    step
    return film, step


@app.cell
def shown_picture(film, kind, members, page, step):
    count, passed = members.value, sum(len(frame.sends) for frame in film[: step.value + 1])
    done = sum(terms == film[0].full for row in film[step.value].terms for terms in row)
    shown = (
        f"{kind.value} over {count} GPUs after step {step.value} of {len(film) - 1}: {done} of the "
        f"{count * count} squares are finished"
    )
    whole = "a GPU's part" if kind.value == "all-to-all" else "V"
    page.show(
        page.picture(ring_drawing(film[step.value]), shown),
        f"Pieces that each GPU has sent, and received: {passed // count}, each of 1/{count} of "
        f"{whole}. All {len(film) - 1} steps take, without alpha, **{len(film) - 1}/{count} x "
        f"{whole} / W**.",
    )


@app.cell
def the_four_on_one_array(cluster, page):
    nodes = parts.dropdown(("1", "2", "4", "32"), "nodes of eight H100")
    volume = mo.ui.slider(steps=[4**n for n in range(8, 17)], value=2**30, label="V, bytes")
    swap, arrays = "A[I_X,J] -> A[I,J_X]", {"I": 256, "J": 4096}
    two_nodes, one_node = (
        sc.learn.array(swap, {"X": 8 * n}, arrays, cluster, n, ideal=True).ideal for n in (2, 1)
    )
    page.show(
        f"""
## The four, on one array

The same `A[I, J]` of V bytes, and what changes in its name. An all-reduce is a reduce-scatter and
an all-gather, and costs both. In an all-to-all every GPU keeps its V/N and only sends pieces of it:
cheap in a node. But its pieces are all different, so each passes a NIC by itself: over two nodes it
takes {two_nodes / one_node:.1f} times as long as over one, while the all-gather takes as long.
""",
        [nodes, volume],
    )
    return nodes, volume


@app.cell
def shown_table(cluster, nodes, page, volume):
    changes = {
        "all-gather": "A[I_X,J] -> A[I,J]",
        "reduce-scatter": "A[I,J] {U_X} -> A[I_X,J]",
        "all-reduce": "A[I,J] {U_X} -> A[I,J]",
        "all-to-all": "A[I_X,J] -> A[I,J_X]",
    }
    hosts = int(nodes.value)
    shape = {"I": 2**8, "J": volume.value // 2**8}  # 256 rows: as many as there are GPUs at most
    four = {
        name: sc.learn.array(text, {"X": 8 * hosts}, shape, cluster, hosts, dtype="int8")
        for name, text in changes.items()
    }
    priced = [
        {
            "collective": name,
            "change": f"`{changes[name]}`",
            "textbook (s)": answer.ideal,
            "fitted (s)": answer.fitted,
            "binds": answer.binds.partition(":")[0],
        }
        for name, answer in four.items()
    ]
    page.show(
        page.table(priced),
        f"V = {show(volume.value, 'bytes')}. The textbook's all-reduce is a ring's; the fitted one "
        "may let NVSwitches add, which moves each byte about once.",
        *(page.formula(four[name]) for name in ("all-gather", "all-to-all")),
    )


@app.cell
def two_ladders(cluster, inside, page, size):
    guessed_time = abs(page.guess) * inside.time or None
    ladders = [
        sc.learn.collective_ladder("all-gather", size, cluster),
        sc.learn.collective_ladder("all-gather", size, cluster, nodes=4, guess=guessed_time),
    ]
    measured = measured_sweep("all-gather", cluster, 8)
    sweep = {bytes: found.seconds for bytes, found in measured.items()}
    alpha = mo.ui.slider(0, 300, step=5, value=20, label="alpha, us", show_value=True)
    rate = mo.ui.slider(50, 900, step=10, value=450, label="W, GB/s", show_value=True)
    page.show(
        f"""
## Two ladders

The guess on the second ladder is yours times the fitted time of {inside.ranks} GPUs. A ring sends
nearly all of V through the NICs of every node; the textbook counts only the bytes that a node
lacks. The fitted figure is that of a ring, which is part of the gap.
""",
        *map(page.ladder, ladders),
        """
## alpha and W of a sweep

One collective, measured from small to large sizes, has two numbers: **T = alpha + V/W**. The points
are an all-gather over eight H100 of a node, measured with JAX (a figure of the guide). Fit a line
to them by hand; it begins with the bandwidth of NVLink's data sheet.
""",
        [alpha, rate],
    )
    return alpha, ladders, rate, sweep


@app.cell
def shown_picture_2(alpha, page, rate, sweep):
    yours = lesson3_lines.AlphaBetaLine(alpha.value / 1e6, rate.value * 1e9)
    best = lesson3_lines.through(sweep)
    lines = {
        f"yours: at worst {yours.worst(sweep):.0%} off": yours,
        f"least squares: {best.worst(sweep):.0%}": best,
    }
    alt = f"Times of {len(sweep)} sizes and two lines: {'; '.join(lines)}"
    curves = {name: drawn.seconds for name, drawn in lines.items()}
    page.show(
        page.picture(sweep_drawing(sweep, curves), alt),
        f"Least squares of relative errors, as `scaling calibrate` fits: alpha = "
        f"{show(best.alpha, 's')}, W = {show(best.bandwidth, 'bytes/s')}. Alpha takes half of the "
        f"time at V = alpha x W = {show(best.half, 'bytes')}: the latency decides below, the link "
        "above.",
    )
    return best, yours


@app.cell
def take_away(page):
    paper_size, far_size = 2**28, 2**31
    ring = sc.price_collective("all-reduce", paper_size, "dgx-a100", algorithm="ring", ideal=True)
    far = sc.price_collective("all-gather", far_size, "dgx-b200", nodes=4, ideal=True)
    problems = page.problems(
        parts.on_paper(
            f"how long does an all-reduce of V = {show(paper_size, 'bytes')} take around a ring of "
            f"eight A100 (NVLink: {show(300e9, 'bytes/s')} each way), without latency?",
            (1e3 * ring.time, "ms"),
            mistakes=("all-reduce once: low", "ring 8: high", "both directions: low", "GiB: low"),
            why="Twice seven eighths of V, over one direction of NVLink.",
        ),
        parts.in_simulator(
            f"how long does an all-gather of {show(far_size, 'bytes')} take over four nodes of "
            "B200, by the textbook? (`scaling collective all-gather --cluster dgx-b200 --nodes 4 "
            "--ideal`, and the bytes)",
            (1e3 * far.time, "ms"),
            mistakes=("node for chip 8: high", "ring 4: high", "GiB: low", "both directions: low"),
            why=f"Here the network binds: {said(far.bottleneck)}. NVLink is twice as fast as an "
            "H100's, the NICs are the same.",
        ),
        parts.on_trainer(
            "after `scaling calibrate --quick`, on fake devices of your CPU: `scaling collective "
            "all-gather --cluster host --bytes 1MiB,64MiB`, the time of the small one",
            (None, "us"),
        ),
        parts.on_trainer("and of the large one", (None, "us")),
    )
    page.takeaway(
        "A gather or a scatter moves (N - 1)/N of the array past each device, an all-reduce twice "
        "that, an all-to-all only the N-th part of it. Divide by the bandwidth of the slowest "
        "level: of all its links that work at once. Below alpha x W the latency decides.",
        problems,
        title="Three problems",
    )
    return far, problems, ring


@app.cell
def verdict(page, problems):
    page.verdicts(problems)


@app.cell
def _(problems):
    small, large = problems.value[2:]
    mo.stop(not small or not large, mo.md(""))
    mine = lesson3_lines.through({2**20: small / 1e6, 2**26: large / 1e6})
    mo.stop(mine is None or small < 0, mo.md("The larger call should take longer."))
    mo.md(
        f"Your CPU's all-gather: alpha = {show(mine.alpha, 's')}, W = "
        f"{show(mine.bandwidth, 'bytes/s')}; at {show(mine.half, 'bytes')} half of the time is "
        "alpha. All devices share the cores, so W is that of the memory, not of a network."
    )


@app.cell
def where_the_model_is_wrong(cluster, page):
    rows = []
    for what, hosts_of in (("all-gather", 1), ("all-reduce", 2)):
        found = measured_sweep(what, cluster, 8 * hosts_of, hosts_of)
        for bytes in list(found)[::2]:
            fitted, textbook = (
                sc.price_collective(what, bytes, cluster, hosts_of, ideal=ideal).time
                for ideal in (False, True)
            )
            rows.append(
                {
                    "collective": f"{what}, {hosts_of} node{'s' * (hosts_of > 1)}",
                    "V (bytes)": bytes,
                    "textbook (s)": textbook,
                    **parts.beside(fitted, found[bytes].seconds),
                }
            )
    first = rows[0]
    shortest = first["measured (s)"] / first["textbook (s)"]
    page.where_wrong(
        "The textbook has no latency: below a few MiB it is wrong by orders of magnitude. The "
        "fitted figures know hops, but not what a framework adds: of JAX's "
        f"{show(first['measured (s)'], 's')} for {show(first['V (bytes)'], 'bytes')} most is "
        "starting the call from Python, which a compiled step does not pay. Nothing is fitted on "
        "these all-gathers (the guide, June 2026). The all-reduces (NVIDIA/nccl-tests issue 309, "
        "May 2025) are among the points that the figures were fitted on.",
        rows,
    )
    return (shortest,)


if __name__ == "__main__":
    app.run()
