"""Sharding rules: specs, collisions, divisibility and the advice in its messages."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.rules import DEFAULT, GATHERED, Rules, check_divisible, divisors, make_rules
from scaling.meshes.shape import AXES, MeshShape

ALL = MeshShape(data=2, fsdp=4, expert=2, context=2, tensor=8)
shapes = st.builds(MeshShape, **{axis: st.integers(1, 3) for axis in AXES})
dims = st.sampled_from([None, *DEFAULT])


def test_weights_are_cut_over_every_axis_but_data() -> None:
    rules, every = make_rules(ALL, sequence_parallel=True), ("fsdp", "expert", "context")
    assert rules.spec("embed", "mlp") == (every, "tensor")
    assert rules.spec("embed", "heads", None) == (every, "tensor", None)
    assert rules.spec("vocab", "embed") == ("tensor", every)
    assert rules.shards("embed", "mlp") == 4 * 2 * 2 * 8
    assert rules.spec("experts", "mlp", "embed") == ("expert", "tensor", ("fsdp", "context"))
    assert rules.shards("experts", "mlp", "embed") == 4 * 2 * 2 * 8
    fewer = make_rules(ALL, sequence_parallel=True, embed=("fsdp", "context"))
    assert fewer.spec("embed", "mlp") == (("fsdp", "context"), "tensor")
    latent = make_rules(ALL, sequence_parallel=True, latent=("fsdp",))
    assert latent.spec("latent", "heads", None) == ("fsdp", "tensor", None)
    assert latent.spec("embed", None) == (every, None)


def test_activations_are_cut_over_batch_and_sequence() -> None:
    rules = make_rules(ALL, sequence_parallel=True)
    batch = ("data", "fsdp", "expert")
    assert rules.spec("batch", "sequence", None) == (batch, "context", None)
    assert rules.spec("batch", "residual", None) == (batch, ("context", "tensor"), None)
    whole = make_rules(ALL, sequence_parallel=False)
    assert whole.spec("batch", "residual", None) == (batch, "context", None)


def test_dimensions_that_must_stay_whole_are_not_cut() -> None:
    rules = make_rules(ALL, sequence_parallel=True, whole=["vocab"])
    assert rules.spec("vocab", "embed") == (None, ("fsdp", "expert", "context"))
    assert make_rules(ALL, sequence_parallel=True).axes("vocab") == ("tensor",)


@given(shapes, st.booleans(), st.lists(dims, max_size=4))
def test_a_spec_uses_each_axis_once_or_is_refused(
    shape: MeshShape, sequence_parallel: bool, names: list[str | None]
) -> None:
    rules = make_rules(shape, sequence_parallel)
    others = {axis for name in names if name not in GATHERED for axis in rules.axes(name)}
    used = lambda name: [a for a in rules.axes(name) if name not in GATHERED or a not in others]
    cuts = [axis for name in names for axis in used(name)]
    try:
        spec = rules.spec(*names)
    except InputError:
        assert len(set(cuts)) < len(cuts)
        return
    flat = [a for entry in spec for a in ((entry,) if isinstance(entry, str) else entry or ())]
    assert flat == cuts and len(set(flat)) == len(flat) and len(spec) == len(names)
    assert rules.shards(*names) == shape.size(flat)


def test_two_dimensions_on_one_axis_are_refused_by_name() -> None:
    rules = make_rules(ALL, sequence_parallel=True)
    with pytest.raises(InputError, match="'heads', 'mlp'.*mesh axis tensor on two dimensions"):
        rules.spec("heads", "mlp")
    assert make_rules(MeshShape(fsdp=8), True).spec("heads", "mlp") == (None, None)


def test_an_unknown_dimension_names_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown key 'head'; did you mean 'heads'"):
        make_rules(ALL, sequence_parallel=True).spec("head")


def test_equal_rules_are_one_key() -> None:
    """A layout with equal rules must not be compiled twice."""
    first, second = (make_rules(replace(ALL), sequence_parallel=True) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert len({first, second, make_rules(ALL, sequence_parallel=False)}) == 2
    table = dict(reversed(list(first.table.items())))
    assert Rules(ALL, table) == first and hash(Rules(ALL, table)) == hash(first)


@given(st.integers(1, 500), shapes, st.sets(st.sampled_from(AXES)))
def test_divisible_means_divisible(size: int, shape: MeshShape, axes: set[str]) -> None:
    parts = shape.size(axes)
    if size % parts == 0:
        check_divisible("n_heads", size, axes, shape)
        return
    with pytest.raises(InputError) as caught:
        check_divisible("n_heads", size, axes, shape)
    message = str(caught.value)
    assert f"n_heads={size} is not divisible by" in message
    (better,) = re.findall(r"or n_heads of (\d+)", message)
    assert size < int(better) <= size + parts and int(better) % parts == 0
    offered = re.findall(r"use \w+ of ([\d, ]+), or", message)
    assert all(size % int(n) == 0 for part in offered for n in part.split(","))


def test_a_misfit_names_numbers_and_a_fix() -> None:
    with pytest.raises(InputError) as caught:
        check_divisible("model.n_heads", 12, ["tensor"], MeshShape(tensor=8))
    assert str(caught.value) == (
        "model.n_heads=12 is not divisible by tensor=8; "
        "use tensor of 1, 2, 3, 4, 6, 12, or model.n_heads of 16"
    )
    with pytest.raises(
        InputError, match=r"data=2 x fsdp=4 = 8; .*divides 12, .*global_batch of 16"
    ):
        check_divisible("batch.global_batch", 12, ["data", "fsdp"], MeshShape(data=2, fsdp=4))


@given(st.integers(1, 3000))
def test_divisors_are_all_divisors(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]
