# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Lab 4: a museum of wrong numbers."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="compact", app_title="Lab 4. A museum of wrong numbers")


with app.setup:
    import marimo as mo

    from scaling.course.lessons import lab4_errata, parts
    from scaling.course.quizzes.command_lines import document_of, result_of
    from scaling.course.quizzes.common_mistakes import mistake
    from scaling.pictures.bars import ratios
    from scaling.questions.page import show


@app.cell
def opening():
    every = lab4_errata.exhibits()
    places = list(dict.fromkeys(one.where for one in every))
    field = parts.guess(
        f"How many of the {len(every)} are off by just a factor of two, either way?",
        "exhibits",
    )
    parts.opening(
        "lab 4",
        "tell from a factor what was probably done, and name the command that shows it",
        f"Each of the {len(every)} exhibits was printed: in {', '.join(places)}. Not "
        "all of them are wrong. You say what should stand there and what went wrong; then a "
        "command of this project computes it, here and now.",
        field,
        minutes=40,
        chapter="gpus",
    )
    return every, field


@app.cell
def after_the_guess(every, field):
    is_two = lambda one: min(abs(one.ratio / 2 - 1), abs(one.ratio * 2 - 1)) <= lab4_errata.RIGHT
    halves = [one for one in every if is_two(one)]
    page = parts.opened(field, len(halves), (f"all factors {len(every) / len(halves):.4g}: high",))
    named = sorted({one.said for one in halves})
    factors = sorted((one.ratio for one in every), reverse=True)
    nameless = {f"{i} of {len(every)}": ratio for i, ratio in enumerate(factors, start=1)}
    titles = {f"{i}. {one.title}": i - 1 for i, one in enumerate(every, start=1)}
    choice = parts.dropdown(titles, "exhibit")
    page.show(
        f"{page.guessed} They have {len(named)} kinds of cause: {', '.join(named)}. A "
        "factor is where one starts to look, not the proof. Printed over computed, all of "
        "them, on a scale of powers of two:",
        page.picture(
            ratios(nameless, lab4_errata.RIGHT),
            "Printed over computed: " + ", ".join(f"{ratio:.3g}" for ratio in factors),
        ),
        "## Walk through",
        choice,
    )
    return choice, halves, named, page


@app.cell
def _(choice, every, page):
    piece = every[choice.value]
    asked = piece.question
    printed = show(piece.printed, asked.unit)
    cause = mo.ui.radio(lab4_errata.causes(), label="**What went wrong?**")
    should = page.problem("What should stand there", "your number", asked.unit or "a ratio")
    page.show(
        mo.callout(mo.md(f"*From {piece.where}:* {piece.claim} **{printed}**.")),
        cause,
        should,
        "The command runs when you have named a cause.",
    )
    return asked, cause, piece, printed, should


@app.cell
def verdict(asked, page, piece, should):
    page.verdict(should, piece.computed, asked.unit, mistakes=asked.mistakes)


@app.cell
def reply(asked, cause, page, piece, printed):
    hit = parts.chosen(cause) == piece.cause
    known = [mistake(name) for name in asked.mistakes[:1]]
    explained = "".join(f"Here {one.sentence} Check: {one.check}" for one in known)
    pages = {f"$ scaling {line}": mo.md(f"```\n{result_of(line)}\n```") for line in asked.commands}
    page.show(
        page.reply(
            hit,
            f"**{piece.said}**. Printed {printed}, computed "
            f"**{show(piece.computed, asked.unit)}**, a factor of {piece.ratio:.3g}. "
            f"{asked.reason} {explained}",
        ),
        mo.accordion(pages),
    )


@app.cell
def take_away(every, page):
    rows = [
        {
            "exhibit": one.title,
            "printed over computed": f"{one.ratio:.3g}",
            "cause": one.said,
            "what happened": one.question.reason,
        }
        for one in every
    ]
    cards, size, rate_ = 4, 10e9 * 4, 32e9
    command = (
        f"collective all-reduce --bytes {size / 1e9:g}GB --cluster rtx4090-8 --devices 0,1,2,3"
    )
    ring = 2 * (cards - 1) / cards * size / rate_
    through_host = document_of(command)["time"]
    problems = page.problems(
        parts.on_paper(
            f"a guide says that summing the fp32 gradients of 10 billion parameters over {cards} "
            f"GPUs on PCIe, {rate_ / 1e9:g} GB/s each way, takes tens of seconds. What does a ring "
            "take?",
            (ring, "s"),
            mistakes=("all-reduce once: low", f"ring {cards}: high", "bytes per element 4: low"),
            why="2 (N - 1)/N of the bytes over each card's link.",
        ),
        parts.in_simulator(
            "and on four of eight RTX 4090, whose driver lets no card read another's memory? "
            f"(scaling {command})",
            (through_host, "s"),
            mistakes=("all-reduce once: low", "ring 4: high"),
            why="Through the host's memory it does take that long: the guide's number was right "
            "for cards without peer access, and its reason, PCIe, wrong.",
        ),
    )
    take_away = page.takeaway(
        "Divide what you read by what you compute. Two, eight, 1.07 and (N - 1)/N have a short "
        "list of causes each; a factor of none of them means another chip, another format, or "
        "another question. Dense or sparse, one direction or both, bits or bytes, a chip or a "
        "node: a figure without these words is half a figure.",
        problems,
        title="Two more, which are both right and wrong",
    )
    page.show(mo.accordion({"All answers": page.table(rows)}), take_away)
    return command, problems, ring, through_host


@app.cell
def where_the_model_is_wrong(every, page, problems):
    unexplained = [one for one in every if one.cause == lab4_errata.OTHER]
    page.ending(
        problems,
        f"{len(unexplained)} of {len(every)} exhibits have no named mistake: the list of mistakes "
        "knows factors, not histories. Our numbers can be wrong too: they come from figures that "
        "vendors print, each with its source and date in the catalogue. And a rule of thumb has "
        "beaten our planner: where others tried every mesh of one node of A100, 'fewest tensor x "
        "stage' lost less time in the median than the plan (docs/decide.md).",
        (),
    )


if __name__ == "__main__":
    app.run()
