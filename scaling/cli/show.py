"""What commands print: each function is given the call of the API, ready to be made."""

import json as json_text
from functools import partial
from typing import Any

from scaling.meshes import catalog
from scaling.questions.answer import Answer, textbook


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
    found = textbook(call()) if ideal else call()
    print(json_text.dumps(found.to_dict()) if json else found)
    return 0


def chip(call: "partial[Answer]", *, ideal: bool = False, json: bool = False) -> int:
    """Show one accelerator, or list all.

    Args:
        ideal: give the textbook's figure.
        json: print one JSON document.
    """
    if call.keywords["name"] != "list":
        return answer(call, ideal=ideal, json=json)
    chips = [catalog.accelerator(name) for name in catalog.accelerator_names()]
    width = max(len(chip.name) for chip in chips)
    document = [{"name": chip.name, "title": chip.title} for chip in chips]
    lines = (f"{chip.name.ljust(width)}  {chip.title}" for chip in chips)
    print(json_text.dumps(document) if json else "\n".join(lines))
    return 0
