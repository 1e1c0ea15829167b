# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lab 2: two measurements, two unknowns."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="Lab 2. Two measurements, two unknowns")


with app.setup:
    from dataclasses import replace

    import marimo as mo

    import scaling as sc
    from scaling.course.lessons import lab2_model, parts
    from scaling.pictures.curves import curves
    from scaling.questions.page import show


@app.cell
def opening():
    machines = (lab2_model.OLD, lab2_model.NEW)
    reported = [
        {
            "machine": f"{lab2_model.NODES} nodes of {one.name}",
            "samples/s": f"{one.rate:,.1f}",
            "training (s)": one.training,
            "samples in all": f"{one.samples:,.0f}",
            "a step (s)": one.step(),
        }
        for one in machines
    ]
    field = parts.guess(
        "Every sample is as long as it may be. By what factor should the H200 be faster?",
        "times",
    )
    length = lab2_model.STATED_LENGTH
    parts.opening(
        "lab 2",
        "turn two measured throughputs into what nobody wrote down, and say what a change of "
        "the run would bring before it is tried",
        "A team trained Qwen3-0.6B with DeepSpeed's ZeRO stage 2 in two places, with "
        f"{lab2_model.STATED_SEQUENCES} sequences on a GPU, of at most "
        f"{lab2_model.STATED_LENGTH:,} tokens, and asked why the newer chip was so little faster. "
        "That is all that is known: not the GPUs of a node (8 are assumed here), not the old "
        "machine's network, not how long samples are on average, nor what a step waits for besides "
        "its GPU.",
        parts.Page().table(reported),
        "The last columns are computed. Both trainings saw the same number of samples: rates and "
        "times agree, and can be trusted.",
        field,
        minutes=30,
        chapter="profiling",
    )
    return field, length, machines


@app.cell
def after_the_guess(field, length, machines):
    old, new = machines
    full = {one.name: lab2_model.predicted(one.cluster, length) for one in machines}
    ratio = float(full[old.name].step_time / full[new.name].step_time)
    seen = new.rate / old.rate
    chips = [sc.load_cluster(one.cluster).accelerator for one in machines]
    peaks, reads = (
        sc.learn.chip(chips[1].name)[part].answer / sc.learn.chip(chips[0].name)[part].answer
        for part in ("peak bf16", "memory bandwidth")
    )
    _larger = sc.learn.chip("a100-sxm-80g")["memory bandwidth"].answer
    _reads = sc.learn.chip(chips[1].name)["memory bandwidth"].answer / _larger
    mistakes = (
        f"upside down {ratio**2:.4g}: low",
        f"measured for possible {seen / ratio:.4g}: high",
        f"other chip {_reads / ratio:.4g}: high",
    )
    page = parts.opened(field, ratio, mistakes, tolerance=0.05)
    rows = [
        {
            "machine": one.name,
            "predicted (s)": float(full[one.name].step_time),
            "measured (s)": one.step(),
            "measured less predicted": f"{lab2_model.outside(one, length):+.3f} s",
        }
        for one in machines
    ]
    trainers = {
        "this project's trainer": "jax",
        "DeepSpeed, as it was timed elsewhere": "deepspeed",
    }
    software = parts.dropdown(trainers, "software")
    networks = {"DGX A100, eight NICs a node": lab2_model.OLD.cluster, "AWS P4d, four": "p4d"}
    network = parts.dropdown(networks, "the old machine")
    tokens = mo.ui.slider(
        steps=list(range(512, length + 1, 64)),
        value=length // 4 * 3,
        label="mean tokens of a sample",
        show_value=True,
    )
    page.show(
        f"{page.guessed} That is what the simulator says. The peak is "
        f"{peaks:.2f} times as high and memory {reads:.2f} times as fast, but not every "
        f"kernel gains as much. Measured: **{seen:.2f}**.",
        page.table(rows),
        "The old machine was *faster* than a step of full samples can be, and the new one "
        "slower. One explanation fits both: samples are shorter, and each step also "
        "takes seconds that no GPU makes shorter.",
        "## Move the length until both machines agree\n\nFor each mean length, the "
        "measured step less the predicted one is the rest: the time outside the GPU. At the right "
        "length it is the same for both machines.",
        [software, network],
        tokens,
    )
    return full, network, new, old, page, ratio, seen, software, tokens


