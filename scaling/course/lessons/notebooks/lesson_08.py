# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 8: experts."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="8. Experts")


with app.setup:
    import scaling as sc
    from scaling.course.lessons import parts


@app.cell
def opening():
    first, *others = parts.stored("experts")
    group = [first, *(e for e in others if e.cluster == first.cluster)]
    model = first.run
    count = sc.learn.count(model)
    active = count["active parameters"].answer
    moe = sc.load_run(model).model.moe
    where = {"cluster": first.cluster, "nodes": first.nodes}
    dense = sc.learn.limits("llama3-8b", **where)
    field = parts.guess(
        f"Over {first.nodes} nodes of {first.cluster} a dense model hides the all-reduce of its "
        f"gradients from {dense.ideal:,.0f} tokens per device on. From how many does this mixture?",
        "tokens",
    )
    parts.opening(
        "lesson 8",
        "say what a mixture of experts saves, what it sends, and why its batch must be larger",
        f"""
`{model}` has E = {moe.n_experts} experts in each layer, and every token uses
k = {moe.experts_per_token} of them: of {count.answer / 1e9:.1f} billion parameters
{active / 1e9:.1f} billion take part. All must be stored, and their gradients summed over devices;
only some compute. **expert** keeps whole experts on a device and sends tokens to them, instead of
sending weights to the tokens.
""",
        field,
        minutes=30,
        chapter="gpus",
    )
    return dense, field, group, model, moe, where


@app.cell
def after_the_guess(field, group, model, moe, where):
    limits = sc.learn.limits(model, **where)
    rule = limits["rule"]
    ratio, nodes = moe.n_experts / moe.experts_per_token, where["nodes"]
    mistakes = (
        *(f"experts {ratio:g}: low", f"experts {moe.n_experts}: low"),
        f"experts {moe.experts_per_token}",
        *("all-reduce once: low", "both directions: low", f"all members {nodes * 8}: high"),
        *(f"ring {nodes}: high", "node for chip 8: high"),
    )
    page = parts.opened(field, limits.ideal, mistakes, tolerance=0.05)
    network = parts.powers("network times", -2, 3)
    nvlink = parts.powers("NVLink times", -2, 1)
    page.show(
        page.guessed,
        page.derivation(
            ("forward = 4*B*k*D*F", "B tokens through k experts each, of two matrices [D, F]"),
            ("T_compute = 8*B*k*D*F / C", "the backward pass is twice that; C FLOP/s"),
            ("V = 4*E*D*F", "bytes of the gradients in bf16, of all E experts"),
            ("T_scatter = V/W * (X - 1)/X", "each of X nodes has one X-th of the sum already"),
            ("T_comm = 2*V / W * (X - 1)/X", "an all-reduce: what is scattered is gathered again"),
            ("T_compute > T_comm", "the question: when is it hidden behind the layer before it?"),
            ("8*B*k*D*F / C > 8*E*D*F / W * (X - 1)/X", "both put in"),
            (
                "B > E/k * C/W * (X - 1)/X",
                "bytes of all experts, FLOPs of k: E / k times a dense model",
            ),
            ("B > E/k * C/W", "for many nodes (X - 1) / X is nearly one: the rule to remember"),
            numbers=limits,
        ),
        f"Here E / k is {ratio:.0f}. The last line gives {rule.answer:,.0f} tokens; with {nodes} "
        f"nodes only {nodes - 1} of {nodes} parts of each sum cross the network.",
        page.ladder(
            "tokens of a device from which the sums of data parallelism are hidden",
            "tokens",
            bound=(limits.ideal / ratio, "a dense model: every byte that is sent multiplies"),
            textbook=(limits.ideal, "E / k times as many: all experts sent, k multiply"),
            fitted=(limits.fitted, "the share that real products and real links reach"),
        ),
        f"## {len(group)} compiled steps: from sharded weights to sent tokens",
        [network, nvlink],
    )
    return limits, network, nvlink, page


@app.cell
def shown_table(group, network, nvlink, page):
    steps = parts.priced(group, network=network.value, nvlink=nvlink.value)
    listed = [
        {
            "mesh": mesh,
            "collective": f"{c.kind}[{c.axis}]",
            "a call (bytes)": c.bytes,
            "calls": c.count,
            "time (s)": c.time,
        }
        for mesh, step in steps.items()
        for c in sorted(step.collectives, key=lambda c: -c.time)[:3]
    ]
    page.show(
        page.steps(steps),
        "The three longest collectives of each:",
        page.table(listed),
        f"## The ladder of {group[-1].mesh}",
        page.ladder(sc.learn.step_ladder(**group[-1].arguments)),
    )
    return (steps,)


@app.cell
def take_away(page):
    needed = 2475 * 128 / 4
    exchange = 1e3 * sc.price_collective("all-to-all", "64MiB", cluster="dgx-h100", ideal=True).time
    problems = page.problems(
        parts.on_paper(
            "128 experts, 4 for each token; a dense model needs C / W = 2475. How "
            "many tokens does data parallelism of the mixture need?",
            (needed, "tokens"),
            mistakes=(
                "experts 32: low",
                "experts 128: low",
                "experts 4: high",
                "all-reduce once: low",
            ),
            why="The bytes are those of all experts, the FLOPs those of k.",
        ),
        parts.in_simulator(
            "all-to-all over the 8 H100 of a node, each sends 64 MiB: how long "
            "by the rule, --ideal? (scaling collective all-to-all)",
            (exchange, "ms"),
            mistakes=("ring 8: high", "node for chip", "both directions: low", "GiB: low"),
            why="Seven eighths of what a device sends leave it; nothing travels twice.",
        ),
        parts.same_losses(
            "tiny-moe",
            "--devices 8 --mesh fsdp=8",
            "--devices 8 --mesh fsdp=2,expert=4",
            why="Dropless routing computes the same, wherever the experts are.",
        ),
    )
    page.takeaway(
        "A mixture computes with k experts and sends E: it needs E / k times the batch, or experts "
        "that stay where they are. Then tokens are sent, k copies of each, to the experts and back "
        "in every layer. Inside a node that is cheap; across nodes experts must be wide enough.",
        problems,
        lesson=8,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems, steps):
    page.ending(
        problems,
        "Every step is priced under an even load. Real routers send more tokens to some experts, "
        "and the fullest device decides. Grouped products have the rates of other projects' "
        "kernels; ours has not been timed on a GPU. Published mixtures are predicted too fast "
        "(docs/limits.md).",
        parts.ranges(steps),
    )


if __name__ == "__main__":
    app.run()
