# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lesson 4: counting a transformer."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="4. Counting a transformer")


with app.setup:
    import marimo as mo

    import scaling as sc
    from scaling.course.ladder.measured import measured_step
    from scaling.course.lessons import parts
    from scaling.pictures.bars import stacked_bars
    from scaling.pictures.curves import curves
    from scaling.program.stored import stored_programs
    from scaling.questions.answer import Input, by_formula, letters
    from scaling.questions.page import show

    SHAPE = {"N": "n_heads", "H": "head_dim", "L": "n_layers"}


@app.cell
def opening():
    names = ("llama3-8b", "llama3-1b", "llama3-70b", "gpt2-1.5b", "qwen3-0.6b", "mixtral-8x7b")
    model = parts.dropdown(names, "model")
    parts.opening(
        "lesson 4",
        "count the parameters, the FLOPs and the memory of any transformer from its shape, "
        "and say from which context attention dominates",
        model,
        minutes=30,
        chapter="transformers",
    )
    return (model,)


@app.cell
def guess(model):
    run = sc.load_run(model.value)
    shape, seq = run.model, run.batch.seq_len
    wide = "its MLP has a gate" if shape.mlp == "swiglu" else "its MLP has no gate"
    some = shape.moe
    experts = f", {some.n_experts} experts, {some.experts_per_token} a token" if some else ""
    field = parts.guess(
        f"How many FLOPs does the training of {model.value} take for one token?", "GFLOPs"
    )
    parts.Page().show(
        f"""
A model of L = {shape.n_layers} layers has the width D = {shape.d_model:,}, an MLP of width
F = {shape.d_ff:,} ({wide}{experts}), N = {shape.n_heads} heads of queries,
K = {shape.n_kv_heads} of keys and of values with H = {shape.head_dim} numbers each, and a
vocabulary of V = {shape.vocab_size:,}. It is trained on B sequences of T = {seq:,} tokens.

These numbers decide what a step costs before anything runs. A matrix of P weights takes 2 P FLOPs
per token forward, a multiplication and an addition for each weight, and twice that backward: 6 P in
all. Two things do not follow this rule. The embedding is looked up, not multiplied. And attention
compares each token with all T tokens of its sequence: those products have no weights at all.
""",
        field,
    )
    return field, seq, shape


@app.cell
def after_the_guess(field, model, seq, shape):
    counted = sc.learn.count(model.value, seq_len=seq)
    exact, rule = counted["training FLOPs of a token"], counted["6 x parameters"]
    forward = counted["forward FLOPs of a token"]
    _all = f"experts {6 * counted.answer / rule.answer:.4g}: high"
    _experts = (_all,) if shape.moe else ()
    per_layer = f"layers {shape.n_layers}: low"
    core = forward["attention core"].answer
    mistakes = (
        *("backward: low", "multiply and add: low", "remat: high", per_layer, *_experts),
        f"scores {exact.answer / rule.answer:.4g}: low",
        f"backward {3 * exact.answer / rule.answer:.4g}: low",  # 2 N
        f"causal {exact.answer / (exact.answer - 1.5 * core):.4g}: low",
    )
    page = parts.opened(field, exact.answer / 1e9, mistakes)
    weighed = forward.answer - core
    executed = (None, "")
    for built in stored_programs():
        if built.run == model.value and "batch.seq_len" not in built.set:
            step = sc.predict(**built.arguments)
            tokens = sc.load_run(model.value, set=dict(built.set)).batch.tokens
            policy = built.set.get("remat", "the recipe's")
            words = f"products that XLA compiled on {built.mesh}, remat {policy}"
            flops = step.model_flops * step.hfu / step.mfu / tokens
            executed = flops, words
            break
    P = Input("P", weighed / 2, "parameters", "that are multiplied for a token")
    shapes = (Input(one, getattr(shape, name)) for one, name in SHAPE.items())
    figures = letters(P, Input("T", seq, "tokens", "context"), *shapes)
    page.show(
        page.guessed,
        page.derivation(
            ("forward = 2*P", "P weights, each multiplied and added once for a token"),
            ("backward = 4*P", "a product has two gradients: of its input and of its weights"),
            ("scores = 2*T*N*H*L", "a query with T keys, in N heads of H numbers and L layers"),
            ("core = 4*T*N*H*L", "and their average of T values: as much; no weights at all"),
            ("training = 6*P + 3*core", "forward and twice that backward, for both"),
            ("training = 6*P + 12*T*N*H*L", "the question: FLOPs of one token, core put in"),
            (
                "12*T*N*H*L > 6*P",
                "and from which context does the core cost more than all weights?",
            ),
            ("T > P / (2*N*H*L)", "the shape of the model alone decides"),
            numbers=by_formula("training", "FLOPs", "6*P + 12*T*N*H*L", figures),
        ),
        page.ladder(
            f"training FLOPs of a token of {model.value}",
            "FLOPs",
            scale=1e9,
            bound=(3 * weighed, "a product for each weight that is multiplied; no attention yet"),
            textbook=(rule.answer, "6 x parameters that a token uses, those looked up as well"),
            fitted=(exact.answer, f"all products, with all scores at T = {seq:,}"),
            compiled=executed,
        ),
        "A compiled step does more where it computes something again for the backward "
        "pass: MFU leaves that out, HFU counts it.",
    )
    return counted, exact, executed, figures, forward, page, rule, weighed


