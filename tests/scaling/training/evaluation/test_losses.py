"""The mean loss per token of files of every kind, the same on any mesh and in any batch."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import scaling as sc
from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.training.data.chat import encode_chats
from scaling.training.data.sources import open_data
from scaling.training.data.tokenizer import BYTES
from scaling.training.evaluation.losses import Loss, held_out, mean_loss, open_file, total
from scaling.training.trained_model import newest_model, on_mesh, run_of_folder
from scaling.training.weights.exported import export_weights

SEQ_LEN, RTOL = 16, 1e-5
TEXTS = ["alpha beta gamma, return def and more of it", "naïve ☃", "b"]
CHATS = [
    [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one, and then some"}],
    [{"role": "user", "content": "2 or 3?"}, {"role": "assistant", "content": "2"}],
]


def written(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def ids_of(texts):
    """Each text's bytes and the 0 that ends it."""
    return [[*text.encode(), 0] for text in texts]


def mean(log_softmax, documents, counted=None):
    """Mean loss and number of tokens that count: documents in sequences of their own."""
    counted = counted or [np.ones(len(ids), bool) for ids in documents]
    losses = []
    for ids, counts in zip(documents, counted, strict=True):
        for start in range(0, len(ids) - 1, SEQ_LEN):
            window = ids[start : start + SEQ_LEN + 1]
            of_tokens = log_softmax(window[:-1])[np.arange(len(window) - 1), window[1:]]
            losses.extend(-of_tokens[counts[start + 1 : start + SEQ_LEN + 1]])
    return np.mean(losses), len(losses)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text.jsonl"
    return written(path, [{"text": text} for text in TEXTS])


@pytest.mark.parametrize(
    ("mesh", "batch"),
    [
        ({}, 1),
        pytest.param({}, 4, marks=pytest.mark.slow),
        ({"data": 2, "fsdp": 2, "tensor": 2}, 4),
        pytest.param({"fsdp": 4, "expert": 2}, 8, marks=pytest.mark.slow),
    ],
)
def test_the_loss_is_the_mean_over_tokens_on_any_mesh_and_in_any_batch(
    load, log_softmax, text, mesh, batch
):
    model, run = load(MeshShape(**mesh), batch)
    found = mean_loss(model, run, open_file(text, run))
    stream = [id for ids in ids_of(TEXTS) for id in ids]
    loss, tokens = mean(log_softmax, [stream])
    assert (found.loss, found.tokens) == (pytest.approx(loss, rel=RTOL), tokens)
    assert tokens == len(stream) - 1
    size = sum(len(text.encode()) for text in TEXTS)
    assert found.bits_per_byte == pytest.approx(loss / math.log(2) * len(stream) / size, rel=RTOL)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-3)


