"""Multiple choice: the right answers, by likelihood and by likelihood per character."""

import json

import numpy as np
import pytest

from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.training.data.tokenizer import BYTES
from scaling.training.evaluation.choices import (
    Question,
    accuracy,
    encoded_pair,
    log_likelihoods,
    open_questions,
)

QUESTIONS = [
    Question("alpha", ("beta", "de", "return", "g"), 3),
    Question("a", ("naïve", "b"), 0),
    Question("def", ("gam", "gamma x", "\u2603"), 1),
]


def written(folder, questions):
    """A file of questions."""
    path = folder / "q.jsonl"
    records = [{"question": q.prompt, "choices": q.choices, "answer": q.answer} for q in questions]
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.fixture(scope="module")
def log_likelihood(log_softmax):
    """log p of some bytes behind others, token by token."""

    def of(prompt, rest):
        log_p = log_softmax([*prompt, *rest[:-1]])[len(prompt) - 1 :]
        return log_p[np.arange(len(rest)), list(rest)].sum()

    return of


@pytest.mark.parametrize(
    ("mesh", "batch"), [({}, 1), pytest.param({"data": 2, "tensor": 2}, 6, marks=pytest.mark.slow)]
)
def test_the_likeliest_choice_is_the_answer(load, log_likelihood, tmp_path, mesh, batch):
    model, run = load(MeshShape(**mesh), batch)
    right = np.zeros((2, len(QUESTIONS)))
    for number, question in enumerate(QUESTIONS):
        prompt, choices = question.prompt.encode(), question.choices
        values = [log_likelihood(prompt, f" {choice}".encode()) for choice in choices]
        lengths = [len(choice) for choice in choices]
        best = np.argmax(values), np.argmax(np.divide(values, lengths))
        right[:, number] = [answer == question.answer for answer in best]
    found = accuracy(model, run, open_questions(written(tmp_path, QUESTIONS), run, BYTES))
    assert (found.acc, found.acc_norm) == tuple(right.mean(axis=1))
    assert found.acc != found.acc_norm and found.questions == 3  # else the test would be none


def test_log_likelihoods_are_those_of_each_pair_alone(load, log_likelihood, log_softmax):
    """In their order, and among them one whose tokens are the likeliest."""
    model, run = load(batch=1)
    likeliest = [100]
    for _ in range(3):
        likeliest.append(int(log_softmax(likeliest)[-1].argmax()))
    pairs = [(b"alpha ", b"beta"), (b"d", b"ef retu"), (b"d", bytes(likeliest[1:])), (b"d", b"e")]
    found = log_likelihoods(model, run, [(list(a), list(b)) for a, b in pairs])
    for pair, score in zip(pairs, found, strict=True):
        assert score == (
            pytest.approx(log_likelihood(*pair), rel=1e-5),
            pair is pairs[2],
            len(pair[1]),
        )


def test_a_user_may_ask_the_questions(load, tmp_path):
    """In the words of a chat; nothing stands between its beginning and a choice."""
    _, run = load(seq_len=64)
    asked = open_questions(written(tmp_path, QUESTIONS[:1]), run, BYTES, chat=True)
    context, rest = asked.pairs[0]
    text = "<|im_start|>user\nalpha<|im_end|>\n<|im_start|>assistant\nbeta"
    assert bytes(context + rest).decode() == text and bytes(rest) == b"\nbeta"


def test_spaces_behind_a_question_belong_to_its_choice():
    assert encoded_pair(BYTES, "a \n", "b") == ([97], [32, 10, 98])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "expected a table"),
        ('{"choices": ["a", "b"], "answer": 0}', "expected a text as 'question' or 'prompt'"),
        ('{"prompt": " ", "choices": ["a", "b"], "answer": 0}', "expected a text as 'question'"),
        ('{"prompt": "p", "choices": ["a"], "answer": 0}', "must be 2 texts at least"),
        ('{"prompt": "p", "choices": ["a", ""], "answer": 0}', "must be 2 texts at least"),
        ('{"prompt": "p", "choices": ["a", "b"], "answer": 2}', "one of 2 choices, 0 to 1"),
        ('{"prompt": "p", "choices": ["a", "b"], "answer": true}', "one of 2 choices"),
        ('{"prompt": "p", "choices": ["a", "b"]}', "'answer' is None"),
    ],
)
def test_a_line_that_is_no_question_is_bad_input(load, tmp_path, line, message):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "p", "choices": ["a", "b"], "answer": 1}\n' + line)
    with pytest.raises(InputError, match=message):
        open_questions(path, load()[1], BYTES)


def test_no_questions_and_too_long_ones_are_bad_input(load, tmp_path):
    _, run = load()
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="has no question"):
        open_questions(tmp_path / "empty.jsonl", run, BYTES)
    with pytest.raises(InputError, match="cannot read"):
        open_questions(tmp_path / "missing.jsonl", run, BYTES)
    path = written(tmp_path, [Question("p" * 12, ("a", "bbbbb"), 0)])
    with pytest.raises(InputError, match=r"question 1 of .*: 'bbbbb' adds 6 tokens to 12; .* 16"):
        open_questions(path, run, BYTES)


def test_the_command_answers_questions(folder, tmp_path, capsys):
    path = written(tmp_path, QUESTIONS)
    words = ["eval", str(folder), "--mesh", "data=1", "--batch", "1", "--choices", str(path)]
    assert cli.main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["choices"]
    assert document["data"] == [] and found["questions"] == 3
    assert list(found) == ["data", "questions", "acc", "acc_norm"]
    assert cli.main(words) == 0
    assert f"{found['acc']:.1%}" in capsys.readouterr().out
    path.write_text("{}")
    assert cli.main(words) == 2
    assert "line 1" in capsys.readouterr().err
