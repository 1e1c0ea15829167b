"""Multiple choice by likelihood, as lm-evaluation-harness defines it (0.4.13, `api/task.py`).

    {"question": "The sky is", "choices": ["green", "blue"], "answer": 1}

acc         share of questions whose answer has the largest log p(" " + choice | question)
acc_norm    the same of log p over the number of characters of the choice

The first of equals is taken. Spaces at the end of a question are counted to the choice.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.reading import parse_json, read_text
from scaling.models.transformer import Transformer
from scaling.run import Run
from scaling.training.data.chat import ask
from scaling.training.data.tokenizer import Tokenizer
from scaling.training.evaluation.scores import Score, row_of, scores

PROMPTS = ("question", "prompt")  # keys of the text before the choices
DELIMITER = " "  # between question and choice: lm-evaluation-harness's default


@dataclass(frozen=True)
class Question:
    """A question of several choices."""

    prompt: str
    choices: tuple[str, ...]  # 2 at least
    answer: int  # number of the right one, from 0


@dataclass(frozen=True)
class Accuracy:
    """Shares of the questions of a file that are answered."""

    data: str
    questions: int
    acc: float
    acc_norm: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a file."""

    data: str
    questions: tuple[Question, ...]
    pairs: tuple[tuple[list[int], list[int]], ...]  # ids of each question and choice, in order


def open_questions(path: Path, run: Run, tokenizer: Tokenizer, chat: bool = False) -> QuestionSet:
    """The questions of a `.jsonl` file; with `chat` a user asks them, and choices are answers.

    Raises:
        InputError: none, a line that is none, with its number, or a question and a choice that are
            longer than the model sees.
    """
    questions, pairs = read_questions(path), []
    for number, question in enumerate(questions, 1):
        prompt, delimiter = question.prompt, DELIMITER
        if chat:
            prompt, delimiter = ask(tokenizer, prompt), ""
        for choice in question.choices:
            context, rest = encoded_pair(tokenizer, prompt, delimiter + choice)
            if not rest or len(context) + len(rest) - 1 > run.batch.seq_len:
                raise InputError(
                    f"question {number} of {path}: {choice[:40]!r} adds {len(rest):,} tokens to "
                    f"{len(context):,}; the model needs 1 at least and sees {run.batch.seq_len:,}"
                )
            pairs.append((context, rest))
    return QuestionSet(str(path), tuple(questions), tuple(pairs))


def read_questions(path: Path) -> list[Question]:
    """The questions of a file; InputError as `open_questions`."""
    lines = read_text(path).splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InputError(f"--choices {path} has no question")
    return [_question(line, f"--choices {path}, line {number:,}") for number, line in numbered]


def accuracy(model: Transformer, run: Run, asked: QuestionSet) -> Accuracy:
    """The accuracy of a model on questions."""
    scored = iter(log_likelihoods(model, run, asked.pairs))
    right, right_norm = [], []
    for question in asked.questions:
        values = np.array([next(scored).log_likelihood for _ in question.choices])
        right.append(int(values.argmax()) == question.answer)
        per_character = values / [len(choice) for choice in question.choices]
        right_norm.append(int(per_character.argmax()) == question.answer)
    return Accuracy(asked.data, len(right), float(np.mean(right)), float(np.mean(right_norm)))


def encoded_pair(tokenizer: Tokenizer, context: str, rest: str) -> tuple[list[int], list[int]]:
    """Ids of the context, and those that the text of both has behind them.

    Spaces at the end of the context belong to what follows, as tokenizers join them to words.
    """
    text = context + rest
    before, both = (ids.tolist() for ids, _ in tokenizer.encode([context.rstrip(), text]))
    return before, both[len(before) :]


def log_likelihoods(
    model: Transformer, run: Run, pairs: Sequence[tuple[list[int], list[int]]]
) -> list[Score]:
    """The score of each second part behind its first, in order; the longest are computed first."""
    order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
    rows = (row_of([*pairs[i][0], *pairs[i][1]], len(pairs[i][0])) for i in order)
    by_pair = dict(zip(order, scores(model, run, rows), strict=True))
    return [by_pair[i] for i in range(len(pairs))]


def _question(line: str, where: str) -> Question:
    record = parse_json(line, where)
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected a table, got {line:.80}")
    prompts = [record[key] for key in PROMPTS if key in record]
    choices, answer = record.get("choices"), record.get("answer")
    is_text = lambda value: isinstance(value, str) and bool(value.strip())
    if len(prompts) != 1 or not is_text(prompts[0]):
        raise InputError(f"{where}: expected a text as 'question' or 'prompt'")
    if not isinstance(choices, list) or len(choices) < 2 or not all(map(is_text, choices)):
        raise InputError(f"{where}: 'choices' must be 2 texts at least, got {choices!r:.80}")
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise InputError(
            f"{where}: 'answer' is {answer!r}; it is the number of one of {len(choices)} choices, "
            f"0 to {len(choices) - 1}"
        )
    return Question(prompts[0], tuple(choices), answer)
