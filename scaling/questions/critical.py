"""The size from which a kernel is compute bound: where its FLOPs take as long as its bytes.

matmul       m = w n k / (2 n k W / C - x k - y n)      of the batch, weights of n x k
             m = w C / (2 W)                            where the weights alone count
attention    T = a (x N + z K) C / (r c N W)            of as many queries as keys
"""

from collections.abc import Callable

from scaling.profiles.io import profile_of
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.least import least_where
from scaling.questions.roofline import KernelTarget, bandwidth_of, peak_of, timed
from scaling.questions.workloads import Work

MOST = 2**24  # the largest size that is tried with fitted figures, chosen by this project
NEVER = "memory at every size: a further row takes longer to move than to compute"


def critical(work: Work, place: KernelTarget, sized: Callable[[float], Work]) -> list[Answer]:
    """Return the critical sizes of a kernel; none for kinds without one.

    Args:
        work: the kernel.
        place: the chip.
        sized: a matmul with another batch.
    """
    if work.kind == "matmul":
        return _of_matmul(work, place, sized)
    if work.kind == "attention":
        return _of_attention(work, place)
    return []


def first_compute_bound(place: KernelTarget, sized: Callable[[float], Work]) -> int | None:
    """Return the size from which the fitted compute time exceeds the memory's and the link's.

    Sizes are doubled until it does, and halved in between: tiles and waves make the efficiency
    jump, so that a larger size may be memory bound once more. None: up to MOST it never does.
    """
    profile = profile_of(place.chip)

    def is_bound(size: float) -> bool:
        cost = timed(sized(size), place, profile)
        return cost.compute >= max(cost.memory, cost.link)

    found = least_where(is_bound, 2 * MOST, whole=True)
    return None if found > MOST else int(found)


def _of_matmul(work: Work, place: KernelTarget, sized: Callable[[float], Work]) -> list[Answer]:
    W, C, link = bandwidth_of(place), peak_of(work, place), place.link
    own = letters(*work.inputs, W, C, Input("P", link or 0.0, "bytes/s", "link"))
    n, k, x, y = (own[symbol].value for symbol in "nkxy")
    fitted = first_compute_bound(place, sized)
    formula = "w * n * k / (2 * n * k * W / C - x * k - y * n)"
    if link:
        formula = f"max({formula}, w * C / (2 * P))"
    if 2 * n * k * W.value / C.value > x * k + y * n:
        exact = by_formula("critical batch", "rows", formula, own, fitted)
    else:
        exact = Answer("critical batch", fitted, "rows", fitted=fitted, ideal_binds=NEVER)
    if link:
        own["W"] = Input("W", link, "bytes/s", "link")
    alone = "critical batch by the weights alone"
    return [exact, by_formula(alone, "rows", "w * C / (2 * W)", own)]


def _of_attention(work: Work, place: KernelTarget) -> list[Answer]:
    """Textbook's only: measured efficiencies of short sequences say nothing about the memory."""
    c = Input("c", 0.5 if "T / 2" in work.flops else 1.0, "", "of the scores that a mask leaves")
    own = letters(*work.inputs, c, bandwidth_of(place), peak_of(work, place))
    length = "a * (x * N + z * K) * C / (r * c * N * W)"
    intensity, name = "r * T * N / (a * z * K)", "intensity of T queries over many keys"
    return [
        by_formula("critical length of queries and keys", "tokens", length, own),
        by_formula(name, "FLOPs/byte", intensity, own),
    ]
