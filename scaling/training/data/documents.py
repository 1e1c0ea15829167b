"""The documents of a source, one after the other: texts or chats.

a folder, a text file      each file that is UTF-8 text
"stdlib"                   each source file of Python's standard library
FILE.jsonl                 each line: {"text": ...} or {"messages": [{"role", "content"}, ...]}
FILE.parquet, FILE.arrow   each row, by the same names of columns
a folder of these          where they have most of its bytes, in the order of their names
a saved data set           what Hugging Face's `save_to_disk` wrote; of several splits "train"
"""

import os
import sysconfig
from collections.abc import Container, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.reading import parse_json, read_json
from scaling.training.data.chat import ASSISTANT
from scaling.training.data.tokenizer import EXTRA

STDLIB = Path("stdlib")  # a folder of that name is reached as an absolute path
NUL = b"\0"  # text never contains it
NOT_TEXT = {"__pycache__"}  # folders nobody means when naming a folder of text
NOT_STDLIB = NOT_TEXT | {"site-packages", "dist-packages", "test", "tests", "idlelib"}
RECORDS = (".jsonl", ".parquet", ".arrow")
KEYS = ("text", "messages")
PART = 1 << 22  # bytes of a text file that are held at once, and the rest of a line
ROWS = 1000  # of a table that are held at once as Python objects
# What `save_to_disk` of Hugging Face's datasets writes (seen of 5.2.0).
STATE, SPLITS, TRAIN = "state.json", "dataset_dict.json", "train"

Document = bytes | list[dict[str, str]]  # UTF-8, or a chat


def documents(file: Path, records: bool, alone: bool) -> Iterator[tuple[Document | None, bool]]:
    """The documents of one file; False behind a part of a text that goes on in the next.

    None is a binary file, which is left out.

    Args:
        records: the file is one of records, not a text.
        alone: the file is all of the source: an error if it is binary.

    Raises:
        InputError: a record that is no document (with its number), a damaged file, a missing
            library.
    """
    if records:
        yield from ((document, True) for document in _records(file))
        return
    if not all(map(_is_text, _parts(file))):
        if alone:
            raise InputError(
                f"data '{file}' is a binary file ({file.stat().st_size:,} bytes, not UTF-8 text). "
                "A file of token ids must end in .bin; otherwise name a text file or a folder of "
                "them."
            )
        yield None, True
        return
    for part, following in pairwise(chain(_parts(file), (b"",))):
        yield part, not following


def _parts(file: Path) -> Iterator[bytes]:
    """Whole lines of a file, about PART bytes at a time; of an empty file b""."""
    with file.open("rb") as opened:
        yield b"".join(opened.readlines(PART))
        while part := b"".join(opened.readlines(PART)):
            yield part


def files_of(path: Path) -> dict[str, Path]:
    """The files of a source in their order, by their name below it; "" is the source itself.

    Raises:
        InputError: a saved data set without a split "train".
    """
    if path == STDLIB:
        root = Path(sysconfig.get_path("stdlib"))
        files = [file for file in visible_files(root, NOT_STDLIB) if file.suffix == ".py"]
        return {file.relative_to(root).as_posix(): file for file in files}
    root = path.expanduser()
    if root.is_file():
        return {"": root}
    if (saved := _saved(root)) is not None:
        return saved
    files = list(visible_files(root, NOT_TEXT))
    sizes = {file: file.stat().st_size for file in files}
    tables = [file for file in files if file.suffix in RECORDS]
    if 2 * sum(sizes[file] for file in tables) > sum(sizes.values()):
        files = tables
    return {file.relative_to(root).as_posix(): file for file in files}


def are_records(files: Mapping[str, Path]) -> bool:
    """True if the files of a source are of records, False if they are texts."""
    return bool(files) and all(file.suffix in RECORDS for file in files.values())


def visible_files(root: Path, left_out: Container[str] = ()) -> Iterator[Path]:
    """Files below `root` in the order of a sorted walk, without hidden or left-out names."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if s[0] != "." and s not in left_out)
        paths = (Path(folder, name) for name in sorted(files) if name[0] != ".")
        yield from (path for path in paths if path.is_file())


def _saved(root: Path) -> dict[str, Path] | None:
    """The files of a saved data set; None if the folder is none."""
    where = root
    if (root / SPLITS).is_file():
        where = root / TRAIN
        if not (where / STATE).is_file():
            splits = ", ".join(sorted(path.parent.name for path in root.glob(f"*/{STATE}")))
            raise InputError(
                f"data '{root}' is a data set without a split {TRAIN!r}; it has "
                f"{splits or 'none'}: name the folder of one"
            )
    if not (where / STATE).is_file():
        return None
    try:
        names = [entry["filename"] for entry in read_json(where / STATE)["_data_files"]]
        return {(where / name).relative_to(root).as_posix(): where / name for name in names}
    except (LookupError, TypeError) as error:
        raise InputError(f"{where / STATE} names no _data_files ({error!r})") from None


def _is_text(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return NUL not in part


def _records(path: Path) -> Iterator[Document]:
    before = None
    for number, record in numbered(path):
        where = f"data '{path}', record {number:,}"
        keys = [key for key in KEYS if isinstance(record, dict) and record.get(key) is not None]
        if len(keys) != 1:
            raise InputError(
                f"{where}: expected a table with 'text' or 'messages', got {record!r:.80}"
            )
        key, value = keys[0], record[keys[0]]
        if key != (before := before or key):
            raise InputError(f"{where} has {key!r}, those before it {before!r}: make two sources")
        if key == "messages":
            _check_chat(value, where)
        elif not isinstance(value, str):
            raise InputError(f"{where}: 'text' is {value!r:.80}, not a text")
        yield value.encode() if isinstance(value, str) else value


def numbered(path: Path, keys: tuple[str, ...] = KEYS) -> Iterator[tuple[int, Any]]:
    """The records of a file by number from 1; of a table the columns of these names."""
    return _jsonl(path) if path.suffix == ".jsonl" else enumerate(_rows(path, keys), 1)


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines that are not blank, by number."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, parse_json(line.strip(), f"data '{path}', line {number:,}")


def _rows(path: Path, keys: tuple[str, ...]) -> Iterator[Any]:
    """Rows of a Parquet file or an Arrow stream, their columns of these names."""
    try:
        from pyarrow import OSFile, ipc, parquet
        from pyarrow.lib import ArrowException
    except ImportError:
        raise InputError(f"data '{path}' needs `pyarrow`; {EXTRA}") from None
    is_parquet = path.suffix == ".parquet"
    group: int | None = None
    try:
        with OSFile(str(path)) as opened:
            table = (parquet.ParquetFile if is_parquet else ipc.open_stream)(opened)
            names = (table.schema_arrow if is_parquet else table.schema).names
            columns = [name for name in keys if name in names]
            if not columns:
                raise InputError(
                    f"data '{path}' has the columns {', '.join(names)}; expected "
                    f"{' or '.join(map(repr, keys))}"
                )
            if is_parquet:
                each: Any = range(table.num_row_groups)
                groups = (table.iter_batches(ROWS, [number], columns) for number in each)
            else:
                groups = ([batch] for batch in table)
            group = 0
            while batches := next(groups, None):
                for batch in batches:
                    for start in range(0, len(batch), ROWS):
                        yield from batch.slice(start, ROWS).select(columns).to_pylist()
                group += 1
    except (ArrowException, OSError) as error:
        kind = "Parquet file" if is_parquet else "Arrow stream"
        where = "is no" if group is None else f"is damaged in row group {group:,}, or no whole"
        raise InputError(f"data '{path}' {where} {kind}: {error}") from None


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
