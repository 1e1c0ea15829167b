"""Every tensor that remat keeps for the backward pass, with its bytes on one device."""

from scaling.models.accounting.activations import SavedRow
from scaling.models.accounting.remat import Remat
from scaling.report.formatting import table_lines


def saved_table(rows: list[SavedRow], remat: Remat) -> str:
    """The rows as aligned text with totals, under a line that names the policy."""
    lines: list[tuple[str, ...]] = []
    experts = len({row.layers for row in rows}) > 1
    for row in rows:
        tensor = f"{row.tensor} of {row.layers}" if experts else row.tensor
        sizes = f"{row.layer_bytes:,}", f"{row.bytes:,}"
        lines.append((tensor, row.kept_as, row.memory, *sizes))
    for memory in ("device", "host"):
        total = sum(row.bytes for row in rows if row.memory == memory)
        if total:
            lines.append((f"total in memory of the {memory}", "", "", "", f"{total:,}"))
    head = ("kept tensor", "name in remat", "memory", "bytes/layer", "bytes/device")
    title = f"remat {remat} keeps for the backward pass"
    return "\n".join([title, *table_lines(head, lines, left=(0, 1, 2))])
