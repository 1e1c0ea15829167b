"""The size from which a kernel is compute bound: where its FLOPs take as long as its bytes.

matmul       m = w n k / (2 n k W / C - x k - y n)      of the batch (of each group), weights n x k
             m = w C / (2 W)                            where the weights alone count
attention    T = a (x N + z K) C / (r c N W)            of as many queries as keys
"""

from collections.abc import Callable

from scaling.profiles.io import profile_of
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.least import least_where
from scaling.questions.roofline import KernelTarget, bandwidth_of, peak_of, timed
from scaling.questions.workloads import KernelWork

MOST = 2**24  # the largest size that is tried with fitted figures, chosen by this project
Sized = Callable[[float], KernelWork]  # a matmul with another batch
NEVER = "memory at every size: a further row takes longer to move than to compute"


def critical(work: KernelWork, target: KernelTarget, sized: Sized) -> list[Answer]:
    """Return the critical sizes of a kernel; none for kinds without one.

    `sized` gives a matmul with another batch.
    """
    if work.kind not in ("matmul", "grouped", "attention"):
        return []
    W, C, link = bandwidth_of(target), peak_of(work, target), target.link
    given = letters(*work.inputs, W, C, Input("P", link or 0.0, "bytes/s", "link"))
    if work.kind == "attention":
        # Textbook's only: measured efficiencies of short sequences say nothing about the memory.
        visible = 0.5 if "T / 2" in work.flops else 1.0
        given["c"] = Input("c", visible, "", "of the scores that a mask leaves")
        name, formula = "intensity of T queries over many keys", "r * T * N / (a * z * K)"
        length = "a * (x * N + z * K) * C / (r * c * N * W)"
        return [
            by_formula("critical length of queries and keys", "tokens", length, given),
            by_formula(name, "FLOPs/byte", formula, given),
        ]
    n, k, x, y = (given[symbol].value for symbol in "nkxy")
    fitted = first_compute_bound(target, sized)
    formula = "w * n * k / (2 * n * k * W / C - x * k - y * n)"
    if link:
        formula = f"max({formula}, w * C / (2 * P))"
    exact = Answer("critical batch", fitted, "rows", fitted=fitted, ideal_binds=NEVER)
    if 2 * n * k * W.value / C.value > x * k + y * n:
        exact = by_formula("critical batch", "rows", formula, given, fitted)
    if link:
        given["W"] = Input("W", link, "bytes/s", "link")
    alone = "critical batch by the weights alone"
    return [exact, by_formula(alone, "rows", "w * C / (2 * W)", given)]


def first_compute_bound(target: KernelTarget, sized: Sized) -> int | None:
    """Return the size from which the fitted compute time exceeds the memory's and the link's.

    Sizes are doubled until it does, and halved in between: tiles and waves make the efficiency
    jump, so that a larger size may be memory bound once more. None: up to MOST it never does.
    """
    profile = profile_of(target.chip)

    def is_bound(size: float) -> bool:
        cost = timed(sized(size), target, profile)
        return cost.compute >= max(cost.memory, cost.link)

    size = least_where(is_bound, 2 * MOST, whole=True)
    return None if size > MOST else int(size)