@app.cell
def _(network, software):
    placed = (replace(lab2_model.OLD, cluster=network.value), lab2_model.NEW)
    curve_of = {one.name: lab2_model.rests(one, software.value) for one in placed}
    solved = lab2_model.solved(software.value, network.value)
    return curve_of, placed, solved


@app.cell
def shown_picture(curve_of, page, placed, software, solved, tokens):
    here = {one.name: lab2_model.outside(one, tokens.value, software.value) for one in placed}
    lines = [
        (name, [(at, 1e3 * rest) for at, rest in curve.items() if rest > 0], colour, 0)
        for (name, curve), colour in zip(curve_of.items(), (2, 0), strict=True)
    ]
    marks = [("both", solved[0], 1e3 * solved[1])] if solved else []
    said = "; ".join(
        f"{name} {show(rest, 's') if rest > 0 else 'not possible'}" for name, rest in here.items()
    )
    where = "they do not cross"
    if solved:
        where = f"they cross at {solved[0]:,.0f} tokens and {show(solved[1], 's')}"
    page.show(
        f"Samples of {tokens.value:,} tokens leave outside the GPU: **{said}**.",
        page.picture(
            curves(lines, marks, "mean tokens of a sample", "ms outside the GPU", tokens.value),
            f"Seconds that the measured step leaves, against the length of samples: {where}",
        ),
    )


@app.cell
def _(page):
    length_text = "read it off the curves: how long is a sample on average?"
    found_tokens = page.problem("First unknown", length_text, "tokens")
    rest_text = "and what does each step take outside the GPU?"
    found_rest = page.problem("Second unknown", rest_text, "ms")
    page.show(found_tokens, found_rest)
    return found_rest, found_tokens


@app.cell
def verdict(found_rest, found_tokens, page, solved):
    mo.stop(solved is None, mo.md("With this choice the curves do not cross: try the other one."))
    near = {"tolerance": 0.1}  # relative: what one reads off a curve
    shorter = "Far below what was stated: the limit is of the longest sample, not the mean."
    longer = "More than the GPU works: a faster chip cannot help there."
    page.show(
        page.verdict(found_tokens, solved[0], "tokens", why=shorter, **near),
        page.verdict(found_rest, 1e3 * solved[1], "ms", why=longer, **near),
    )


