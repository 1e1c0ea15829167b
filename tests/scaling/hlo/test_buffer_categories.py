"""What buffers are for, by the names of arguments and by who writes and reads them."""

import pytest

from scaling.hlo.buffer_categories import category_of_argument, with_categories
from scaling.program.ir import (
    Branch,
    Buffer,
    Category,
    Collective,
    Kernel,
    Loop,
    Operation,
    Origin,
    Phase,
    Program,
)


@pytest.mark.parametrize(
    "path, owner",
    [
        ("state.params.layers.mlp.up_DF.value", "parameters"),
        ("state.optimizer[1][0].mu.layers.mlp.up_DF", "optimizer_state"),
        ("opt_state[0].nu['kernel']", "optimizer_state"),
        ("optimizer[0].mu.params", "optimizer_state"),
        ("tokens.inputs", "activations"),
        ("batch['images']", "activations"),
        ("x", "activations"),
        ("weights['x']", "parameters"),
        ("params['inputs']['kernel']", "parameters"),
        ("w_up", "parameters"),
        ("state.step", "parameters"),
        ("", "parameters"),
    ],
)
def test_arguments_are_known_by_the_words_of_their_path(path: str, owner: str) -> None:
    assert category_of_argument(path) == owner


def step(name: str, phase: Phase, reads=(), writes=()) -> Kernel:
    return Kernel(name, Origin(phase), reads, writes)


def owner_of_first(*schedule: Operation, arguments=None, owner: Category = "temporary") -> str:
    buffer = Buffer("b", 1, owner)
    program = Program("p", "compiled", {}, schedule, (buffer, Buffer("c", 1, "temporary")))
    return with_categories(program, arguments or {}).buffers[0].category


@pytest.mark.parametrize(
    "written, read, owner",
    [
        ("forward", "backward", "activations"),
        ("forward", "remat", "activations"),
        ("remat", "backward", "activations"),
        ("remat", "remat", "temporary"),
        ("backward", "optimizer", "gradients"),
        ("forward", "forward", "temporary"),
        ("backward", "backward", "temporary"),
        ("", "optimizer", "temporary"),
        ("optimizer", "optimizer", "temporary"),
    ],
)
def test_buffers_are_known_by_the_phases_that_use_them(
    written: Phase, read: Phase, owner: str
) -> None:
    assert owner_of_first(step("a", written, (), (0,)), step("b", read, (0,))) == owner


def test_sums_of_gradients_over_microbatches_are_gradients() -> None:
    """Backward -> sum (of no phase) -> mean over replicas (of no phase) -> optimizer."""
    body = (step("back", "backward", (), (0,)), step("add", "", (0, 1), (1,)))
    steps = (
        step("zeros", "", (), (1,)),
        step("losses", "", (3,), (3,)),  # added up as well, for nobody but the user
        Loop("microbatches", reads=(1, 3), writes=(1, 3), body=body, trips=4),
        Collective("mean", Origin(), (1,), (2,), kind="all-reduce"),
        step("adam", "optimizer", (2, 4), (4,)),
        step("norm", "", (2,), (5,)),
    )
    buffers = tuple(Buffer(f"b{i}", 1, "temporary") for i in range(6))
    found = with_categories(Program("p", "compiled", {}, steps, buffers), {4: "params.head"})
    assert [b.category for b in found.buffers] == [
        *("gradients", "gradients", "gradients", "temporary", "parameters", "temporary")
    ]


def test_gradients_are_followed_through_what_keeps_their_size() -> None:
    """A pipeline sums in its backward pass; a product and a norm's scale start there."""
    product = Kernel("dot", Origin("backward"), (0,), (1,), kind="matmul", flops=1.0)
    steps = (
        step("stream", "backward", (), (0,)),
        product,
        step("add", "backward", (1, 2), (2,)),  # in float32, twice the bytes
        Collective("sum", Origin("backward"), (2,), (3,), kind="all-reduce"),
        step("scale", "backward", (0,), (4,)),
        step("adam", "optimizer", (3, 4), ()),
    )
    sizes = (8, 8, 16, 16, 1)
    buffers = tuple(Buffer(f"b{i}", size, "temporary") for i, size in enumerate(sizes))
    found = with_categories(Program("p", "compiled", {}, steps, buffers), {})
    assert [b.category for b in found.buffers] == ["temporary", *["gradients"] * 4]


def test_what_a_collective_makes_whole_is_communication_unless_it_is_kept_for_later() -> None:
    gather = Collective("g", Origin("forward"), (), (0,), kind="all-gather")
    assert owner_of_first(gather, step("b", "forward", (0,))) == "communication"
    assert owner_of_first(gather, step("b", "backward", (0,))) == "activations"
    reduce = Collective("r", Origin("forward"), (), (0,), kind="all-reduce")
    assert owner_of_first(reduce) == "temporary"


def test_uses_inside_loops_and_branches_count_and_those_of_the_loop_itself_do_not() -> None:
    """A loop touches all that it carries; its phase says nothing about any of it."""
    body = (step("b", "backward", (0,)),)
    branch = Branch("either", Origin("optimizer"), (0,), branches=((), body))
    loop = Loop("l", Origin("optimizer"), (0, 1), (0, 1), body=(branch,), trips=2)
    assert owner_of_first(step("a", "forward", (), (0,)), loop) == "activations"


def test_an_argument_keeps_its_owner_whoever_uses_it() -> None:
    uses = (step("a", "backward", (), (0,)), step("b", "optimizer", (0,)))
    assert owner_of_first(*uses, arguments={0: "params.head"}) == "parameters"


def test_host_memory_stays_host_memory() -> None:
    assert owner_of_first(arguments={0: "params.head"}, owner="pinned_host") == "pinned_host"
