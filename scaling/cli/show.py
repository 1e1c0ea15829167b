"""What commands print: each function is given the call of the API, ready to be made."""

import json as json_text
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.meshes.errors import InputError

if TYPE_CHECKING:
    from scaling.questions.answer import Answer

BETWEEN = "---"  # line between two texts


def show(outcome: Any, json: bool, plot: Path | None = None) -> int:
    """Print a result, and draw it; 0, the exit code."""
    if plot is not None:
        outcome.plot(plot)
    print(json_text.dumps(outcome.to_dict(), allow_nan=False) if json else outcome, flush=True)
    return 0


def show_prediction(
    outcome: Any,
    json: bool,
    explain: bool,
    trace: Path | None,
    pictures: Mapping[str, Path],
    beside: Any = None,
    advice: bool = False,
    held: Any = None,
) -> int:
    """Print a prediction and write its files; 0, the exit code.

    Args:
        outcome, json: the prediction, and whether it is printed as a document.
        explain: also print its formulas, on stderr beside a document.
        trace, pictures: files, the latter by kind.
        beside: its comparison with a profile.
        advice: also print how it could be faster.
        held: what changed from a base, printed instead of the page.
    """
    if trace is not None:
        from scaling.report.trace import trace_line

        (beside or outcome).trace(trace)
        print(trace_line(trace), file=sys.stderr)
    for kind, path in pictures.items():
        outcome.plot(kind, path)
    if json:
        parts = {"compare": beside, "against": held}
        more = {name: part.to_dict() for name, part in parts.items() if part}
        print(json_text.dumps(outcome.to_dict() | more, allow_nan=False), flush=True)
    else:
        page = outcome if held is None else held
        print(f"{page}\n\n{beside}" if beside else page, flush=True)
        for text in outcome.advice() if advice else ():
            print(f"next: {text}")
    if explain:
        print(f"\n{outcome.explain()}", file=sys.stderr if json else sys.stdout)
    return 0


def listed(entries: Iterable[Any], json: bool) -> int:
    """Print name and title of entries of the catalogue; 0, the exit code."""
    document = [{"name": entry.name, "title": entry.title} for entry in entries]
    width = max(len(row["name"]) for row in document)
    lines = (f"{row['name'].ljust(width)}  {row['title']}" for row in document)
    print(json_text.dumps(document) if json else "\n".join(lines))
    return 0


def result(call: "partial[Any]", *, json: bool = False) -> int:
    """Print what the call returns."""
    return show(call(), json)


def exit_code(call: "partial[int]") -> int:
    """Make the call, which prints by itself."""
    return call()


def answer(
    call: "partial[Answer]", *, ideal: bool = False, all: bool = False, json: bool = False
) -> int:
    """Print the answer to a question of the guide.

    Args:
        all: print every part with its formula, and all tables, not twelve lines.
    """
    from scaling.questions.answer import textbook
    from scaling.questions.short import short_page

    outcome = textbook(call()) if ideal else call()
    return show(outcome if all or json else short_page(outcome), json)


def chip(
    call: "partial[Answer]", *, ideal: bool = False, all: bool = False, json: bool = False
) -> int:
    """Show one accelerator, or list all.

    Args:
        all: print every part with its formula, and all tables, not twelve lines.
    """
    from scaling.meshes import catalog

    if call.keywords["name"] != "list":
        return answer(call, ideal=ideal, all=all, json=json)
    if asked := [
        name for name, value in call.keywords.items() if value and value not in (1, "list")
    ]:
        raise InputError(f"chip list takes no --{asked[0]}: name a chip, such as h100-sxm")
    return listed(map(catalog.accelerator, catalog.accelerator_names()), json)


def plotted(call: "partial[Any]", *, plot: Path | None = None, json: bool = False) -> int:
    """Print what the call returns, and draw it; that nothing fits is an answer, not an error.

    Args:
        plot: write a picture (.png or .svg).
    """
    from scaling.api.output_paths import check_outputs

    check_outputs({"--plot": plot})
    return show(call(), json, plot)


def planned(
    call: "partial[Any]", *, plot: Path | None = None, csv: Path | None = None, json: bool = False
) -> int:
    """Print the plans, draw them, and write them as a table.

    Args:
        plot: write a picture of the plans' step times, by term, or of the Pareto front (.png or
            .svg).
        csv: write a table of the plans, or of the Pareto front.
    """
    from scaling.api.output_paths import check_outputs, write_table

    check_outputs({"--plot": plot, "--csv": csv})
    outcome = call()
    write_table(csv, [point.row() for point in outcome.pareto] or outcome.rows())
    return show(outcome, json, plot)


def calibration(call: "partial[Any]") -> int:
    """Measure, and print how well the fits hold, or the bandwidths."""
    from scaling.profiles.calibrations import calibration_path

    profile = call()
    print(profile)
    if call.keywords.get("network"):
        file = call.keywords.get("out") or "bandwidth.json"
        print(f"next: scaling plan RUN --cluster NAME --nodes N --measured {file}")
        return 0
    print(f"calibration: {call.keywords.get('out') or calibration_path(profile.machine)}")
    print("next: scaling predict demo --cluster host, or train: predictions now use it")
    return 0


def texts(
    call: "partial[list[str]]",
    *,
    prompt: tuple[str, ...] = (),
    prompts: Path | None = None,
    json: bool = False,
) -> int:
    """Print a text after each prompt: those of the command line, then those of the file.

    Args:
        prompt: how a text begins.
        prompts: file with a prompt a line.
        json: print a document with "texts" instead.
    """
    asked = list(prompt)
    if prompts is not None:
        try:
            asked += filter(None, prompts.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--prompts {prompts} cannot be read: {error}") from None
    if not asked:
        raise InputError("nothing to continue: give --prompt, or --prompts with a line of text")
    made = call(prompts=asked)
    print(json_text.dumps({"texts": made}) if json else f"\n{BETWEEN}\n".join(made))
    return 0