@app.cell
def now_predict(full, new, page, solved):
    mo.stop(solved is None)
    mean, rest = round(solved[0]), solved[1]

    whole_batch = new.step() * new.rate

    def rate(batch, once, found):
        """Samples/s of the new machine; the rest is per step, or grows with its samples."""
        return batch / (float(found.step_time) + rest * (1 if once else batch / whole_batch))

    sizes = (lab2_model.STATED_SEQUENCES, 8, 16, 32)
    larger = {n: lab2_model.predicted(new.cluster, mean, sequences=n) for n in sizes}
    batches = [
        {
            "sequences on a GPU": n,
            "rest once per step: samples/s": f"{rate(new.step(n) * new.rate, True, found):,.0f}",
            "rest per sample: samples/s": f"{rate(new.step(n) * new.rate, False, found):,.0f}",
        }
        for n, found in larger.items()
    ]
    as_is = larger[lab2_model.STATED_SEQUENCES]
    other_ways = {
        "plain data parallelism": {"mesh": "data=32", "zero_stage": 0},
        "ZeRO stage 3": {"zero_stage": 3},
        "tensor over two": {"mesh": "fsdp=16,tensor=2", "sequences": sizes[1]},
    }
    changed = {
        name: lab2_model.predicted(new.cluster, mean, **how) for name, how in other_ways.items()
    }
    splits = [
        {
            "the same batch": name,
            "in the GPU and waiting (s)": float(found.step_time),
            "of it the optimizer (s)": float(found.time.optimizer),
            "waiting (s)": float(found.time.exposed_communication),
            "samples/s": f"{rate(whole_batch, True, found):,.0f}",
        }
        for name, found in {"ZeRO stage 2, as it ran": as_is, **changed}.items()
    ]
    chip = sc.load_cluster(new.cluster).accelerator
    whole = full[new.name]
    share = lambda found: float(found.memory.peak) / found.memory.capacity
    flops = as_is.model_flops / as_is.devices / new.step()
    plain = sc.learn.chip(chip.name)["peak fp32"].answer
    claims = [
        {
            "it was said": "only a few percent of the memory are used",
            "computed": f"{share(as_is):.0%} at the mean length, {share(whole):.0%} at the longest",
            "so": "nearer to short samples than to full ones",
        },
        {
            "it was said": "perhaps it ran in fp32",
            "computed": f"{show(flops, 'FLOP/s')} a GPU; fp32 outside tensor cores "
            f"{show(plain, 'FLOP/s')}",
            "so": "not in plain fp32" if flops > plain else "possible: the rate does not refute it",
        },
        {
            "it was said": "the batch is too small",
            "computed": "the table above",
            "so": "if the rest is once per step; little is gained if every sample waits",
        },
    ]
    page.show(
        "## Now predict\n\nWould a larger batch help? That depends on what the rest is. If a step "
        "waits once (logging, a synchronisation), more samples share the wait. If every sample "
        "waits (reading, tokenizing), little is gained. One run with a larger batch tells which.",
        page.table(batches),
        "The advice that was given was plain data parallelism; the team asked about ZeRO 3 and "
        "tensor parallelism. None of them touches the rest, and none is faster in the GPU:",
        page.table(splits),
        "## What else was said, checked with the two unknowns",
        page.table(claims),
    )
    return as_is, changed, rate, whole_batch


@app.cell
def take_away(page):
    speed, gained = 3.0, 1.5
    outside_share = (1 / gained - 1 / speed) / (1 - 1 / speed)
    other = lab2_model.solved("deepspeed", lab2_model.OLD.cluster)
    problems = page.problems(
        parts.on_paper(
            f"a chip is {speed:g} times as fast and the step only {gained:g} times. Which share of "
            "the old step is outside the chip?",
            (outside_share, ""),
            mistakes=("percent",),
            why=f"x + (1 - x) / {speed:g} = 1 / {gained:g}: Amdahl's law, read backwards.",
        ),
        parts.in_simulator(
            "the rest was found with this project's trainer and eight NICs. How long is a sample "
            "with the habits of DeepSpeed? (choose it above)",
            (other[0], "tokens"),
            tolerance=0.1,
            why="Its communication is not hidden, on both machines: more of the difference is "
            "traffic, and less is left for tokens.",
        ),
    )
    page.takeaway(
        "One measurement cannot be explained, because anything explains it. Two, on machines whose "
        "difference is known, leave no room: what scales with the chip and what does not come "
        "apart. State what you assumed, change it, and see whether the conclusion stands.",
        problems,
    )
    return (problems,)


@app.cell
def where_the_model_is_wrong(page, problems):
    cases = {
        f"{trainer}, {nics}": lab2_model.solved(name, place)
        for trainer, name in (("our trainer", "jax"), ("DeepSpeed", "deepspeed"))
        for nics, place in (("eight NICs", lab2_model.OLD.cluster), ("four (P4d)", "p4d"))
    }
    sensitivity = [
        {
            "assumed": assumed,
            "tokens": f"{both[0]:,.0f}" if both else "none",
            "outside (s)": both[1] if both else None,
        }
        for assumed, both in cases.items()
    ]
    ends = [both[0] for both in cases.values() if both]
    page.ending(
        problems,
        "The two unknowns depend on what was assumed. The length moves between "
        f"{min(ends):,.0f} and {max(ends):,.0f} tokens with the software and the old machine's "
        "network, but it is always far below the limit, and an H200 always waits longer than it "
        "works. Where no length explains both machines, the assumption is refuted. Nobody has "
        "published the mean length of these samples: the inversion is not confirmed. A mean also "
        "hides the spread: padding to the longest of four would count as tokens here.",
        sensitivity,
    )
    return ends, sensitivity


if __name__ == "__main__":
    app.run()
