# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 1: where does a matmul spend its time?"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="1. Where does a matmul spend its time?")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_kernel
    from scaling.course.lessons import parts
    from scaling.pictures.palette import ORANGE, VERMILION
    from scaling.pictures.roofline import Dot, roofline
    from scaling.questions.page import show


@app.cell
def opening():
    chips = {"H100": "h100-sxm", "H200": "h200-sxm", "A100": "a100-sxm-80g", "B200": "b200-sxm"}
    chip = parts.dropdown(chips, "chip")
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
bf16. The chip computes {show(peak, "FLOP/s")} and reads {show(bandwidth, "bytes/s")} from its
memory. With one token it reads each weight and uses it once; with `m` tokens it reads each weight
once and uses it `m` times.
""")
    return bandwidth, peak


@app.cell
def guess():
    field = parts.guess("From which batch m is this product bound by arithmetic?", "tokens")
    field
    return (field,)


@app.cell
def after_the_guess(chip, field, width):
    some = sc.learn.kernel("matmul", (256, width, width), accelerator=chip.value)
    critical, by_weights = some["critical batch"], some["critical batch by the weights alone"]
    mistakes = (
        *("sparse peak: high", "bytes per element 2", "multiply and add: high", "bits: high"),
    )
    page = parts.opened(field, critical.ideal, mistakes)
    measured = (None, "")
    _product = measured_kernel("matmul", (2 * width,) * 3, "bf16", chip.value)
    _adding = measured_kernel("elementwise", (2**30, 2, 1), "fp32", chip.value)
    if _product and _adding:
        _rate = 2 * (2 * width) ** 3 / _product.seconds  # FLOP/s
        _read = 3 * 4 * 2**30 / _adding.seconds  # bytes/s: two arrays in, one out, fp32
        # m where 2 m w w / rate is as long as 2 (w w + 2 m w) / read
        _crossing = width / (width * _read / _rate - 2)
        _where = f"{_product.machine}, {_product.date}"
        _words = f"a measured product over a measured sum of arrays ({_where})"
        measured = (_crossing, _words)
    batch = parts.powers("batch m", 0, 13, value=2**4)
    page.show(
        page.guessed,
        page.derivation(
            (
                "T_compute = 2*m*k*n / C",
                "[m, k] @ [k, n] takes m k n multiply-adds, two FLOPs each",
            ),
            ("T_memory = 2*(m*k + k*n + m*n) / W", "both factors are read, the result is written"),
            ("T_compute > T_memory", "the question: from which m on does arithmetic take longer?"),
            ("2*m*k*n / C > 2*(m*k + k*n + m*n) / W", "both put in"),
            ("m*(k*n * W/C - k - n) > k*n", "all terms with m on one side"),
            ("m > k*n / (k*n * W/C - k - n)", "solved for m"),
            ("m > C / W", "for large weights: only two figures of the chip are left"),
            numbers=critical,
        ),
        "C is the chip's peak in FLOP/s and W the bandwidth of its memory. A bf16 number has two "
        "bytes (w, x and y above), a multiply-add is two FLOPs, so the twos cancel. The last line "
        f"is the rule to remember: {by_weights.ideal:,.0f} tokens here.",
        "## The ladder",
        page.ladder(
            "batch from which arithmetic binds",
            "tokens",
            textbook=(critical.ideal, "the peak of the chip over the bandwidth of its memory"),
            fitted=(critical.fitted, "the share of both that real kernels reach"),
            measured=measured,
        ),
        f"With kernels as they were measured it is **{critical.fitted:,.0f}**: a product "
        "reaches less of the peak than a read does of the bandwidth, so arithmetic binds earlier.",
        f"## Move the batch across {critical.ideal:,.0f}",
        batch,
    )
    return batch, critical, page


@app.cell
def shown_picture(bandwidth, batch, chip, page, peak, width):
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


@app.cell
def take_away(page):
    lighter = sc.learn.kernel("matmul", (256, 8192, 8192), accelerator="h100-sxm", weights="int8")
    halved = lighter["critical batch by the weights alone"]
    adding = {"dtype": "fp32", "accelerator": "a100-sxm-80g"}
    added = 1e3 * sc.learn.kernel("elementwise", (2**30, 2, 1), **adding).ideal
    problems = page.problems(
        parts.on_paper(
            "int8 weights, bf16 activations and products: the critical batch of an "
            "H100, counting the weights alone?",
            (halved.ideal, "tokens"),
            mistakes=("bytes per element", "sparse peak: high"),
            why="Half the bytes per weight, so half the batch makes up for them.",
        ),
        parts.in_simulator(
            "how long does an A100 take to add two fp32 arrays of "
            "2**30 elements, by the roofline? (scaling kernel elementwise)",
            (added, "ms"),
            mistakes=("bytes per element 4: low", "bytes per element 2: low", "GiB: low"),
            why="Three arrays move, two in and one out: there is no arithmetic to speak of.",
        ),
        parts.on_trainer(
            "run `scaling calibrate --quick`. Take the fp32 rate of the largest matmul and the "
            "bandwidth of the largest copy. The critical batch is twice their ratio: an fp32 "
            "weight has four bytes and takes two FLOPs a token. What is it on your machine?",
            (None, "tokens"),
            why="Whatever you measured is right. A CPU's critical batch is far below a GPU's: it "
            "computes less for each byte that its memory delivers.",
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
def where_the_model_is_wrong(page, problems):
    rows, shares = [], []
    for side in (1024, 4096, 16384):
        square = sc.learn.kernel("matmul", (side,) * 3, accelerator="h100-sxm")
        share = square["fraction of the peak"].fitted
        times = {"roofline (s)": square.ideal, "fitted (s)": square.fitted}
        shares.append(share)
        rows.append({"side": side, **times, "share of the peak": f"{share:.0%}"})
    page.ending(
        problems,
        "The roofline ignores kernel launches and tiles. Small products fill only some of the "
        f"cores, and even the largest reaches {share:.0%} of the peak, because the clock drops "
        "under load. The fitted figures come from published measurements; `scaling calibrate` "
        "measures your own GPU.",
        rows,
    )
    return (shares,)


if __name__ == "__main__":
    app.run()
