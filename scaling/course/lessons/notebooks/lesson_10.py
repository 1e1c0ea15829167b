# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 10: long context."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="10. Long context")


with app.setup:
    import scaling as sc
    from scaling.course.lessons import parts
    from scaling.models.accounting import exchanged_bytes
    from scaling.models.presets import preset
    from scaling.questions.answer import Input, by_formula, letters


@app.cell
def opening():
    group = [e for e in parts.stored("long sequences") if "context.method" not in e.set]  # the ring
    model = group[0].run
    crossing = sc.learn.count(model)[
        "context at which the attention core costs as much as all else in a layer"
    ]
    NIC = parts.links("dgx-h100")["NIC of a chip"]
    field = parts.guess(
        "From how many tokens per device is a hop of the ring hidden, over two nodes of H100?",
        "tokens",
    )
    parts.opening(
        "lesson 10",
        "say from which length a sequence should be cut over devices, and what a ring of keys "
        "and values costs",
        f"""
Every token attends to all tokens before it: the scores grow with the square of the sequence, all
else with its length. In `{model}` the two are equal at {crossing.answer:,.0f} tokens. **context**
splits a sequence over devices. Each keeps its queries; keys and values go round a ring, one hop
for each other device, while the scores with those that arrived last are computed. Over two nodes a
ring goes through the NICs of two neighbours, {NIC / 1e9:.0f} GB/s each.
""",
        field,
        minutes=25,
        chapter="training",
    )
    return NIC, field, group, model


@app.cell
def after_the_guess(NIC, field, group, model):
    limit = sc.learn.limits(model, cluster="dgx-h100", nodes=2)[
        "tokens per device from which a ring over context is hidden"
    ]
    inside, across = limit.rows
    W = Input("W", NIC, "bytes/s", "NIC of a chip, one direction")
    hidden = by_formula(limit.name, "tokens", "b * C/W * K/N", letters(*limit.inputs, W))
    lengths = {
        f"{tokens:,} tokens": tokens for tokens in sorted({e.set["batch.seq_len"] for e in group})
    }
    length = parts.dropdown(lengths, "sequence", [*lengths][-1])
    link = parts.powers("NVLink times", -3, 1)
    figures = hidden.figures
    _memory = sc.learn.chip("h100-sxm")["memory bandwidth"].answer
    mistakes = (
        *(f"ratio of groups {figures['N'] / figures['K']:g}: high", "both directions: low"),
        *("causal: low", "bits: low"),
        *(f"memory for network {_memory / NIC:.4g}: low", "bytes per element 2"),
        *(f"other network {limit.figures['W'] / NIC:g}: low", "node for chip 8: low"),
    )
    page = parts.opened(field, hidden.ideal, mistakes)
    page.show(
        page.guessed,
        page.derivation(
            ("t = T / devices", "tokens of a chunk: the sequence over the devices of the ring"),
            ("V = 2*b*K*H*t", "keys and values of a chunk: K heads of H numbers of b bytes"),
            ("T_hop = V / W", "handed to the next device, over the slowest link of the ring"),
            ("scores = 4*t**2*N*H", "FLOPs of t queries with t keys and values, in N heads"),
            ("T_scores = 2*t**2*N*H / C", "the mask leaves half of them; C FLOP/s"),
            ("T_scores > T_hop", "the question: when do the scores take longer than the hop?"),
            ("2*t**2*N*H / C > 2*b*K*H*t / W", "both put in"),
            ("t > b * C/W * K/N", "H drops out, and one t: the length of a chunk decides"),
            numbers=hidden,
        ),
        "Grouped-query attention needs fewer tokens: N / K heads share the keys that travel.",
        page.ladder(
            "tokens of a chunk that hide a hop between nodes",
            "tokens",
            textbook=(hidden.ideal, "b C / W K / N: peak of the chip over its NIC"),
            fitted=(across["fitted (tokens)"], "real scores take longer, and hide it earlier"),
        ),
        f"Inside a node the links are {limit.figures['W'] / NIC:.0f} times as fast, and the "
        f"formula asks for {limit.ideal:,.0f} tokens. With fitted figures "
        + (
            f"it takes {inside['fitted (tokens)']:,.0f}."
            if inside["fitted (tokens)"]
            else "any length is enough there: the kernel of the scores takes longer than the hop "
            "even where both are short."
        ),
        "## Compiled steps of a node, for a million tokens",
        [length, link],
    )
    return across, hidden, inside, length, limit, link, page


