# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 2: reading a sharded array."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="2. Reading a sharded array")


with app.setup:
    import math

    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_kernel
    from scaling.course.language import said
    from scaling.course.lessons import parts
    from scaling.pictures.arrays import array_on_mesh
    from scaling.questions.page import show


@app.cell
def opening():
    shape, mesh = {"I": 4096, "J": 16384}, {"X": 2, "Y": 4}
    whole = sc.learn.array("A[I,J]", mesh, shape)["bytes of one copy"].answer
    field = parts.guess(
        f"What does each device hold of A[I_X, J_Y] on {mesh['X']} x {mesh['Y']}?", "MiB"
    )
    parts.opening(
        "lesson 2",
        "say from a name such as `A[I_X, J_Y]` what every device holds, how many copies there "
        "are, and what has to be sent when it is split differently",
        f"""
A model that does not fit on one chip is cut into parts, and the name of each array says how. `A`
has the dimensions `I` and `J`, here {shape["I"]:,} rows and {shape["J"]:,} columns in bf16: one
copy has {show(whole, "bytes")}. The devices form a mesh: here {mesh["X"]} along its axis `X`, and
{mesh["Y"]} along `Y`. `A[I_X, J_Y]` says that rows are split along `X` and columns along `Y`.

**Letters.** `I`, `J`, `K` are dimensions of arrays; `X`, `Y`, `Z` are axes of the mesh. In a run of
this project axes have names, `data`, `fsdp`, `tensor`, and so have dimensions: the weights
`[D, F]` of an MLP are `W[D_fsdp, F_tensor]`.
""",
        field,
        minutes=25,
        chapter="sharding",
        needs="no jax; the last problem runs jax on fake devices of a CPU",
    )
    return field, mesh, shape, whole


@app.cell
def after_the_guess(field, mesh, shape):
    split = sc.learn.array("A[I_X,J_Y]", mesh, shape)
    mistakes = (
        *(f"copies {mesh['X']}: high", f"copies {mesh['Y']}: high"),
        f"all members {mesh['X'] * mesh['Y']}: high",
        *("bytes per element 4: low", "bytes per element 2: low", "bits: high"),
    )
    page = parts.opened(field, split.answer / 2**20, mistakes)
    meshes = {"2 x 4": {"X": 2, "Y": 4}, "4 x 2": {"X": 4, "Y": 2}}
    on_mesh = parts.dropdown(meshes, "mesh")
    sums = {"nothing": "", "X": "X", "Y": "Y"}
    sums_over = parts.dropdown(sums, "partial sums along")
    ways = sums | {"X, then Y": "XY", "Y, then X": "YX"}
    rows_over = parts.dropdown(ways, "rows `I` over", "X")
    columns_over = parts.dropdown(ways, "columns `J` over", "Y")
    device = mo.ui.slider(0, 7, value=5, label="outlined device", show_value=True)
    page.show(
        page.guessed,
        page.derivation(
            ("S = b * I * J", "one copy: a number of b bytes in each row and column"),
            ("rows = I / X", "`I_X`: the X devices along that axis share the rows"),
            ("columns = J / Y", "`J_Y`: the Y devices along the other share the columns"),
            (
                "S_device = b * rows * columns",
                "the question: a device holds its rows of its columns",
            ),
            ("S_device = b * I/X * J/Y", "rows and columns put in"),
            ("S_device = S / (X*Y)", "axes that split divide one copy by their product"),
            ("copies = devices / (X*Y)", "devices along any other axis hold the same again"),
            ("S_all = copies * S", "so all devices together hold S once for each copy"),
            numbers=split,
        ),
        """
## Split it yourself

An axis that splits nothing makes copies. An axis can split only one dimension: try `X` twice.
`I_XY` cuts the rows along `X` first and each piece along `Y`: compare it with `I_YX`. Behind the
array `{U_X}` says that the devices along `X` hold partial sums (unreduced), as a product of sharded
arrays leaves them.
""",
        [on_mesh, rows_over, columns_over],
        [sums_over, device],
    )
    return columns_over, device, on_mesh, page, rows_over, sums_over


