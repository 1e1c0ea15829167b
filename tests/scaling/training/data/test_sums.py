"""Whoever changes the data of a run is told which file, before the run goes on with it."""

import re

import numpy as np
import pytest

from scaling.meshes.durable import write_json
from scaling.meshes.errors import InputError
from scaling.run import Train
from scaling.training.data import sums as module
from scaling.training.data.sums import DATA, changed_files, data_sums, named


@pytest.fixture
def data(tmp_path):
    """Tokens, a folder of texts, records and a tokenizer."""
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "a.bin")
    (tmp_path / "texts" / "sub").mkdir(parents=True)
    for name in ("one.txt", "sub/two.txt"):
        (tmp_path / "texts" / name).write_text("some words " * 50)
    (tmp_path / "chats.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


NAMES = ("a.bin", "texts", "chats.jsonl")


def sums_of(folder, names=NAMES):
    shares = {str(folder / name): 1.0 for name in names}
    return data_sums(Train(data=shares, tokenizer=str(folder / "tokenizer.json")))


def change_a_byte(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


CHANGES = {
    "a.bin has other content (2,000 bytes, the same length)": lambda f: change_a_byte(f / "a.bin"),
    "texts/sub/two.txt has other content": lambda f: change_a_byte(f / "texts" / "sub" / "two.txt"),
    "texts/new.txt is new": lambda f: (f / "texts" / "new.txt").write_text("x"),
    "texts/one.txt is gone": lambda f: (f / "texts" / "one.txt").unlink(),
    "chats.jsonl has other content (15 bytes, 14 bytes before)": lambda f: (
        f / "chats.jsonl"
    ).write_text('{"text": "ab"}\n'),
    "tokenizer/tokenizer.json has other content": lambda f: (f / "tokenizer.json").write_text("[]"),
    "tokenizer/chat_template.jinja is new": lambda f: (f / "chat_template.jinja").write_text("x"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_the_file_that_changed_is_named_with_how(data, tmp_path_factory, said):
    run = tmp_path_factory.mktemp("run")
    assert changed_files(run, sums_of(data)) == []  # a run of before, which kept no sums
    write_json(run / DATA, sums_of(data))
    (data / "texts" / ".hidden").write_text("x")  # which is not read
    assert changed_files(run, sums_of(data)) == []
    CHANGES[said](data)
    (line,) = changed_files(run, sums_of(data))
    assert said in line


def test_a_source_that_is_no_longer_named_is_gone_by_its_own_name(data, tmp_path):
    one, other = (data_sums(Train(data=str(data / name))) for name in ("a.bin", "texts"))
    write_json(tmp_path / DATA, one)
    assert f"{data / 'a.bin'} is gone" in changed_files(tmp_path, other)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("texts", "a.bin", "chats.jsonl"),
            "in another order, .*: {}/texts stands where {}/a.bin stood",
        ),
        (("a.bin", "chats.jsonl"), "train.data no longer names {}/texts"),
        ((*NAMES, "tokenizer.json"), "train.data also names {}/tokenizer.json"),
    ],
)
def test_a_mixture_of_other_sources_is_said_to_be_one(data, tmp_path_factory, names, said):
    run = tmp_path_factory.mktemp("run")
    write_json(run / DATA, sums_of(data))
    (line,) = changed_files(run, sums_of(data, names))
    assert re.search(said.replace("{}", str(data)), line)


def test_a_tokenizer_that_was_written_anew_is_the_same(data, tmp_path):
    config = data / "tokenizer_config.json"
    config.write_text('{"eos_token": "</s>", "bos_token": "<s>"}')
    write_json(tmp_path / DATA, sums_of(data))
    config.write_text('{\n "bos_token": "<s>",\n "eos_token": "</s>"\n}\n')
    assert changed_files(tmp_path, sums_of(data)) == []
    config.write_text('{"eos_token": "<s>", "bos_token": "<s>"}')
    (line,) = changed_files(tmp_path, sums_of(data))
    assert "tokenizer_config.json has other content" in line


def test_of_a_large_file_blocks_are_read_that_reach_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    monkeypatch.setattr(module, "BLOCKS", 4)
    contents = bytearray(1000)

    def sum_with(place):
        contents[place] ^= 1
        (tmp_path / "big.bin").write_bytes(contents)
        contents[place] ^= 1
        return data_sums(Train(data=str(tmp_path / "big.bin")))["sources"][0]["files"][""][1]

    between, *seen = (sum_with(place) for place in (20, 0, 339, 665, 999))
    assert len({between, *seen}) == 5 and between == module.zlib.crc32(bytes(40))


def test_of_many_files_less_is_read_and_those_that_did_not_change_are_not_named(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "BLOCK", 10)
    monkeypatch.setattr(module, "ALL_BLOCKS", 8)
    (tmp_path / "texts").mkdir()
    train = Train(data=str(tmp_path / "texts"))
    for number in range(2):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number}" * 1000)
    write_json(tmp_path / DATA, data_sums(train))  # four blocks of each
    (tmp_path / "texts" / "2.txt").write_text("2" * 1000)  # two blocks of each
    assert changed_files(tmp_path, data_sums(train)) == [f"{tmp_path / 'texts' / '2.txt'} is new"]


def test_only_some_of_many_files_are_named():
    assert named(["a", "b"]) == "a; b"
    assert named(list("abcdefgh")) == "a; b; c; d; e; and 3 more"


@pytest.mark.parametrize("text", ["{", "[]", '{"sources": 3, "tokenizer": {}}', '{"sources": []}'])
def test_a_damaged_record_is_one_message(data, tmp_path, text):
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(InputError, match="data.json is damaged.*delete it to go on"):
        changed_files(tmp_path, sums_of(data))


def test_data_that_go_while_they_are_summed_are_bad_input(data, monkeypatch):
    monkeypatch.setattr(module, "files_of", lambda path: {"": data / "gone.bin"})
    with pytest.raises(InputError, match="gone.bin cannot be read: No such file"):
        sums_of(data)