@app.cell
def _(group, length, link, page):
    million = 1e6  # tokens, by which steps of other batches are compared
    chosen = [entry for entry in group if entry.set["batch.seq_len"] == length.value]
    steps = parts.priced(chosen, nvlink=link.value)
    scale = {e.mesh: million / (length.value * e.set["batch.global_batch"]) for e in chosen}
    memory = ", ".join(f"{mesh}: {step.memory.peak / 1e9:.0f}" for mesh, step in steps.items())
    page.show(
        page.steps(steps, f"Seconds of a million tokens at {length.value:,}", scale),
        f"Peak of a device in GB: {memory}. Cutting a sequence saves no FLOPs: in zigzag "
        "order each device has an equal part of the half that the mask leaves. It costs "
        "smaller kernels, copies of chunks and the ring; it buys memory, and work for "
        "devices that would have no sequence.",
        "## The ladder of a long step",
        page.ladder(sc.learn.step_ladder(**chosen[0].arguments)),
    )
    return (steps,)


@app.cell
def take_away(limit, page):
    shape = preset("llama3-1b")  # of those heads
    sent = exchanged_bytes(shape, 1, 2 * 16384, 2)
    blackwell = sc.learn.limits("llama3-70b", cluster="dgx-b200", nodes=2)[limit.name].rows[1]
    problems = page.problems(
        parts.on_paper(
            "32 heads of queries, 8 of keys and values, dimension 64, bf16, 16384 "
            "tokens on a device: how many bytes of keys and values does it send in one hop?",
            (sent, "bytes"),
            mistakes=(
                *("keys and values: low", "bytes per element", "ratio of groups 4: high"),
                "bits: high",
            ),
            why="2 for keys and values, 8 heads, 64 numbers, 2 bytes: two KiB a token.",
        ),
        parts.in_simulator(
            "llama3-70b on dgx-b200 with --nodes 2: from how many tokens per device is a ring "
            "over both nodes hidden, by the textbook? (scaling limits)",
            (blackwell["textbook (tokens)"], "tokens"),
            mistakes=(
                *("node for chip: low", "both directions: low", "sparse peak: high"),
                "ratio of groups 8: high",
            ),
            why="The chips are more than twice as fast and the NICs are the same, but 64 heads of "
            "queries share 8 of keys and values.",
        ),
        parts.same_losses(
            "tiny",
            "--devices 8 --set batch.seq_len=64 --mesh fsdp=8",
            "--devices 8 --set batch.seq_len=64 --mesh fsdp=2,context=4",
            why="Softmax over chunks with running maxima is the same softmax.",
        ),
    )
    page.takeaway(
        "Ring attention sends keys and values once round, behind scores that grow with the square "
        "of the chunk: a few thousand tokens per device hide it inside a node. Split sequences "
        "when one no longer fits, or when there are more devices than sequences.",
        problems,
        lesson=10,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems, steps):
    mfu = [float(step.mfu) for step in steps.values()]
    shown = [
        row | {"MFU, full attention": f"{share:.0%}"}
        for row, share in zip(parts.ranges(steps), mfu, strict=True)
    ]
    page.ending(
        problems,
        "MFU counts all scores, also the masked half that nobody computes: at long sequences it "
        "overstates what the chip did, and passes one half with ease. Kernels of attention were "
        "timed at other shapes than these chunks; no ring of ours has run on GPUs.",
        shown,
    )


if __name__ == "__main__":
    app.run()