@app.cell
def _(columns_over, on_mesh, rows_over, shape, sums_over):
    named = {"I": rows_over.value, "J": columns_over.value}
    dims = ",".join(name + f"_{axes}" * bool(axes) for name, axes in named.items())
    written = f"A[{dims}]" + f" {{U_{sums_over.value}}}" * bool(sums_over.value)
    try:
        chosen, refused = sc.learn.array(written, on_mesh.value, shape), ""
    except sc.InputError as error:
        chosen, refused = None, str(error)
    mo.stop(chosen is None, mo.callout(mo.md(f"`{written}`: {refused}"), kind="warn"))
    return chosen, written


@app.cell
def shown_picture(chosen, device, on_mesh, page, written):
    copies, row = chosen["copies"].answer, chosen.rows[device.value]
    alt = (
        f"{written} on a mesh of {' x '.join(map(str, on_mesh.value.values()))}: device "
        f"{row['device']} at X={row['X']}, Y={row['Y']} holds {row['holds']}; "
        f"{copies:.0f} devices hold the same rows and columns"
    )
    page.show(
        page.picture(array_on_mesh(written, on_mesh.value, device.value), alt),
        f"On all devices {show(chosen['bytes on all devices'].answer, 'bytes')}: {copies:.0f} x "
        f"one copy. Device {device.value} holds `{row['holds']}`.",
        page.formula(chosen),
    )


@app.cell
def the_ladder_of_what_you_split(chosen, mesh, on_mesh, page, whole, written):
    devices = math.prod(on_mesh.value.values())
    of_guess = page if (written, on_mesh.value) == ("A[I_X,J_Y]", mesh) else parts.Page()
    page.show(
        "## The ladder of what you split",
        of_guess.ladder(
            f"bytes on each device, {written}",
            "bytes",
            scale=2**20,
            bound=(whole / devices, "one copy in all, a part of it on every device"),
            textbook=(chosen.answer, "the copies that the sharding keeps"),
        ),
    )


@app.cell
def what_a_change_of_the_name_costs(mesh, page, shape):
    changes = {
        "A[I_X,J_Y] -> A[I,J_Y]": "all-gather over X",
        "A[I_X,J_Y] -> A[I,J]": "all-gather over X and Y",
        "A[I_X,J] -> A[I_X,J_Y]": "each device keeps a slice",
        "A[I,J] {U_X} -> A[I_X,J]": "reduce-scatter over X",
        "A[I,J] {U_X} -> A[I,J]": "all-reduce over X",
        "A[I_X,J] -> A[I,J_X]": "all-to-all over X",
    }
    on_node = {"cluster": "dgx-h100", "ideal": True}
    moved = {text: sc.learn.array(text, mesh, shape, **on_node).answer for text in changes}
    arrivals = {text: sc.learn.array(text, mesh, shape).answer for text in changes}
    rows = [
        {
            "change": f"`{text}`",
            "takes": words,
            "into each device (bytes)": arrivals[text],
            "on an H100 node, textbook (s)": moved[text],
        }
        for text, words in changes.items()
    ]
    try:
        uneven = str(sc.learn.array("A[10_Y,J]", mesh, {"J": 8}))
    except sc.InputError as error:
        uneven = str(error)
    silent = sc.learn.array("A[I_X,J]", mesh, {"I": 4096, "J": 16384})
    page.show(
        """
## What a change of the name costs

An axis that disappears from the name is an all-gather. An axis that appears is free: each device
keeps a slice of what it has. An axis that moves to another dimension is an all-to-all. `{U_X}` is a
sum that has still to be made. Lesson 3 is about what they cost.
""",
        page.table(rows),
        f"""
## Two mistakes, and how they show

**An axis that nobody named.** `A[I_X,J]` is correct and nothing complains, but {mesh["Y"]} devices
along `Y` hold the same: `copies: {silent["copies"].answer:.0f}`. For weights that is memory lost;
`scaling sharding RUN --mesh ...` lists what is replicated over axes that could have split it.

**A size that its axes do not divide.** Parts of different sizes do not exist in this notation:

> {said(uneven)}
""",
    )
    return arrivals, moved, silent, uneven


