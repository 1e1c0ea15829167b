"""The documents of a source, as texts or chats.

a folder, a text file      each file that is UTF-8 text
"stdlib"                   each source file of Python's standard library
FILE.jsonl                 each line: {"text": ...} or {"messages": [{"role", "content"}, ...]}
FILE.parquet               each row, by the same names of columns
"""

import os
import sysconfig
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.reading import parse_json
from scaling.training.data.chat import ASSISTANT
from scaling.training.data.tokenizer import EXTRA

STDLIB = Path("stdlib")  # a folder of that name is reached as an absolute path
NUL = b"\0"  # text never contains it
NOT_TEXT = {"__pycache__"}  # folders nobody means when naming a folder of text
NOT_STDLIB = NOT_TEXT | {"site-packages", "dist-packages", "test", "tests", "idlelib"}
RECORDS = (".jsonl", ".parquet")
KEYS = ("text", "messages")

Documents = Sequence[str] | Sequence[list[dict[str, str]]]  # texts or chats, never both


def read_records(path: Path) -> Documents:
    """The documents of a `.jsonl` or `.parquet` file.

    Raises:
        InputError: no document, a record that is none (with its number), a missing library.
    """
    if path.stat().st_size == 0:
        raise InputError(f"data '{path}' is empty (0 bytes)")
    records = _parquet(path) if path.suffix == ".parquet" else _jsonl(path)
    documents: dict[str, list] = {key: [] for key in KEYS}
    for number, record in records:
        where = f"data '{path}', record {number:,}"
        keys = [key for key in KEYS if isinstance(record, dict) and record.get(key) is not None]
        if len(keys) != 1:
            raise InputError(
                f"{where}: expected a table with 'text' or 'messages', got {record!r:.80}"
            )
        key, value = keys[0], record[keys[0]]
        if key == "messages":
            _check_chat(value, where)
        elif not isinstance(value, str):
            raise InputError(f"{where}: 'text' is {value!r:.80}, not a text")
        documents[key].append(value)
    if not any(documents.values()):
        raise InputError(f"data '{path}' has no record")
    if all(documents.values()):
        counts = " and ".join(f"{len(v):,} with {k!r}" for k, v in documents.items())
        raise InputError(f"data '{path}' mixes records: {counts}. Put them into two files.")
    return documents["messages"] or documents["text"]


def read_texts(path: Path) -> tuple[list[bytes], str]:
    """The text files at `path`, and where they are, with the number of binaries left out."""
    contents = [file.read_bytes() for file in files_of(path).values()]
    if path == STDLIB:
        return contents, "the Python standard library"
    documents = [document for document in contents if _is_text(document)]
    skipped = len(contents) - len(documents)
    if path.is_file() and skipped:
        raise InputError(
            f"data '{path}' is a binary file ({len(contents[0]):,} bytes, not UTF-8 text). A file "
            "of token ids must end in .bin; otherwise name a text file or a folder of them."
        )
    where = f"{path} ({skipped:,} binary files skipped)" if skipped else str(path)
    if not any(documents):
        raise InputError(f"data '{path}': no text in {where}. Name a folder with text files.")
    return documents, where


def files_of(path: Path) -> dict[str, Path]:
    """The files of a source in their order, by their name below it; "" is the source itself."""
    if path == STDLIB:
        root = Path(sysconfig.get_path("stdlib"))
        files = [file for file in visible_files(root, NOT_STDLIB) if file.suffix == ".py"]
    else:
        root = path.expanduser()
        files = [root] if root.is_file() else list(visible_files(root, NOT_TEXT))
    return {"" if file == root else file.relative_to(root).as_posix(): file for file in files}


def visible_files(root: Path, left_out: Container[str] = ()) -> Iterator[Path]:
    """Files below `root` in the order of a sorted walk, without hidden or left-out names."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if s[0] != "." and s not in left_out)
        paths = (Path(folder, name) for name in sorted(files) if name[0] != ".")
        yield from (path for path in paths if path.is_file())


def _is_text(document: bytes) -> bool:
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return NUL not in document


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines that are not blank, by number."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, parse_json(line.strip(), f"data '{path}', line {number:,}")


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    """Rows of the file's column "text" or "messages", from 1."""
    try:
        import pyarrow.parquet as parquet
        from pyarrow.lib import ArrowException
    except ImportError:
        raise InputError(f"data '{path}' needs `pyarrow`; {EXTRA}") from None
    try:
        names = parquet.read_schema(path).names
        columns = [name for name in KEYS if name in names]
        if not columns:
            raise InputError(
                f"data '{path}' has the columns {', '.join(names)}; expected 'text' or 'messages'"
            )
        yield from enumerate(parquet.read_table(path, columns=columns).to_pylist(), 1)
    except ArrowException as error:
        raise InputError(f"data '{path}' is no Parquet file: {error}") from None


def _check_chat(value: Any, where: str) -> None:
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: 'messages' is a list of messages, got {value!r:.80}")
    for message in value:
        texts = map(message.get, ("role", "content")) if isinstance(message, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"{where}: a message is a table with the texts 'role' and 'content', got "
                f"{message!r:.80}"
            )
    if not any(message["role"] == ASSISTANT for message in value):
        roles = ", ".join(sorted({message["role"] for message in value}))
        raise InputError(
            f"{where}: no message of the role 'assistant', whose tokens alone count; roles: {roles}"
        )
