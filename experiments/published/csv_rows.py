"""Rows of the published tables, which are CSV, some of them packed, with comments."""

import csv
import gzip
from pathlib import Path


def rows_of(path: Path) -> list[dict[str, str]]:
    """All rows by the names of the columns; lines that start with # are comments."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
