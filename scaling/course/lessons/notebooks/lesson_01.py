# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 1: where does a matmul spend its time?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="1. Where does a matmul spend its time?")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.lessons import parts
    from scaling.pictures.palette import ORANGE, VERMILION
    from scaling.pictures.roofline import Dot, roofline
    from scaling.questions.page import show


@app.cell
def _():
    chips = {"H100": "h100-sxm", "H200": "h200-sxm", "A100": "a100-sxm-80g", "B200": "b200-sxm"}
    chip = mo.ui.dropdown(chips, value="H200", label="chip")
    width = 8192  # columns and rows of the weights
    parts.opening(
        "lesson 1",
        "say whether any kernel on any chip waits for arithmetic or for memory, and from "
        "which batch that changes",
        chip,
        minutes=25,
        chapter="roofline",
    )
    return chip, width


@app.cell
def _(chip, width):
    figures = sc.learn.chip(chip.value)
    peak, bandwidth = figures["peak bf16"].answer, figures["memory bandwidth"].answer
    mo.md(f"""
A layer multiplies a batch of `m` tokens, `[m, {width}]`, by its weights, `[{width}, {width}]`, in
bf16. The chip multiplies {show(peak, "FLOP/s")} and reads {show(bandwidth, "bytes/s")} from its
memory. With one token it reads every weight to use it once; with many it uses each weight `m`
times.
""")
    return bandwidth, peak


@app.cell
def _():
    field = parts.guess("From which batch m is this product bound by arithmetic?", "tokens")
    field
    return (field,)


@app.cell
def _(chip, field, width):
    page = parts.opened(field)
    some = sc.learn.kernel("matmul", (256, width, width), accelerator=chip.value)
    critical = some["critical batch"]
    batch = parts.powers("batch m", 0, 13, value=2**4)
    page.show(
        f"You guessed **{page.guess:,.0f}**; the rule gives **{critical.ideal:,.0f}** tokens "
        f"({parts.off(page.guess, critical.ideal)}), and with kernels as they were "
        f"measured it is **{critical.fitted:,.0f}**: a real product reaches less of the "
        "peak than a real read does of the bandwidth, so arithmetic binds earlier.",
        page.formula(critical),
        f"## Move the batch across {critical.ideal:,.0f}",
        batch,
    )
    return batch, critical, page


@app.cell
def _(bandwidth, batch, chip, page, peak, width):
    product = sc.learn.kernel("matmul", (batch.value, width, width), accelerator=chip.value)
    intensity = product["intensity"].answer
    rate = product["rate"]
    alt = (
        f"Roofline of {chip.value}: at {intensity:.3g} FLOPs per byte the roof is "
        f"{rate.ideal / 1e12:.3g} and a real kernel reaches {rate.fitted / 1e12:.3g} TFLOP/s"
    )
    dots = [Dot(intensity, rate.ideal, "on the roof"), Dot(intensity, rate.fitted, "fitted")]
    colours = {"on the roof": VERMILION, "fitted": ORANGE}
    drawn = roofline(peak, bandwidth, dots, colours, ends=(0.5, 1e4))
    page.show(page.picture(drawn, alt), page.formula(product))
    return


@app.cell
def _(chip, page, width):
    large = sc.learn.kernel_ladder("matmul", (2 * width,) * 3, chip.value)
    page.show("## The ladder of a large product", page.ladder(large))
    return


@app.cell
def _(page):
    lighter = sc.learn.kernel("matmul", (256, 8192, 8192), accelerator="h100-sxm", weights="int8")
    halved = lighter["critical batch by the weights alone"]
    adding = {"dtype": "fp32", "accelerator": "a100-sxm-80g"}
    added = 1e3 * sc.learn.kernel("elementwise", (2**30, 2, 1), **adding).ideal
    problems = page.problems(
        parts.on_paper(
            "int8 weights, bf16 activations and products: the critical batch of an "
            "H100, counting the weights alone?",
            (halved.ideal, "tokens"),
            mistakes=("bytes per element", "sparse peak"),
            why="Half the bytes per weight, so half the batch makes up for them.",
        ),
        parts.in_simulator(
            "how long does an A100 take to add two fp32 arrays of "
            "2**30 elements, by the roofline? (scaling kernel elementwise)",
            (added, "ms"),
            mistakes=("bytes per element 4", "GiB"),
            why="Three arrays move, two in and one out: there is no arithmetic to speak of.",
        ),
        parts.on_trainer(
            "run `scaling calibrate --quick`, read the fp32 rate of the largest matmul and the "
            "bandwidth of the largest copy. Divide the rate by the bandwidth and multiply by two, "
            "since a weight of four bytes takes two FLOPs a token: that is the critical batch. Any "
            "number that you measured is right",
            (None, "tokens"),
            why="This number is yours. A CPU's is far below a GPU's: its few units need fewer "
            "FLOPs per byte to be busy.",
        ),
    )
    page.takeaway(
        "A kernel takes as long as the slower of its arithmetic and its memory. FLOPs per byte "
        "decide which: a matmul has about as many as its batch, and the roof bends at the chip's "
        "peak over its bandwidth.",
        problems,
    )
    return (problems,)


@app.cell
def _(page, problems):
    rows = []
    for side in (1024, 4096, 16384):
        square = sc.learn.kernel("matmul", (side,) * 3, accelerator="h100-sxm")
        share = square["fraction of the peak"].fitted
        times = {"roofline (s)": square.ideal, "fitted (s)": square.fitted}
        rows.append({"side": side, **times, "share of the peak": share})
    page.ending(
        problems,
        "The roofline knows neither launches nor tiles. Small products fill few of the chip's "
        f"cores, and even the largest reach {share:.0%} of the peak: "
        "the clock falls under load. What is fitted comes from published measurements; on a GPU of "
        "yours `scaling calibrate` replaces them.",
        rows,
    )
    return


@app.cell
def test_the_critical_batch_is_the_guides(critical):
    assert 150 < critical.ideal < 320
    return


if __name__ == "__main__":
    app.run()
