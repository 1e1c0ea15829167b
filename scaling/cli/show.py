"""What commands print: each function is given the call of the API, ready to be made."""

import json as json_text
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.meshes.errors import InputError

if TYPE_CHECKING:
    from scaling.profiles.profile import Profile
    from scaling.questions.answer import Answer

BETWEEN = "---"  # line between two texts


def result(call: "partial[Any]", *, json: bool = False) -> int:
    """Print what the call returns.

    Args:
        json: print one JSON document.
    """
    found = call()
    print(json_text.dumps(found.to_dict(), allow_nan=False) if json else found)
    return 0


def answer(call: "partial[Answer]", *, ideal: bool = False, json: bool = False) -> int:
    """Print the answer to a question of the guide.

    Args:
        ideal: give the textbook's figure: no latency, every link, unit and memory at its full rate.
        json: print one JSON document.
    """
    from scaling.questions.answer import textbook

    found = textbook(call()) if ideal else call()
    print(json_text.dumps(found.to_dict()) if json else found)
    return 0


def chip(call: "partial[Answer]", *, ideal: bool = False, json: bool = False) -> int:
    """Show one accelerator, or list all.

    Args:
        ideal: give the textbook's figure.
        json: print one JSON document.
    """
    from scaling.meshes import catalog

    if call.keywords["name"] != "list":
        return answer(call, ideal=ideal, json=json)
    chips = [catalog.accelerator(name) for name in catalog.accelerator_names()]
    width = max(len(chip.name) for chip in chips)
    document = [{"name": chip.name, "title": chip.title} for chip in chips]
    lines = (f"{chip.name.ljust(width)}  {chip.title}" for chip in chips)
    print(json_text.dumps(document) if json else "\n".join(lines))
    return 0


def plotted(call: "partial[Any]", *, plot: Path | None = None, json: bool = False) -> int:
    """Print what the call returns, and draw it; that nothing fits is an answer, not an error.

    Args:
        plot: write a picture (.png or .svg).
        json: print one JSON document.
    """
    from scaling.api.output_paths import check_outputs
    from scaling.pictures.files import check_picture

    check_outputs({"--plot": plot})
    check_picture("--plot", plot)
    found = call()
    if plot is not None:
        found.plot(plot)
    print(json_text.dumps(found.to_dict(), allow_nan=False) if json else found)
    return 0


def calibration(call: "partial[Profile]") -> int:
    """Measure, and print how well the fits hold."""
    from scaling.profiles.calibrations import calibration_path

    profile = call()
    print(profile)
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
    found = call(prompts=asked)
    print(json_text.dumps({"texts": found}) if json else f"\n{BETWEEN}\n".join(found))
    return 0
