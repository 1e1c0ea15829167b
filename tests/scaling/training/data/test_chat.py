"""Of a chat what the assistant says counts, and the token that ends its turn; nothing else."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.chat.make import HERE, TEMPLATE, chats
from scaling.meshes.errors import InputError
from scaling.training.data.chat import END_OF_TURN, encode_chats, render
from scaling.training.data.tokenizer import BYTES, open_tokenizer

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2"},
    {"role": "assistant", "content": "Yes."},
]


def counted(tokenizer, chat):
    """The texts of the runs of tokens that count."""
    ((ids, counts),) = encode_chats(tokenizer, [chat])
    return [tokenizer.decode([i]) for i, c in zip(ids.tolist(), counts.tolist(), strict=True) if c]


def test_the_plain_template_marks_turns():
    assert render(BYTES, CHAT[1:3]) == (
        "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
    )
    assert render(BYTES, CHAT[1:2], answer=True).endswith("\n<|im_start|>assistant\n")


def test_answers_and_their_ends_count():
    assert "".join(counted(BYTES, CHAT)) == f"2{END_OF_TURN}Yes.{END_OF_TURN}"


@given(st.lists(st.tuples(st.text("aé\n<", max_size=4), st.text("bß {}", max_size=4)), min_size=1))
def test_any_answers_count_whatever_they_hold(pairs):
    chat = []
    for question, answer in pairs:
        chat += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    ((ids, counts),) = encode_chats(BYTES, [chat])
    assert BYTES.decode(ids[counts]) == "".join(answer + END_OF_TURN for _, answer in pairs)
    assert BYTES.decode(ids) == render(BYTES, chat)


def test_a_tokenizer_s_own_template_gives_the_same_text_and_counts_special_ends():
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    tokenizer = open_tokenizer(str(HERE / "tokenizer"), 304)
    assert tokenizer.template == TEMPLATE
    for answer in (False, True):
        assert render(tokenizer, CHAT, answer) == render(BYTES, CHAT, answer)
    ((ids, counts),) = encode_chats(tokenizer, [CHAT])
    end = tokenizer.encode([END_OF_TURN])[0][0].tolist()
    said = [tokenizer.encode([text])[0][0].tolist() for text in ("2", "Yes.")]
    assert ids[counts].tolist() == said[0] + end + said[1] + end


def test_a_template_that_cannot_be_followed_is_refused():
    pytest.importorskip("jinja2")
    with_template = lambda text: dataclasses.replace(BYTES, template=text)
    for template, message in {
        "{{ messages[0].content }}": "does not write each of the 2 messages of the assistant once",
        "{{ raise_exception('no system role') }}": "no system role",
        "{% for %}": "chat template: ",
    }.items():
        with pytest.raises(InputError, match=message):
            encode_chats(with_template(template), [CHAT])


def test_the_example_is_what_its_script_writes():
    lines = (HERE / "chats.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == chats()
