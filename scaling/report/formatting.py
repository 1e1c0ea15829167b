"""Numbers of a prediction as text."""

from collections.abc import Sequence

from scaling.profiles.profile import Evidence
from scaling.run import Run


def evidence_words(evidence: Evidence, grade: str = "") -> str:
    """`calibrated: who measured what (2026-11); 77 points, mean error 18.7% on points left out`."""
    date = f" ({evidence.date})" if evidence.date else ""
    text = f"{grade or evidence.grade}: {evidence.source}{date}"
    points = f"{evidence.samples:,} points, " if evidence.samples > 2 else ""
    if evidence.held_out_error is not None:
        return f"{text}; {points}mean error {evidence.held_out_error:.1%} on points left out"
    if evidence.mean_error is not None and points:
        return f"{text}; {points}mean error {evidence.mean_error:.1%}"
    return text


def workload(run: Run, with_remat: bool = False) -> str:
    """`512 sequences x 8,192 tokens = 4,194,304 tokens a step, bf16`, and how it is split."""
    batch, n = run.batch, run.batch.microbatches
    size = f"{batch.global_batch:,} sequences x {batch.seq_len:,} tokens = {batch.tokens:,} tokens"
    split = f", {n} microbatch{'es' * (n > 1)}, remat {run.remat}" if with_remat else ""
    return f"{size} a step, {run.precision.compute}{split}"


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Lines with the columns of `left` (indices) flush left, all others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