@app.cell
def where_parameters_and_flops_are(counted, forward, page, seq, shape):
    head = counted["head"] if any(part.name == "head" for part in counted.parts) else None
    pairs = (
        ("attention: queries, keys, values, output", counted["attention"], "projections"),
        ("MLP", counted["MLP"], "MLP"),
        ("embedding", counted["embedding"], ""),
        ("head (where none is stored, the embedding again)", head, "head"),
        ("scores and their average of values", None, "attention core"),
    )
    by_part = [
        {
            "part": name,
            "parameters": found.answer if found else 0,
            "share": f"{found.answer / counted.answer:.1%}" if found else "none",
            "forward, a token (FLOPs)": forward[flops].answer if flops else 0.0,
        }
        for name, found, flops in pairs
    ]
    longest = shape.max_positions if shape.positions == "learned" else 2**20
    context = parts.powers("context T", 8, longest.bit_length() - 1, min(seq, longest))
    causal = mo.ui.checkbox(label="count only the half of the scores that a causal mask leaves")
    page.show(
        "## Where parameters and FLOPs are",
        page.table(by_part),
        page.formula(counted),
        page.formula(forward),
        "## Where attention overtakes",
        context,
        causal,
    )
    return causal, context


@app.cell
def shown_picture(causal, context, model, page):
    overtakes = "context at which the attention core costs as much as "
    here = sc.learn.count(model.value, seq_len=context.value, causal=causal.value)
    ahead = sc.learn.count(model.value, seq_len=2**8, causal=causal.value)
    all_else, own = ahead[overtakes + "all else in a layer"], ahead[overtakes + "its projections"]
    passes = ahead["forward FLOPs of a token"]
    giga = {part.name: part.answer / 1e9 for part in passes.parts}
    slope = giga["attention core"] / 2**8
    ends = (2**8, 2**20)
    flat = [
        (name, [(x, giga[name]) for x in ends], colour, 0)
        for name, colour in (("projections", 1), ("MLP", 0), ("head", 4))
    ]
    marks = [(f"{crossing.answer:,.0f}", crossing.answer, crossing.answer * slope)
             for crossing in (own, all_else)]  # fmt: skip
    share = here["attention core's share"].answer
    over = here["exact over 6 x parameters"].answer
    trains = show(here["training FLOPs of a token"].answer, "FLOPs")
    alt = (
        f"FLOPs per token against context: attention's core passes its own projections at "
        f"{own.answer:,.0f} and all else in a layer at {all_else.answer:,.0f} tokens"
    )
    rising = ("attention core", [(x, slope * x) for x in ends], 2, 0)
    drawn = curves(
        [*flat, rising], marks, "tokens of context", "GFLOPs of a token, forward", context.value
    )
    page.show(
        page.picture(drawn, alt),
        f"At {context.value:,} tokens the core has **{share:.0%}** of the forward FLOPs, "
        f"and a token is trained by {trains}, {over:.2f} times the rule of six.",
        page.formula(own),
        page.formula(all_else),
    )


@app.cell
def what_training_keeps(page):
    sequences = mo.ui.slider(1, 16, value=2, label="sequences of a GPU", show_value=True)
    page.show("## What training keeps", sequences)
    return (sequences,)


@app.cell
def shown_picture_2(model, page, seq, sequences):
    DEVICES, STATE = 8, 12  # GPUs of a node; bytes: fp32 weights and two moments, as the trainer
    keeps = sc.learn.count(
        model.value, batch=sequences.value * seq, bytes_per_parameter=STATE, seq_len=seq
    )
    memory = sc.learn.chip("h100-sxm")["memory"].answer
    size = lambda value: f"{value / 1e9:,.1f} GB"
    state = keeps["weights and optimiser"].answer / DEVICES
    held = f"weights and optimiser, a share of {DEVICES}"
    stacks = {
        str(row["remat"]): {held: state, "activations": row["in all (bytes)"]}
        for row in keeps["activations kept"].rows
    }
    said = ", ".join(f"{name} {size(sum(stack.values()))}" for name, stack in stacks.items())
    page.show(
        f"Besides its share of weights and moments, each of {DEVICES} H100 keeps activations of "
        "every layer for the backward pass. With `remat` it keeps fewer and recomputes the rest: "
        f"FLOPs for memory. The dashed line is the {size(memory)} of an H100.",
        page.picture(
            stacked_bars(stacks, size, memory),
            f"Bytes of a GPU by what is kept: {said}; an H100 has {size(memory)}",
        ),
        page.formula(keeps["activations kept"]),
    )
    return DEVICES, STATE


