"""Chats as text, and which of it the assistant says: only that counts in the loss.

    <|im_start|>user
    What is 2 + 2?<|im_end|>
    <|im_start|>assistant
    4<|im_end|>                     counted: `4<|im_end|>`

That is the plain template (ChatML); a tokenizer with a template of its own is followed. What the
template writes for each message of the assistant is found by marks around its content: characters
for private use, which are taken out again. The token that ends the turn counts with it.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.tokenizer import EXTRA, Tokenizer

ASSISTANT = "assistant"
BEGIN, FINISH = "\ue0f0", "\ue0f1"  # private use (Unicode 16, section 23.5); in no message
END_OF_TURN = "<|im_end|>"

Message = Mapping[str, Any]  # "role" and "content", both texts


def render(tokenizer: Tokenizer, messages: Sequence[Message], answer: bool = False) -> str:
    """The text of a chat; with `answer`, up to where the assistant's next message begins.

    Raises:
        InputError: the template cannot be followed, or refuses these messages.
    """
    if tokenizer.template is not None:
        return _with_jinja(tokenizer, messages, answer)
    turn = "<|im_start|>{role}\n{content}" + END_OF_TURN + "\n"
    start = f"<|im_start|>{ASSISTANT}\n" if answer else ""
    return "".join(turn.format(**message) for message in messages) + start


def ask(tokenizer: Tokenizer, question: str) -> str:
    """A user's message, and where the assistant's answer begins."""
    return render(tokenizer, [{"role": "user", "content": question}], answer=True)


def encode_chats(
    tokenizer: Tokenizer, chats: Sequence[Sequence[Message]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids of each chat, int32 [tokens], and which of them the assistant says, bool [tokens].

    Raises:
        InputError: the template leaves out or repeats what the assistant says.
    """
    said_by = lambda m: m["role"] == ASSISTANT
    mark = lambda m: {**m, "content": f"{BEGIN}{m['content']}{FINISH}"} if said_by(m) else m
    marked = [render(tokenizer, list(map(mark, chat))) for chat in chats]
    for chat, text in zip(chats, marked, strict=True):
        said = sum(map(said_by, chat))
        if not text.count(BEGIN) == text.count(FINISH) == said:
            raise InputError(
                f"the chat template of {tokenizer.description} does not write each of the {said} "
                "messages of the assistant once: its tokens cannot be told from the others'"
            )
    encoded = tokenizer.encode([re.sub(f"[{BEGIN}{FINISH}]", "", text) for text in marked])
    pairs = zip(encoded, marked, strict=True)
    return [(ids, _counted(tokenizer, ids, starts, text)) for (ids, starts), text in pairs]


def _counted(tokenizer: Tokenizer, ids: np.ndarray, starts: np.ndarray, marked: str) -> np.ndarray:
    """True for tokens between two marks, and for those that end the turn behind them."""
    places = [m.start() - n for n, m in enumerate(re.finditer(f"[{BEGIN}{FINISH}]", marked))]
    text = re.sub(f"[{BEGIN}{FINISH}]", "", marked)
    counted = np.zeros(len(ids), bool)
    for begin, finish in zip(places[::2], places[1::2], strict=True):
        if text.startswith(END_OF_TURN, finish):
            finish += len(END_OF_TURN)
        first, last = np.searchsorted(starts, [begin, finish])
        if last < len(ids) and int(ids[last]) in tokenizer.special:
            last += 1
        counted[first:last] = True
    return counted


def _with_jinja(tokenizer: Tokenizer, messages: Sequence[Message], answer: bool) -> str:
    """The text by the tokenizer's template, given what Hugging Face's transformers gives it."""
    assert tokenizer.template is not None
    template = _compiled(tokenizer.template)
    variables = {"messages": messages, "add_generation_prompt": answer, "tools": None}
    try:
        return template.render({**tokenizer.names, **variables})
    except Exception as error:  # of a template in its sandbox, whatever it computes
        raise InputError(f"the chat template of {tokenizer.description}: {error}") from None


@lru_cache
def _compiled(source: str) -> Any:
    try:
        from jinja2.exceptions import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InputError(f"the tokenizer's chat template needs `jinja2`; {EXTRA}") from None

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except (TemplateError, RecursionError, ValueError) as error:
        raise InputError(f"the tokenizer's chat template: {error}") from None