@app.cell
def take_away(page):
    kept = sc.learn.array("A[I_Y,J,K]", "X=8,Y=4,Z=2", "I=8,J=8,K=8")["copies"].answer
    reading = sc.learn.array("int8[8192_XY,16384]", "X=4,Y=8", cluster="dgx-h100", ideal=True)
    read = 1e6 * reading["time to read its part from memory"].ideal
    # L, D, key heads M and head size K of Llama 3 8B, as `scaling sharding` prints the array
    keys = sc.learn.array("fp32[32,4096_fsdp,8_tensor,128]", "fsdp=2,tensor=4").answer / 1e6
    problems = page.problems(
        parts.on_paper(
            "`A[I_Y, J, K]` on a mesh of X=8, Y=4, Z=2: how many times one copy's bytes do all "
            "devices hold together?",
            (kept, "copies"),
            mistakes=("copies 4: high", "copies 2: low", "copies 8: low"),
            why="X and Z stand nowhere in the name: there is one copy of the array for each of "
            "their positions.",
        ),
        parts.in_simulator(
            "`int8[8192_XY, 16384]` on X=4, Y=8 of 32 H100: by the textbook, how long does a "
            "device read its part from its memory? (scaling array ... --cluster dgx-h100 --ideal)",
            (read, "us"),
            mistakes=(
                "bytes per element 2: high",
                "bytes per element 4: high",
                "copies 4: high",
                "copies 8: high",
                "thousand",
            ),
            why="All axes split the rows: nobody holds a copy, and all devices read at once.",
        ),
        parts.on_trainer(
            "`scaling sharding llama3-8b --mesh fsdp=2,tensor=4` prints how the trainer splits "
            "every parameter, in fp32. What does a device hold of `layers/attention/key_DMK`?",
            (keys, "MB"),
            mistakes=(
                "bytes per element 2: low",
                "GiB",
                "copies 2: high",
                "copies 4: high",
                "layers 32: low",
            ),
            why="`fsdp` splits the width D, `tensor` the heads of the keys. The norms' scales are "
            "split over nothing: the command says so in its warning.",
        ),
    )
    snippet = """
Drawn by jax itself, on fake devices of a CPU:

```python
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
axes = dict(axis_names=("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
jax.set_mesh(jax.make_mesh((2, 4), **axes))
a = jax.device_put(jnp.zeros((4096, 16384), jnp.bfloat16), P("X", "Y"))
print(jax.typeof(a))  # bfloat16[4096@X,16384@Y]: the name, in the type
print(a.addressable_shards[5].data.nbytes, a.addressable_shards[5].index)
jax.debug.visualize_sharding((8, 8), a.sharding)  # who holds what, drawn as a square
```

Type `P("X", None)`, and the drawing shows the copies.
"""
    in_jax = mo.accordion({"the same array in jax": mo.md(snippet)})
    page.takeaway(
        "Divide each dimension by the axes in its subscript: that is the part of one device. The "
        "axes that appear nowhere say how many copies there are. Where two names differ, "
        "something has to be sent.",
        problems,
        in_jax,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems):
    found = []
    for elements in (2**16, 2**30):
        sizes = (elements, 2, 1)
        by_roof = sc.learn.kernel("elementwise", sizes, dtype="fp32", accelerator="h100-sxm")
        timed = measured_kernel("elementwise", sizes, "fp32", "h100-sxm")
        found.append(
            {
                "numbers that a device holds": elements,
                "bytes over bandwidth (s)": by_roof.ideal,
                "fitted (s)": by_roof.fitted,
                "measured (s)": timed.seconds,
                "source": f"{timed.machine}, {timed.date}",
            }
        )
    short = found[0]["measured (s)"] / found[0]["bytes over bandwidth (s)"]
    page.ending(
        problems,
        "The bytes are exact, but reading them takes longer than bytes over bandwidth. To add two "
        f"small arrays takes an H100 {short:.1f} times as long, because a kernel has to start. So "
        "splitting an array over more devices stops helping at some point. The fitted figures use "
        "these two measurements. Memory holds more than these parts, too: gathered copies and "
        "buffers, which `scaling predict` adds up.",
        found,
    )


if __name__ == "__main__":
    app.run()
