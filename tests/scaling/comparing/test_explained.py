"""The sentence that says which term makes up a difference."""

import pytest

from scaling.comparing.comparison import SUMMED, CollectivePair, Pair, explanation

NOTHING = {term: Pair(0.0, 0.0) for term in SUMMED}
SAME = Pair(1.0, 1.0)
COLLECTIVES = (
    CollectivePair("all-gather", "fsdp", 2**20, Pair(1e-3, 1.1e-3), SAME),
    CollectivePair("all-reduce", "data", 2**26, Pair(1e-3, 3e-3), SAME),
)


def said(collectives=COLLECTIVES, classes=None, **terms):
    """The sentence on a step of these terms."""
    return explanation(NOTHING | terms, classes or {}, collectives)


def test_the_term_and_the_collective_that_differ_most_are_named():
    text = said(exposed_communication=Pair(2e-3, 4.7e-3), compute=Pair(8e-3, 8.6e-3))
    assert text == (
        "the step takes 3.3 ms more than predicted: exposed communication 2.7 ms more, compute "
        "600 us more; most by all-reduce[data] 64 MiB, 3 ms instead of 1 ms"
    )


def test_kernels_are_named_by_class_and_only_what_goes_the_same_way():
    classes = {"matmul": Pair(8e-3, 5e-3), "fusion": Pair(1e-3, 2e-3), "all-gather": Pair(9.0, 0.0)}
    text = said(classes=classes, compute=Pair(9e-3, 7e-3), host=Pair(1e-3, 1e-3))
    assert text == (
        "the step takes 2 ms less than predicted: compute 2 ms less; most by matmul kernels, 5 ms "
        "instead of 8 ms"
    )


def test_without_names_the_kind_of_collective_is_what_can_be_told():
    unmatched = [CollectivePair("all-reduce", "data", 8, Pair(1e-3, None), SAME)]
    classes = {"all-reduce": Pair(1e-3, 4e-3)}
    more = {"exposed_communication": Pair(1e-3, 4e-3)}
    assert "most by all-reduce, 4 ms" in said(unmatched, classes, **more)


def test_a_late_host_has_no_kernel_to_name():
    text = said(host=Pair(0.0, 1e-2))
    assert text.endswith("host 10 ms more")


@pytest.mark.parametrize(
    "pair", [Pair(1e-2, 1.001e-2), Pair(1e-2, None), Pair(1e-2, 2e-2, comparable=False)]
)
def test_there_is_nothing_to_say_of_equal_or_unmeasured_steps(pair):
    assert said(compute=pair) == ""
