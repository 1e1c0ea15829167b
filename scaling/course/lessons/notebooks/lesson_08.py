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
    from scaling.course.ladder.rungs import Rung, ladder
    from scaling.course.lessons import parts


@app.cell
def opening():
    group = parts.stored("experts")
    model = group[0].run
    count = sc.learn.count(model)
    active = count["active parameters"].answer
    moe = sc.load_run(model).model.moe
    where = {"cluster": group[0].cluster, "nodes": group[0].nodes}
    dense = sc.learn.limits("llama3-8b", **where)["rule"]
    field = parts.guess(
        f"Over nodes of H100 a dense model hides the all-reduce of its gradients from "
        f"{dense.answer:,.0f} tokens per device on. From how many does this mixture?",
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
    ratio = moe.n_experts / moe.experts_per_token
    mistakes = (
        *(f"experts {ratio:g}", f"experts {moe.n_experts}", f"experts {moe.experts_per_token}"),
        *("all-reduce once", "both directions", "backward", f"all members {group[0].nodes * 8}"),
    )
    page = parts.opened(field, rule.answer, mistakes)
    rungs = [
        Rung("bound", rule.answer / ratio, "a dense model: every byte that is sent multiplies"),
        Rung("textbook", rule.answer, "E / k times as many: all experts sent, k multiply"),
        Rung("fitted", limits.fitted, "the share that real products and real links reach"),
    ]
    title = "tokens of a device from which the sums of data parallelism are hidden"
    climbed = ladder(title, "tokens", page.guess, rungs)
    network = parts.powers("network times", -2, 3)
    nvlink = parts.powers("NVLink times", -2, 1)
    page.show(
        page.guessed,
        page.derivation(
            (
                "T_compute = 8*B*k*D*F / C",
                "backward, B tokens through k experts of two matrices each",
            ),
            ("V = 4*E*D*F", "bytes of the gradients of all E experts in bf16"),
            ("T_comm = 2*V / W", "an all-reduce: a reduce-scatter and an all-gather"),
            ("T_compute > T_comm", "the sum of this layer is hidden behind the one before it"),
            ("8*B*k*D*F / C > 8*E*D*F / W", "both put in"),
            ("B > E/k * C/W", "a dense model's C / W, times E / k"),
        ),
        f"Here E / k is {ratio:.0f}. The bytes of the gradients are those of all experts, the "
        "FLOPs that hide them those of k. With X nodes it is (X - 1) / X of that "
        "below: a node has its own part of the sum already.",
        page.ladder(climbed),
        page.formula(limits),
        f"## {len(group)} compiled steps: from sharded weights to sent tokens",
        [network, nvlink],
    )
    return network, nvlink, page, rule


@app.cell
def shown_table(group, network, nvlink, page):
    changes = parts.changes(network=network.value, nvlink=nvlink.value)
    steps = {entry.mesh: sc.predict(**entry.arguments, what_if=changes) for entry in group}
    listed = [
        {"mesh": mesh, "collective": f"{c.kind}[{c.axis}]", "calls": c.count, "time (s)": c.time}
        for mesh, step in steps.items()
        for c in sorted(step.collectives, key=lambda c: -c.time)[:3]
    ]
    page.show(
        page.steps(steps),
        "The three longest collectives of each:",
        page.table(listed),
    )
    return (steps,)


@app.cell
def the_ladder_of_a_mesh(group, page):
    rungs_of_step = sc.learn.step_ladder(**group[-1].arguments)
    page.show(f"## The ladder of {group[-1].mesh}", page.ladder(rungs_of_step))
    return


@app.cell
def take_away(page):
    needed = 2475 * 128 / 4
    exchange = 1e3 * sc.price_collective("all-to-all", "64MiB", cluster="dgx-h100", ideal=True).time
    problems = page.problems(
        parts.on_paper(
            "128 experts, 4 for each token; a dense model needs C / W = 2475. How "
            "many tokens does data parallelism of the mixture need?",
            (needed, "tokens"),
            mistakes=("experts 32", "experts 128", "all-reduce once"),
            why="The bytes are those of all experts, the FLOPs those of k.",
        ),
        parts.in_simulator(
            "all-to-all over the 8 H100 of a node, each sends 64 MiB: how long "
            "by the rule, --ideal? (scaling collective all-to-all)",
            (exchange, "ms"),
            mistakes=("ring 8", "node for chip", "both directions", "GiB"),
            why="Seven eighths of what a device sends leave it; nothing travels twice.",
        ),
        parts.on_trainer(
            "train `tiny-moe` for 20 steps with --devices 8 --mesh fsdp=8, then "
            "--mesh fsdp=2,expert=4, each in a --run-dir of its own: divide the last losses",
            (1.0, "ratio"),
            tolerance=0.005,
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
    return


@app.cell
def test_the_rule_is_that_of_a_dense_model_times_experts_over_active(dense, moe, rule):
    assert abs(rule.answer / dense.answer - moe.n_experts / moe.experts_per_token) < 1e-6
    return


if __name__ == "__main__":
    app.run()