@pytest.mark.parametrize("chunks", [1, 4])
def test_documents_are_predicted_each_by_itself(
    load, log_softmax, text, tmp_path, chunks, monkeypatch
):
    """Texts of a run on packed documents; chats always, of which the answers count."""
    monkeypatch.setattr("scaling.training.evaluation.scores.loss_chunks", lambda *_: chunks)
    model, run = load(batch=3 - chunks // 4)  # another shape: traced again
    packed = replace(run, train=replace(run.train, documents="packed"))
    found = mean_loss(model, packed, open_file(text, packed))
    assert (found.loss, found.tokens) == pytest.approx(mean(log_softmax, ids_of(TEXTS)), rel=RTOL)
    chats = written(tmp_path / "chats.jsonl", [{"messages": chat} for chat in CHATS])
    found = mean_loss(model, run, open_file(chats, run))
    expected = mean(log_softmax, *zip(*encode_chats(BYTES, CHATS), strict=True))
    assert (found.loss, found.tokens) == pytest.approx(expected, rel=RTOL)
    assert found.bits_per_byte is None


def test_files_of_the_same_text_have_the_same_loss(load, log_softmax, text, tmp_path):
    model, run = load(batch=1)
    stream = np.array([id for ids in ids_of(TEXTS) for id in ids], np.uint16)
    stream.tofile(tmp_path / "ids.bin")
    table = pyarrow.table({"text": TEXTS})
    pyarrow.parquet.write_table(table, tmp_path / "text.parquet")
    (tmp_path / "folder").mkdir()
    for number, one in enumerate(TEXTS):
        (tmp_path / "folder" / f"{number}.txt").write_text(one)
    expected = mean_loss(model, run, open_file(text, run))
    for name in ("ids.bin", "text.parquet", "folder"):
        found = mean_loss(model, run, open_file(str(tmp_path / name), run))
        assert replace(found, data=text, bits_per_byte=expected.bits_per_byte) == expected
    both = total([expected, Loss("other", 2 * expected.tokens, 0.0)])
    assert both == Loss("all", 3 * expected.tokens, pytest.approx(expected.loss / 3))


def test_without_files_it_is_the_whole_held_out_part(folder, load, log_softmax, text):
    model, run = load(batch=1)
    trained = run_of_folder(folder)
    (evaluated,) = held_out(trained, run)
    stream = np.asarray(open_data(trained.train, 256, SEQ_LEN).held_out.tokens).tolist()
    found = mean_loss(model, run, evaluated)
    assert (found.loss, found.tokens) == pytest.approx(mean(log_softmax, [stream]), rel=RTOL)
    assert found.bits_per_byte == pytest.approx(found.loss / math.log(2))  # a file without 0
    mixed = replace(trained.train, data={text: 1.0, trained.train.data: 1.0}, documents="packed")
    with pytest.raises(InputError, match="has 1 document"):
        list(held_out(replace(trained, train=mixed), run))


def test_the_command_prints_a_document_or_a_table(folder, text, tmp_path, capsys):
    words = ["eval", str(folder), "--mesh", "data=1", "--batch", "1", "--data", text]
    assert cli.main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {key: document[key] for key in ("name", "step", "mesh")} == {
        "name": "toy",
        "step": 3,
        "mesh": "data=1",
    }
    assert sc.evaluate(folder, text, mesh={"data": 1}, batch=1).to_dict() == document
    (found,) = document["data"]
    assert list(found) == ["data", "tokens", "loss", "perplexity", "bits_per_byte"]
    assert cli.main([*words, "--data", text]) == 0
    head, _, line, same, both = capsys.readouterr().out.splitlines()
    assert head == "toy, step 3, on data=1"
    assert line == same and f"{found['loss']:.4f}" in both
    assert cli.main([*words, "--choices", text]) == 2
    assert "has no option --choices; lm-eval asks questions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", "no record in"),
        ("empty.txt", b"", "no text in"),
        ("one.txt", b"", "no text in"),
        ("one.bin", b"\1\0", "has 1 token, and none before it"),
        ("ids.bin", b"\0\2\1\0", "token id 512, but model.vocab_size is 256"),
        ("missing.txt", None, "no such file"),
    ],
)
def test_what_cannot_be_evaluated_is_bad_input(load, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_file(str(tmp_path / name), load()[1])


def test_text_needs_the_tokenizer_of_the_model(load, text):
    _, run = load()
    small = replace(run, model=replace(run.model, vocab_size=255))
    of_ids = replace(run, train=replace(run.train, data="ids.bin"))
    for other in (small, of_ids):
        with pytest.raises(InputError, match="text needs train.tokenizer"):
            open_file(text, other)


def test_the_files_of_hugging_face_are_a_model_too(load, text, tmp_path):
    """Written by `scaling export`; others are named where they lack a tokenizer."""
    model, run = load(batch=1)
    export_weights(model, tmp_path / "weights", SEQ_LEN)
    theirs = replace(run_of_folder(tmp_path / "weights"), precision=run.precision)
    theirs = on_mesh(theirs, MeshShape(), 1, SEQ_LEN)
    same, step = newest_model(theirs, tmp_path / "weights")
    assert step is None
    expected = mean_loss(model, run, open_file(text, run))
    assert mean_loss(same, theirs, open_file(text, theirs)) == expected
    config = tmp_path / "weights/config.json"
    config.write_text(config.read_text().replace('"vocab_size": 256', '"vocab_size": 512'))
    with pytest.raises(InputError, match="has no tokenizer.json"):
        run_of_folder(tmp_path / "weights")