@app.cell
def take_away(DEVICES, STATE, page):
    memories = []
    for stored in parts.stored("remat"):
        settings = dict(stored.set)
        how = {"set": settings, "bytes_per_parameter": STATE, "devices": DEVICES}
        kept = sc.learn.count(stored.run, **how)["weights, optimiser and activations of a device"]
        memories.append(
            {
                "step": f"{stored.run}, remat {sc.load_run(stored.run, set=settings).remat}, "
                f"{stored.cluster}",
                "counted (bytes)": kept.answer,
                "compiled (bytes)": sc.predict(**stored.arguments).memory.peak,
            }
        )
    square = {"model.n_layers": 1, "model.d_model": 8192, "model.d_ff": 4 * 8192,
              "model.n_heads": 64, "model.vocab_size": 32_000, "model.mlp": "gelu"}  # fmt: skip
    layer = sc.learn.count("custom", set=square)["a layer"].answer / 1e6
    crossing = "context at which the attention core costs as much as all else in a layer"
    masked = sc.learn.count("llama3-70b", causal=True)[crossing].answer
    total = 4 * sc.learn.count("tiny", set={"model.d_ff": 256}).answer
    problems = page.problems(
        parts.on_paper(
            "a layer with D = 8192, F = 4 D without a gate, and as many heads of keys as of "
            "queries, with N H = D: its parameters?",
            (layer, "millions"),
            mistakes=(f"third matrix {(4 + 3 * 4) / 12:.4g}: high",),
            why="Four D x D for attention and two D x 4 D for the MLP: 12 D squared.",
        ),
        parts.in_simulator(
            "with a causal mask that halves the scores, from which context does the core cost more "
            "than all else in a layer of llama3-70b? (scaling count llama3-70b --causal)",
            (masked, "tokens"),
            mistakes=("causal: low",),
            why="Half the scores: twice the context.",
        ),
        parts.on_trainer(
            "run `scaling train tiny --set model.d_ff=256 --mesh data=1 --devices 1 --steps 1`: "
            "what is the total of its table of parameters? Say it before you run it",
            (total, "bytes"),
            mistakes=("bytes per element 4: low", "bytes per element 2: low"),
            tolerance=0.0,
            why="To the byte: the trainer keeps fp32, and the count knows every norm.",
        ),
    )
    page.takeaway(
        "Six FLOPs per parameter and token is the cost of training while the context is short. "
        "The products of attention itself grow with T: from some context on, which the shape alone "
        "decides, they cost more than the rest of a layer. Memory is bytes per parameter, divided "
        "by the devices, plus activations, which grow with the tokens of a device.",
        problems,
    )
    return memories, problems


@app.cell
def where_the_model_is_wrong(memories, page, problems):
    peak = sc.learn.chip("h100-sxm")["peak bf16"].answer

    def timed(name, tokens, seconds_of):
        """A measured step of 128 H100 beside its FLOPs at their peak."""
        found = measured_step(name, 128, "dgx-h100", tokens)
        flops = sc.learn.count(name, seq_len=seconds_of)["training FLOPs of a token"].answer
        floor = flops * tokens / 128 / peak
        return {
            "step": f"{name}, {found.machine}, {found.date}",
            "at the peak (s)": floor,
            "measured (s)": found.seconds,
            "MFU": f"{floor / found.seconds:.0%}",
        }

    steps = [timed("llama2-70b", 2**20, 4096), timed("llama3-70b", 2**21, 8192)]
    shares = [row["at the peak (s)"] / row["measured (s)"] for row in steps]
    page.ending(
        problems,
        "A count has no time in it. Measured steps (NVIDIA, dgxc-benchmarking) take far longer "
        f"than their FLOPs at the peak: the lowest MFU here is {min(shares):.0%}. The rest is "
        "products below the peak, work that is computed again, and communication that is waited "
        "for.",
        steps,
        "Nor does a count of activations know what else is in memory at the fullest "
        "moment: gradients, gathered weights, logits, and what one layer computes again. "
        "The compiler's figure has all of that."
        if memories
        else "",
        page.table(memories),
    )
    return (shares,)


if __name__ == "__main__":
    app.run()
