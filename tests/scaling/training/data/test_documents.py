"""Records are texts or chats; whatever is neither is named by its place."""

import json
import sys

import pytest

from scaling.meshes.errors import InputError
from scaling.training.data.documents import documents

CHAT = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]


def read_records(path):
    found = [document for document, _ in documents(path, records=True, alone=True)]
    return [text.decode() if isinstance(text, bytes) else text for text in found]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("key, values", [("text", ["one", "two é"]), ("messages", [CHAT, CHAT])])
def test_jsonl_and_parquet_give_the_same_documents(tmp_path, key, values):
    records = [{key: value, "other": 1} for value in values]
    path = write_lines(tmp_path / "a.jsonl", records)
    path.write_text("\n" + path.read_text() + "\n")  # blank lines mean nothing
    assert read_records(path) == values
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    assert read_records(tmp_path / "a.parquet") == values


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"text": "a"}, {"prompt": "b"}], "record 2: expected a table with 'text' or 'messages'"),
        ([["a"]], "record 1: expected a table"),
        ([{"text": "a", "messages": CHAT}], "record 1: expected a table"),
        ([{"text": 3}], "record 1: 'text' is 3, not a text"),
        ([{"text": "a"}, {"messages": CHAT}], "record 2 has 'messages', those before it 'text'"),
        ([{"messages": []}], r"record 1: 'messages' is a list of messages, got \[\]"),
        ([{"messages": [{"role": "user"}]}], "the texts 'role' and 'content'"),
        ([{"messages": CHAT[:1]}], "no message of the role 'assistant'.* roles: user"),
    ],
)
def test_a_record_that_is_no_document_says_why_with_its_number(tmp_path, records, message):
    with pytest.raises(InputError, match=message):
        read_records(write_lines(tmp_path / "a.jsonl", records))


def test_files_that_cannot_be_read_say_why(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(InputError, match="line 2 is not JSON"):
        read_records(path)
    (tmp_path / "a.parquet").write_bytes(b"none")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"needs `pyarrow`; .*pip install 'jax-scaling\[data\]'"):
        read_records(tmp_path / "a.parquet")


def test_a_parquet_file_without_documents_says_why(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="has the columns body; expected 'text' or 'messages'"):
        read_records(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"none at all")
    with pytest.raises(InputError, match="is no Parquet file"):
        read_records(tmp_path / "a.parquet")
