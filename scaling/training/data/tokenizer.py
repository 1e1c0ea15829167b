"""Text to token ids and back: bytes, or a tokenizer of Hugging Face's; nothing is downloaded.

None                       the bytes of UTF-8; byte 0, which no text has, ends a document
tokenizer.json             a file that `tokenizers` wrote
a folder                   with tokenizer.json, and what says its chat template and end of text
org/name                   the newest snapshot of that name in Hugging Face's cache
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.durable import sync
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json, read_text

BYTE_VALUES, NEVER_IN_UTF8 = 256, 0xFF
FILE, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
EXTRA = "install the extra: pip install 'jax-scaling[data]'"
# Where Hugging Face's hub keeps what was downloaded (huggingface_hub documentation, environment).
HUB = "HF_HUB_CACHE", "HF_HOME", "~/.cache/huggingface"
# Ends of text in the order in which they are looked for, where no tokenizer_config.json names one.
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")


Encoded = tuple[np.ndarray, np.ndarray]  # ids; where in the text each begins: int32 [tokens]


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to ids and back."""

    description: str
    size: int  # ids lie below it
    end: int | None  # id behind a document; None: there is none
    special: frozenset[int]  # ids that are no text, such as the ends of turns
    encode: Callable[[Sequence[str]], list[Encoded]]  # adds nothing at the beginning or the end
    decode: Callable[[Sequence[int]], str]
    template: str | None = None  # of chats, in Jinja; None: that of `scaling.training.data.chat`
    names: Mapping[str, str] = field(default_factory=dict)  # of special tokens, for the template
    digest: str = ""  # of all that decides ids


def open_tokenizer(spec: str | None, vocab_size: int) -> Tokenizer:
    """The tokenizer that `spec` names.

    Raises:
        InputError: there is none, the library is missing, ids beyond the model's vocabulary.
    """
    tokenizer = BYTES if spec is None else _hugging_face(spec)
    if tokenizer.size > vocab_size:
        name = "text read byte by byte" if spec is None else f"train.tokenizer {spec!r}"
        raise InputError(
            f"{name} has token ids up to {tokenizer.size - 1:,} and needs model.vocab_size >= "
            f"{tokenizer.size:,}; the model has {vocab_size:,}. Raise it or use the model's own "
            "tokenizer."
        )
    return tokenizer


def copy_tokenizer(spec: str, folder: Path) -> None:
    """Copy the files of the tokenizer that `spec` names into a folder, which is one then."""
    folder.mkdir(exist_ok=True)
    for name, path in tokenizer_files(spec).items():
        if path.resolve() != (folder / name).resolve():
            (folder / name).unlink(missing_ok=True)  # what is a link is not written through
            shutil.copyfile(path, folder / name)
            sync(folder / name)
    sync(folder)


def tokenizer_files(spec: str) -> dict[str, Path]:
    """The files that decide the ids of the tokenizer that `spec` names, by what they are."""
    file = _tokenizer_file(spec)
    beside = {name: file.with_name(name) for name in (CONFIG, TEMPLATE)}
    return {FILE: file} | {name: path for name, path in beside.items() if path.is_file()}


def _bytes(text: str) -> Encoded:
    data = text.encode()
    ids = np.frombuffer(data, np.uint8).astype(np.int32)
    begins = (ids & 0xC0) != 0x80  # other bytes continue a character (RFC 3629)
    return ids, (np.cumsum(begins) - 1).astype(np.int32)


BYTES = Tokenizer(
    "bytes",
    BYTE_VALUES,
    end=0,
    special=frozenset({0}),
    encode=lambda texts: [_bytes(text) for text in texts],
    # What is not UTF-8, or no byte at all, reads as U+FFFD.
    decode=lambda ids: bytes(min(int(i), NEVER_IN_UTF8) for i in ids).decode(errors="replace"),
)


def _hugging_face(spec: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as Core
    except ImportError:
        raise InputError(f"train.tokenizer {spec!r} needs `tokenizers`; {EXTRA}") from None
    file = _tokenizer_file(spec)
    try:
        core = Core.from_file(str(file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # bare Exceptions, and Rust's panics, which are none
        raise InputError(f"train.tokenizer {spec!r}: {file} is no tokenizer: {error}") from None
    core.no_truncation()
    core.no_padding()
    path = file.with_name(CONFIG)
    config = read_json(path) if path.is_file() else {}
    if not isinstance(config, dict):
        raise InputError(f"{path}: expected a table of keys, got {config!r:.80}")
    text = lambda token: str(token.get("content") if isinstance(token, dict) else token)
    names = {k: text(v) for k, v in config.items() if k.endswith("_token") and v}
    added = core.get_added_tokens_decoder()
    special = frozenset(i for i, token in added.items() if token.special)
    ends = [names["eos_token"]] if "eos_token" in names else ENDS
    end = next((i for i in map(core.token_to_id, ends) if i is not None), None)
    size = 1 + max(core.get_vocab(with_added_tokens=True).values())

    def encode(texts: Sequence[str]) -> list[Encoded]:
        encodings = core.encode_batch(list(texts), add_special_tokens=False)
        starts = ([start for start, _ in e.offsets] for e in encodings)
        pairs = zip((e.ids for e in encodings), starts, strict=True)
        return [(np.array(ids, np.int32), np.array(at, np.int32)) for ids, at in pairs]

    decode = lambda ids: core.decode([int(i) for i in ids], skip_special_tokens=True)
    template = _template(file, config)
    decides = read_text(file), template or "", json.dumps(names), str(end)
    digest = hashlib.sha256("\0".join(decides).encode()).hexdigest()
    return Tokenizer(str(file), size, end, special, encode, decode, template, names, digest)


def _tokenizer_file(spec: str) -> Path:
    path = Path(spec).expanduser()
    if path.is_file():
        return path
    if (path / FILE).is_file():
        return path / FILE
    if path.is_dir():
        raise InputError(f"train.tokenizer {spec!r}: the folder has no {FILE}")
    cache, home, default = HUB
    hub = Path(os.environ.get(home, default)).expanduser() / "hub"
    if cache in os.environ:
        hub = Path(os.environ[cache]).expanduser()
    kept = hub / f"models--{spec.replace('/', '--')}" / "snapshots"
    files = sorted(kept.glob(f"*/{FILE}"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise InputError(
            f"train.tokenizer {spec!r}: no such file or folder, and {hub} has no tokenizer.json of "
            "that name. Nothing is downloaded: name a tokenizer.json, the folder of a model, or "
            f"run `hf download {spec} tokenizer.json tokenizer_config.json` first."
        )
    return files[-1]


def _template(file: Path, config: dict[str, Any]) -> str | None:
    path, named = file.with_name(TEMPLATE), config.get("chat_template")
    if path.is_file():
        return read_text(path)
    if isinstance(named, list):  # several, by name
        by_name = {t.get("name"): t.get("template") for t in named if isinstance(t, dict)}
        named = by_name.get("default")
    if named is not None and not isinstance(named, str):
        raise InputError(f"{file.parent}: chat_template is {json.dumps(named)[:80]}, not a text")
    return named
