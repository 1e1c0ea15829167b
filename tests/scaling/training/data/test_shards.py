"""A corpus is tokenized once, in pieces, by one process; half a shard is never used."""

import json
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.training.data import cache, documents, shards
from scaling.training.data.cache import load_or_make
from scaling.training.data.packing import PackedRows
from scaling.training.data.shards import tokenized
from scaling.training.data.sources import open_source
from scaling.training.data.tokenizer import BYTES

CHAT = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def text_of(path):
    return BYTES.decode(np.asarray(tokenized(path, BYTES)[0].ids))


def test_a_folder_of_records_is_read_beside_its_readme_and_in_any_number_of_shards(
    tmp_path, monkeypatch
):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines(folder / "a.jsonl", [{"text": f"{n} one"} for n in range(9)])
    table = pyarrow.table({"text": [f"{n} two é" for n in range(9)], "id": range(9)})
    parquet.write_table(table, folder / "b.parquet", row_group_size=2)
    lines(folder / "c.jsonl", [{"text": "three"}])
    (folder / "README.md").write_text("# no")
    expected = [f"{n} one\0" for n in range(9)] + [f"{n} two é\0" for n in range(9)] + ["three\0"]
    assert text_of(folder) == "".join(expected)
    monkeypatch.setattr(shards, "SHARD", 100)
    found, _ = tokenized(folder, BYTES)
    assert len(found.ids._files) == 3 and BYTES.decode(np.asarray(found.ids)) == "".join(expected)
    assert np.asarray(found.lengths).tolist() == [len(text.encode()) for text in expected]
    cut = np.asarray(found.ids[60:80])  # of two shards
    assert cut.tolist() == np.asarray(found.ids).tolist()[60:80]
    lines(folder / "c.jsonl", [{"messages": CHAT}])
    with pytest.raises(InputError, match="has files of 'text' and of 'messages'"):
        tokenized(folder, BYTES)


def test_what_save_to_disk_wrote_is_read_without_its_library(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    for split, texts in {"train": ["a", "b", "c"], "test": ["d"]}.items():
        (tmp_path / "set" / split).mkdir(parents=True)
        names = [f"data-{n:05d}-of-{len(texts):05d}.arrow" for n in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            table = pyarrow.table({"text": [text], "other": [1]})
            with pyarrow.ipc.new_stream(tmp_path / "set" / split / name, table.schema) as writer:
                writer.write_table(table)
        state = {"_data_files": [{"filename": name} for name in names], "_split": split}
        (tmp_path / "set" / split / "state.json").write_text(json.dumps(state))
        (tmp_path / "set" / split / "dataset_info.json").write_text("{}")
    assert text_of(tmp_path / "set" / "test") == "d\0"
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert text_of(tmp_path / "set") == "a\0b\0c\0"
    (tmp_path / "set" / "train").rename(tmp_path / "set" / "validation")
    with pytest.raises(InputError, match="without a split 'train'; it has test, validation: name"):
        tokenized(tmp_path / "set", BYTES)


def test_a_damaged_table_is_named_with_its_row_group(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [f"{n}" * 100 for n in range(30)]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, row_group_size=10, compression="snappy")
    whole = path.read_bytes()
    place = parquet.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    path.write_bytes(whole[:place] + bytes(50) + whole[place + 50 :])
    with pytest.raises(InputError, match="a.parquet' is damaged in row group 2"):
        tokenized(path, BYTES)
    path.write_bytes(whole[:-20])
    with pytest.raises(InputError, match="a.parquet' is no Parquet file"):
        tokenized(path, BYTES)
    path = tmp_path / "a.arrow"
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(InputError, match="a.arrow' is damaged in row group 2"):
        tokenized(path, BYTES)


def test_memory_holds_a_group_of_documents_whatever_the_size_of_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BYTES_AT_ONCE", 1 << 15)
    monkeypatch.setattr(documents, "PART", 1 << 15)
    size = 2_000_000
    lines(tmp_path / "a.jsonl", [{"text": "word " * 400}] * (size // 2000))
    (tmp_path / "a.txt").write_text(("word " * 399 + "end.\n") * (size // 2000))
    for path in (tmp_path / "a.jsonl", tmp_path / "a.txt"):
        tracemalloc.start()
        found, _ = tokenized(path, BYTES)
        rows = open_source(str(path), 256, 256).train
        assert len(rows[len(rows) - 1][0]) == 256
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(found.ids) > 0.99 * size and peak < 0.4 * size, (path, peak)


def test_a_long_text_in_parts_is_the_same_document(tmp_path, monkeypatch):
    text = "".join(f"line {n} é\n" for n in range(100))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(documents, "PART", 64)
    found, _ = tokenized(tmp_path / "a.txt", BYTES)
    assert BYTES.decode(np.asarray(found.ids)) == text + "\0" and len(found) == 1
    (tmp_path / "a.txt").write_bytes(text.encode() + b"\0")
    with pytest.raises(InputError, match="is a binary file"):
        tokenized(tmp_path / "a.txt", BYTES)


def test_a_shard_that_was_not_finished_is_never_used(own_cache):
    def dies():
        yield {"ids": np.arange(5)}
        raise MemoryError

    with pytest.raises(MemoryError):
        load_or_make("key", dies)
    (own_cache / ".key.of_a_killed_process").mkdir()
    found = load_or_make("key", lambda: [{"ids": np.arange(3)}, {"ids": np.arange(2)}])
    assert np.asarray(found["ids"]).tolist() == [0, 1, 2, 0, 1]
    assert sorted(path.name for path in own_cache.iterdir()) == ["key", "key.lock"]


def test_one_makes_what_others_wait_for(own_cache):
    made, both = [], threading.Barrier(2)

    def make():
        made.append(threading.get_ident())
        yield {"ids": np.arange(3)}

    def load():
        both.wait()
        load_or_make("key", make)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and not list(own_cache.glob(".key*"))


def test_a_disk_without_room_says_where(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_json", full)
    lines(tmp_path / "a.jsonl", [{"text": "a"}])
    with pytest.raises(InputError, match="cannot be stored in .*: No space left.*SCALING_CACHE"):
        tokenized(Path(tmp_path / "a.jsonl"), BYTES)


def test_packed_rows_of_a_folder_are_those_of_one_file(tmp_path):
    records = [{"text": "word " * n} for n in range(2, 40)]
    lines(tmp_path / "all.jsonl", records)
    (tmp_path / "folder").mkdir()
    lines(tmp_path / "folder" / "a.jsonl", records[:20])
    lines(tmp_path / "folder" / "b.jsonl", records[20:])
    one, two = (
        open_source(str(tmp_path / n), 256, 64, packed=True) for n in ("all.jsonl", "folder")
    )
    assert isinstance(one.train, PackedRows) and one.identity == two.identity
    for index in range(len(one.train)):
        assert np.array_equal(one.train[index], two.train[index])
