"""What a run names as its data, packed and mixed."""

import json

import numpy as np
import pytest

from experiments.chat.make import HERE, chats
from scaling.meshes.errors import InputError
from scaling.run import Train
from scaling.training.data.packing import PackedRows
from scaling.training.data.sources import open_data, open_source
from scaling.training.data.token_file import total
from scaling.training.data.tokenizer import BYTES
from scaling.training.data.tokens import Mixture, fingerprint, parts_of

CHATS = str(HERE / "chats.jsonl")


def write_texts(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def test_records_of_text_are_one_stream_or_packed_with_an_end_each(tmp_path):
    path = write_texts(tmp_path / "a.jsonl", ["one é", "two", "three", "four"])
    stream = open_source(path, 256, 4)
    assert (
        BYTES.decode(np.concatenate([stream.train.tokens, stream.held_out.tokens]))
        == "one é\0two\0three\0four"
    )
    packed = open_source(path, 256, 8, packed=True)
    texts = [BYTES.decode(packed.train[i][1]) for i in range(len(packed.train))]
    assert sorted(texts) == ["hree\0wo\0", "ne é\0\0\0"]  # targets: not the first of a document
    assert BYTES.decode(packed.held_out[0][1]) == "our\0\0\0\0\0"
    assert "4 documents" in packed.description and "100% of which count" in packed.description


def test_a_tokenizer_makes_the_stream_of_text():
    pytest.importorskip("tokenizers")
    stream = open_source(str(HERE / "make.py"), 304, 8, str(HERE / "tokenizer"))
    ids = np.concatenate([stream.train.tokens, stream.held_out.tokens])
    assert ids[-1] == 0 and "tokens of" in stream.description  # the end of the only document


def test_the_last_twentieth_of_the_chats_is_held_out():
    source = open_source(CHATS, 256, 256, packed=True)
    assert isinstance(source.train, PackedRows)
    assert len(source.train.documents) == 285 and len(source.held_out.documents) == 15
    said = sum(len(m["content"]) + 10 for c in chats() for m in c["messages"][1::2])
    counts = [total(part.documents.counted) for part in (source.train, source.held_out)]
    assert sum(counts) == said  # each answer with "<|im_end|>"
    weights = sum(source.train[i][3].sum() for i in range(len(source.train)))
    assert weights == counts[0]


@pytest.mark.parametrize(
    ("data", "documents", "message"),
    [
        (CHATS, "joined", "holds 300 chats, .* set train.documents to 'packed'"),
        ({CHATS: 1, "none.jsonl": 2}, "packed", "data 'none.jsonl': no such file"),
        ({CHATS: 0}, "packed", "each source needs a share above 0"),
        ({}, "joined", "each source needs a share above 0"),
        ("one.txt", "packed", "has 1 document; packed ones need 2"),
        ("ids.bin", "packed", "does not say where documents begin"),
        ("empty.jsonl", "packed", "no record in"),
    ],
)
def test_data_that_cannot_be_used_says_why(tmp_path, monkeypatch, data, documents, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("one document")
    (tmp_path / "empty.jsonl").write_text("")
    np.arange(99, dtype=np.uint16).tofile("ids.bin")
    with pytest.raises(InputError, match=message):
        open_data(Train(data=data, documents=documents), 256, 64)


def test_a_mixture_knows_its_sources_and_shares(tmp_path):
    path = write_texts(tmp_path / "a.jsonl", ["some text"] * 40)
    train = Train(data={CHATS: 3.0, path: 1.0}, documents="packed")
    source = open_data(train, 256, 256)
    assert isinstance(source, Mixture)
    assert (
        source.description.startswith("75.0% 300 documents") and "; 25.0% 40" in source.description
    )
    assert [(name, share) for name, _, share in parts_of(source)] == [(CHATS, 0.75), (path, 0.25)]
    again = open_data(train, 256, 256)
    assert fingerprint(source).tolist() == fingerprint(again).tolist()
    path = write_texts(tmp_path / "a.jsonl", ["some texT"] * 40)
    assert fingerprint(source).tolist() != fingerprint(open_data(train, 256, 256)).tolist()


def test_a_second_opening_finds_the_ids_of_the_first(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    tokenizer, path = str(HERE / "tokenizer"), tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in chats(40)))

    def opened():
        return fingerprint(open_source(str(path), 304, 64, tokenizer, packed=True)).tolist()

    first = opened()
    with monkeypatch.context() as patched:
        patched.setattr("scaling.training.data.shards.encode_chats", None)
        assert opened() == first
    (shard,) = (path for path in (tmp_path / "cache" / "tokens").iterdir() if path.is_dir())
    names = {file.name for file in shard.iterdir()}
    assert names >= {"counted.bool", "ids.uint16", "lengths.int64", "sums.json"}
    for file in shard.iterdir():
        whole = file.read_bytes()
        for damaged in (whole[:-4], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]):
            file.write_bytes(damaged)
            with pytest.warns(UserWarning, match="is damaged and made again"):
                assert opened() == first
            assert file.read_bytes() == whole
    path.write_text(path.read_text().replace("?", "!"))
    assert opened() != first
