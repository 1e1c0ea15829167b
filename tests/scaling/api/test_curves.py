"""Strong and weak scaling: the batch that stays, the one that grows, and what is refused."""

import pytest

import scaling as sc
from scaling.meshes.errors import InputError

TINY = ("gpt2-124m", "dgx-h100")


def curves(nodes="1,2,4", **options):
    return sc.scaling_curves(*TINY, nodes, source="analytic", **options)


def test_strong_keeps_the_batch_and_weak_grows_it():
    found = curves(mesh="data=2,fsdp=4")
    batches = lambda curve: [p.pricing.run.batch.global_batch for p in curve]
    assert batches(found.strong) == [512] * 3 and batches(found.weak) == [512, 1024, 2048]
    assert [p.mesh for p in found.weak] == [f"data={2 * n},fsdp=4" for n in (1, 2, 4)]
    assert found.strong[0] is found.weak[0]
    assert "efficiency" in str(found) and list(found.to_dict()) == ["strong", "weak"]


def test_weak_scaling_is_the_more_efficient():
    found = curves()
    assert found.weak[-1].tokens_per_second > found.strong[-1].tokens_per_second


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        ("1", {}, "two numbers of nodes or more"),
        ("4,2", {}, "in rising order"),
        ("1,two", {}, "write numbers of nodes, such as 1,2,4,8"),
        ("", {}, "write numbers of nodes"),
        ((1, -2), {}, "write numbers of nodes"),
        ("0,1", {}, "nodes=0 must be"),
        (range(1, 30), {}, "at most 20"),
        ("2,3", {"mesh": "data=1,fsdp=16"}, "use multiples of 2"),
        ("1,2", {"set": {"batch.global_batch": 8}}, "on 2 nodes with 8 sequences"),
    ],
)
def test_bad_numbers_of_nodes_are_refused(nodes, options, message):
    with pytest.raises(InputError, match=message):
        curves(nodes, **options)
