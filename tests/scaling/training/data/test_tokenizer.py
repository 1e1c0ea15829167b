"""Tokenizers come from files, folders and Hugging Face's cache; others are refused by name."""

import shutil
import sys

import pytest

from experiments.chat.make import HERE
from scaling.meshes.errors import InputError
from scaling.training.data.tokenizer import copy_tokenizer, open_tokenizer

FOLDER = HERE / "tokenizer"


def test_a_model_with_fewer_ids_than_the_tokenizer_is_refused_with_numbers():
    with pytest.raises(InputError, match="text read byte by byte .* >= 256; the model has 255"):
        open_tokenizer(None, 255)
    pytest.importorskip("tokenizers")
    with pytest.raises(InputError, match="token ids up to 303 and needs .* >= 304; .* has 300"):
        open_tokenizer(str(FOLDER), 300)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        InputError, match=r"needs `tokenizers`; .*pip install 'jax-scaling\[data\]'"
    ):
        open_tokenizer(str(FOLDER), 512)


def test_a_file_a_folder_and_a_name_in_the_cache_are_one_tokenizer(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--sums" / "snapshots" / "abc"
    shutil.copytree(FOLDER, snapshot)
    text = "4 + 8 = 12, é"
    found = [
        open_tokenizer(str(spec), 512) for spec in (FOLDER, FOLDER / "tokenizer.json", "org/sums")
    ]
    assert len({tuple(one.encode([text])[0][0].tolist()) for one in found}) == 1
    for one in found:
        ids, starts = one.encode([text])[0]
        assert (one.size, one.end, one.special) == (304, 0, {0, 1, 2})
        assert one.decode(ids) == text and starts[0] == 0 and (starts[1:] >= starts[:-1]).all()
        assert one.decode([one.end, *ids]) == text  # what is no text is left out


def test_what_is_no_tokenizer_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(InputError, match="Nothing is downloaded.*hf download org/none"):
        open_tokenizer("org/none", 512)
    with pytest.raises(InputError, match="the folder has no tokenizer.json"):
        open_tokenizer(str(tmp_path), 512)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="tokenizer.json is no tokenizer"):
        open_tokenizer(str(tmp_path), 512)


def test_a_copy_is_the_same_tokenizer_with_its_template(tmp_path):
    pytest.importorskip("tokenizers")
    for _ in range(2):  # that of an earlier start is replaced
        copy_tokenizer(str(FOLDER), tmp_path / "copy")
    copy_tokenizer(str(tmp_path / "copy"), tmp_path / "copy")
    first, second = (open_tokenizer(str(one), 512) for one in (FOLDER, tmp_path / "copy"))
    assert first.digest == second.digest and first.template == second.template
