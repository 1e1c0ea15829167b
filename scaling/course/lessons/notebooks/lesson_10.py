# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 10: long context."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="10. Long context")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.rungs import Rung, ladder
    from scaling.course.lessons import parts
    from scaling.models.accounting import exchanged_bytes
    from scaling.models.presets import preset


@app.cell
def opening():
    group = [e for e in parts.stored("long sequences") if "context.method" not in e.set]  # the ring
    model = group[0].run
    crossing = sc.learn.count(model)[
        "context at which the attention core costs as much as all else in a layer"
    ]
    field = parts.guess(
        "From how many tokens per device is a hop of the ring hidden, inside a node of H100?",
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
for each other device, while the scores with those that arrived last are computed.
""",
        field,
        minutes=25,
        chapter="training",
    )
    return field, group, model


@app.cell
def after_the_guess(field, group, model):
    limits = sc.learn.limits(model, cluster="dgx-h100")
    lengths = {
        f"{tokens:,} tokens": tokens for tokens in sorted({e.set["batch.seq_len"] for e in group})
    }
    length = mo.ui.dropdown(lengths, value=[*lengths][-1], label="sequence")
    link = parts.powers("NVLink times", -3, 1)
    hidden = limits["tokens per device from which a ring over context is hidden"]
    figures = {given.symbol: given.value for given in hidden.inputs}
    shared = figures["N"] / figures["K"]
    _memory = sc.learn.chip("h100-sxm")["memory bandwidth"].answer
    mistakes = (
        *(f"ratio of groups {shared:g}", "both directions", "causal"),
        *(f"memory for network {_memory / figures['W']:.4g}", "one hop 7"),
    )
    page = parts.opened(field, hidden.ideal, mistakes)
    rungs = [
        Rung("textbook", hidden.ideal, "b C / W K / N: peak of the chip over its links"),
        *([Rung("fitted", hidden.fitted, "real scores take longer")] if hidden.fitted else []),
    ]
    climbed = ladder("tokens of a chunk that hide a hop", "tokens", page.guess, rungs)
    page.show(
        page.guessed,
        page.derivation(
            ("t = T / devices", "tokens of a chunk: the sequence over the devices of the ring"),
            ("V = 2*b*K*H*t", "keys and values of a chunk: K heads of H numbers of b bytes"),
            ("T_hop = V / W", "handed to the next device while the scores below are computed"),
            ("T_scores = 2*t**2*N*H / C", "half of the 4 t t N H FLOPs of all pairs: the mask"),
            ("T_scores > T_hop", "the hop is hidden"),
            ("2*t**2*N*H / C > 2*b*K*H*t / W", "both put in"),
            ("t > b * C/W * K/N", "H drops out, and one t: the length of a chunk decides"),
        ),
        "Grouped-query attention needs fewer tokens: N / K heads share the keys that travel. "
        + (
            ""
            if hidden.fitted
            else "With fitted figures any length is enough: the kernel of the scores takes longer "
            "than the hop even where both are short."
        ),
        page.formula(hidden),
        page.ladder(climbed),
        "## Compiled steps of a node, for a million tokens",
        [length, link],
    )
    return hidden, length, link, page


@app.cell
def _(group, length, link, page):
    million = 1e6  # tokens, by which steps of other batches are compared
    chosen = [entry for entry in group if entry.set["batch.seq_len"] == length.value]
    faster = parts.changes(nvlink=link.value)
    steps = {entry.mesh: sc.predict(**entry.arguments, what_if=faster) for entry in chosen}
    scale = {e.mesh: million / (length.value * e.set["batch.global_batch"]) for e in chosen}
    memory = ", ".join(f"{mesh}: {step.memory.peak / 1e9:.0f}" for mesh, step in steps.items())
    page.show(
        page.steps(steps, f"Seconds of a million tokens at {length.value:,}", scale),
        f"Peak of a device in GB: {memory}. Cutting a sequence saves no FLOPs: in zigzag "
        "order each device has an equal part of the half that the mask leaves. It costs "
        "smaller kernels, copies of chunks and the ring; it buys memory, and work for "
        "devices that would have no sequence.",
    )
    return (steps,)


@app.cell
def the_ladder_of_a_long_step(group, page):
    longest = max(group, key=lambda e: (e.set["batch.seq_len"], e.mesh))
    rungs_of_step = sc.learn.step_ladder(**longest.arguments)
    page.show("## The ladder of a long step", page.ladder(rungs_of_step))
    return


@app.cell
def take_away(page):
    shape = preset("llama3-1b")  # of those heads
    sent = exchanged_bytes(shape, 1, 2 * 16384, 2)
    far = sc.learn.limits("llama3-8b", cluster="dgx-h100", nodes=2)
    rows_far = far["tokens per device from which a ring over context is hidden"].rows
    across = float(next(r["fitted (tokens)"] for r in rows_far if r["place"] == "2 nodes"))
    problems = page.problems(
        parts.on_paper(
            "32 heads of queries, 8 of keys and values, dimension 64, bf16, 16384 "
            "tokens on a device: how many bytes of keys and values does it send in one hop?",
            (sent, "bytes"),
            mistakes=("keys and values", "bytes per element", "ratio of groups 4", "bits"),
            why="2 for keys and values, 8 heads, 64 numbers, 2 bytes: two KiB a token.",
        ),
        parts.in_simulator(
            "llama3-8b on dgx-h100 with --nodes 2: from how many tokens per "
            "device is a ring over both nodes hidden, with fitted figures? (scaling limits)",
            (across, "tokens"),
            mistakes=("node for chip", "both directions"),
            tolerance=0.05,
            why="One pair of neighbours in the ring is joined by NICs, each a ninth as fast as "
            "NVLink.",
        ),
        parts.on_trainer(
            "train `tiny` for 20 steps with --devices 8 --set batch.seq_len=64 and --mesh fsdp=8, "
            "then --mesh fsdp=2,context=4, each in a --run-dir of its own: divide the last losses",
            (1.0, "ratio"),
            tolerance=0.001,
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
    return across, problems


@app.cell
def where_the_model_is_wrong(page, problems, steps):
    mfu = [{"MFU, full attention": float(step.mfu)} for step in steps.values()]
    shown = [row | share for row, share in zip(parts.ranges(steps), mfu, strict=True)]
    page.ending(
        problems,
        "MFU counts all scores, also the masked half that nobody computes: at long sequences it "
        "overstates what the chip did, and passes one half with ease. Kernels of attention were "
        "timed at other shapes than these chunks; no ring of ours has run on GPUs.",
        shown,
    )
    return


@app.cell
def test_the_ring_across_nodes_needs_longer_chunks(across, hidden):
    assert across > 4 * hidden.ideal
    return


@app.cell
def test_mfu_passes_one_half_where_the_masked_half_is_counted(mfu):
    assert max(row["MFU, full attention"] for row in mfu) > 0.5
    return


if __name__ == "__main__":
    app.run()
