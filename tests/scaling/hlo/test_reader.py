"""Compiled modules as Programs: short texts by hand, and the golden ones."""

from pathlib import Path

import pytest

from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes.errors import InputError
from scaling.program.ir import (
    Branch,
    Collective,
    Kernel,
    Loop,
    Origin,
    Program,
    Wait,
    collectives,
    kernels,
)
from scaling.simulate.memory import memory_use
from scaling.simulate.timeline import run_schedule
from tests.scaling.hlo.texts import ADD, text

GOLDEN = Path(__file__).parent / "golden"
MESH = {"data": 2, "tensor": 2}
GROUPS = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true, channel_id=1"
X = "x = f32[8,4] parameter(0);"


def read(main: str, **others: str) -> Program:
    """A module whose entry has a parameter %x, f32[8,4], and these lines."""
    return read_program(text(f"{X} {main}", **others), MESH, "name")


def test_a_synchronous_collective_is_waited_for_at_once() -> None:
    (found,) = read(f"r = f32[8,4] all-reduce(%x), {GROUPS}, to_apply=%sum", sum=ADD).schedule
    assert isinstance(found, Collective)
    assert (found.kind, found.axes, found.bytes) == ("all-reduce", ("tensor",), 128)
    assert (found.asynchronous, found.dtype, found.over) == (False, "fp32", ())
    assert found.line.startswith("ROOT %r = f32[8,4] all-reduce(%x)")


CALL = '{0} = f32[8,4] custom-call(%x), custom_call_target="{1}"'


def test_every_function_whose_work_is_not_known_is_named() -> None:
    calls = f"{CALL.format('a', 'my_kernel')}; {CALL.format('b', 'my_kernel')};"
    program = read(
        f"{calls} f = f32[8,4] fusion(%x), kind=kCustom, calls=%body",
        body=f"{X} {CALL.format('c', 'other')}",
    )
    unknown = ["my_kernel", "my_kernel", "other"]
    assert [k.unknown for k, _ in kernels(program)] == unknown
    assert [(k.kind, k.flops, k.bytes) for k, _ in kernels(program)] == [("custom", 0, 256)] * 3
    product = CALL.format("r", "__onednn$matmul").replace("%x", "%x, %x")
    (known,) = read(product).schedule
    assert known.unknown == ""  # a product of a library is no surprise


def test_work_that_the_host_does_beside_the_device_is_not_known() -> None:
    shape, call = "((f32[8,4]), f32[8,4], u32[])", 'custom_call_target="HostExecute"'
    start = f"s = {shape} custom-call-start(%x), {call}"
    found, wait = read(f"{start}; d = f32[8,4] custom-call-done(%s)").schedule
    assert (found.unknown, found.asynchronous, wait.name) == ("HostExecute", True, "s")


@pytest.mark.parametrize("opcode", ["negate(%x)", f"all-reduce(%x), {GROUPS}, to_apply=%sum"])
def test_two_steps_of_one_name_are_an_error(opcode: str) -> None:
    """Both would have the price of one of them."""
    main = "n = f32[8,4] abs(%x); c = f32[8,4] call(%n), to_apply=%body"
    with pytest.raises(UnknownHlo, match=r"%n stands in main and in body: 'ROOT %n = f32") as said:
        read(main, body=f"{X} n = f32[8,4] {opcode}", sum=ADD)
    assert opcode.split("(")[0] in str(said.value)


def test_a_computation_that_is_called_twice_has_its_steps_twice() -> None:
    calls = "c = f32[8,4] call(%x), to_apply=%body; d = f32[8,4] call(%c), to_apply=%body"
    program = read(calls, body=f"{X} n = f32[8,4] negate(%x)")
    assert [kernel.name for kernel, _ in kernels(program)] == ["n", "n"]


@pytest.mark.parametrize(
    "pairs, axes, groups",
    [
        ("{{0,3},{3,0},{1,2},{2,1}}", ("data", "tensor"), ((0, 3), (3, 0), (1, 2), (2, 1))),
        ("{{0,2},{1,3}}", ("data",), ((0, 2), (1, 3))),  # the last stage sends nothing
        ("{{0,1},{1,2},{2,3},{3,0}}", ("data", "tensor"), ()),
        ("{{0,3},{3,2},{2,1},{1,0}}", ("data", "tensor"), ()),
        ("{{0,0},{1,1}}", (), ()),
    ],
)
def test_a_permute_that_is_no_ring_keeps_its_pairs_beside_its_axes(pairs, axes, groups) -> None:
    program = read(f"r = f32[8,4] collective-permute(%x), source_target_pairs={pairs}")
    (found,) = program.schedule
    assert isinstance(found, Collective) and (found.axes, found.groups) == (axes, groups)
    assert not program.warnings


GATHER = f"s = (f32[8,4], f32[16,4]) all-gather-start(%x), {GROUPS}, dimensions={{0}}"


def test_an_asynchronous_pair_is_a_collective_and_a_wait() -> None:
    program = read(f"""{GATHER}
        n = f32[8,4] negate(%x)
        d = f32[16,4] all-gather-done(%s)
        e = f32[16,4] reverse(%d)""")
    start, kernel, wait, last = program.schedule
    assert isinstance(start, Collective) and start.asynchronous
    assert isinstance(wait, Wait) and wait.name == start.name == "s"
    assert [step.name for step in (kernel, last)] == ["n", "e"]
    gathered = program.buffers[start.writes[-1]]
    assert (gathered.bytes, gathered.category) == (256, "communication")
    assert set(wait.writes) <= set(start.writes)  # the done makes no second buffer
    times = {"s": 3.0, "n": 1.0, "e": 1.0}
    assert run_schedule(program, times).exposed_communication == 2.0


def test_a_pair_that_the_compiler_runs_at_once_is_synchronous() -> None:
    config = 'backend_config={"collective_backend_config":{"is_sync":true}}'
    (found,) = read(f"{GATHER}, {config}; d = f32[16,4] all-gather-done(%s)").schedule
    assert isinstance(found, Collective) and not found.asynchronous


def test_a_collective_in_an_asynchronous_call_is_that_collective() -> None:
    program = read(
        """s = ((f32[8,4]), f32[4,4], s32[]) async-start(%x), calls=%scatter
        u = ((f32[8,4]), f32[4,4], s32[]) async-update(%s)
        d = f32[4,4] async-done(%u)""",
        scatter=f"{X} r = f32[4,4] reduce-scatter(%x), {GROUPS}, dimensions={{0}}, to_apply=%sum",
        sum=ADD,
    )
    start, wait = program.schedule
    assert isinstance(start, Collective) and start.kind == "reduce-scatter" and start.asynchronous
    assert isinstance(wait, Wait) and wait.name == start.name == "s"


ASYNC = "s = ((f32[8,4]), f32[8,4], s32[]) async-start(%x), calls=%f; d = f32[8,4] async-done(%s)"


def test_a_kernel_in_an_asynchronous_call_runs_beside_compute() -> None:
    start, wait = read(ASYNC, f=f"{X} n = f32[8,4] negate(%x)").schedule
    assert isinstance(start, Kernel) and start.asynchronous and start.vector_flops == 32
    assert isinstance(wait, Wait) and wait.name == start.name == "s"


def test_asynchronous_work_that_costs_nothing_leaves_no_trace() -> None:
    assert read(ASYNC, f=f"{X} n = f32[8,4] bitcast(%x)").schedule == ()


def test_a_copy_to_the_host_is_asynchronous_and_held_there() -> None:
    program = read("""s = (f32[8,4]{1,0:S(5)}, f32[8,4], u32[]) copy-start(%x)
        d = f32[8,4]{1,0:S(5)} copy-done(%s)""")
    start, wait = program.schedule
    assert isinstance(start, Kernel) and start.kind == "copy" and start.asynchronous
    assert isinstance(wait, Wait)
    assert memory_use(program).pinned_host == 128


def test_temporaries_of_the_device_do_not_lie_in_results_on_the_host() -> None:
    program = read("""t = f32[8,4] exponential(%x); a = f32[8,4] reverse(%t), dimensions={0}
        s = (f32[8,4]{1,0:S(5)}, f32[8,4], u32[]) copy-start(%a)
        d = f32[8,4]{1,0:S(5)} copy-done(%s)""")
    use = memory_use(program)
    assert (use.peak, use.pinned_host) == (3 * 128, 128)


def test_what_the_compiler_planned_is_of_the_device_without_arrays_that_stay_on_the_host() -> None:
    copied = "y = f32[8,4] copy(%x)"
    given = text(f"x = f32[8,4]{{1,0:S(5)}} parameter(0); {copied}")
    assert read_program(given, MESH, "name", 256).compiler_peak == 128
    assert read_program(text(f"{X} {copied}"), MESH, "name", 256).compiler_peak == 256


@pytest.mark.parametrize(
    "known, trips", [(', backend_config={"known_trip_count":{"n":"12"}}', 12), ("", 1)]
)
def test_a_loop_runs_as_often_as_the_compiler_knows_or_once_and_says_so(known, trips) -> None:
    program = read(
        f"t = (f32[8,4]) tuple(%x); l = (f32[8,4]) while(%t), condition=%go, body=%body{known}",
        go="c = (f32[8,4]) parameter(0); g = pred[] constant(true)",
        body="""p = (f32[8,4]) parameter(0); v = f32[8,4] get-tuple-element(%p), index=0
            w = f32[8,4] negate(%v); out = (f32[8,4]) tuple(%w)""",
    )
    (loop,) = program.schedule
    assert isinstance(loop, Loop) and loop.trips == trips
    assert [(k.name, calls) for k, calls in kernels(program)] == [("w", trips)]
    assert loop.unknown == ("" if known else "l")


@pytest.mark.parametrize(
    "branches",
    ["branch_computations={%one, %two}", "true_computation=%two, false_computation=%one"],
)
def test_a_conditional_has_its_branches_in_the_order_of_the_code(branches: str) -> None:
    main = f"k = s32[] constant(1); r = f32[8,4] conditional(%k, %x, %x), {branches}"
    program = read(main, one="b = f32[8,4] parameter(0)", two=f"{X} e = f32[8,4] sine(%x)")
    (branch,) = program.schedule
    assert isinstance(branch, Branch)
    assert [[step.name for step in block] for block in branch.branches] == [[], ["e"]]
    assert run_schedule(program, {"e": 2.0}).total == 2.0


ON_GPU = 'backend_config={"operation_queue_id":"0"}'


@pytest.mark.parametrize("config", ["", f", {ON_GPU}"])
@pytest.mark.parametrize("known", ["", ', backend_config={"known_trip_count":{"n":"7"}}'])
def test_the_host_of_a_gpu_reads_the_condition_of_a_loop_of_unknown_length(config, known) -> None:
    body = f"""p = (f32[8,4]) parameter(0); v = f32[8,4] get-tuple-element(%p), index=0
        w = f32[8,4] fusion(%v), kind=kLoop, calls=%half{config}; out = (f32[8,4]) tuple(%w)"""
    condition = """c = (f32[8,4]) parameter(0); d = f32[8,4] get-tuple-element(%c), index=0
        s = f32[1,4] slice(%d), slice={[0:1], [0:4]}
        g = pred[] custom-call(%s), custom_call_target="PadToStatic"
        """
    main = f"t = (f32[8,4]) tuple(%x); l = (f32[8,4]) while(%t), condition=%go, body=%body{known}"
    half = "a = f32[8,4] parameter(0); b = f32[8,4] negate(%a)"
    (loop,) = read(main, half=half, go=condition, body=body).schedule
    assert isinstance(loop, Loop)
    names = [step.name for step in loop.body]
    if known:
        assert names == ["w"]
    else:
        assert names == ["s", "g", *["l read"] * bool(config), "w"]
    waits = [step.chain for step in loop.body if isinstance(step, Kernel) and step.chain]
    assert waits == [9e-6] * (bool(config) and not known)


def test_the_host_of_a_gpu_reads_which_branch_runs() -> None:
    one = f"{X} n = f32[8,4] fusion(%x), kind=kLoop, calls=%half, {ON_GPU}"
    half = "a = f32[8,4] parameter(0); b = f32[8,4] negate(%a)"
    main = "k = s32[] constant(1); r = f32[8,4] conditional(%k, %x, %x), "
    program = read(
        f"{main}branch_computations={{%one, %two}}",
        half=half,
        one=one,
        two="z = f32[8,4] parameter(0)",
    )
    assert [step.name for step in program.schedule] == ["r read", "r"]


def test_a_call_is_what_it_calls() -> None:
    (kernel,) = read("c = f32[8,4] call(%x), to_apply=%f", f=f"{X} n = f32[8,4] sine(%x)").schedule
    assert isinstance(kernel, Kernel) and (kernel.name, kernel.transcendentals) == ("n", 32)
    assert kernel.reads == (0,)


def test_names_phases_and_layers_come_along() -> None:
    name = 'metadata={op_name="jit(f)/transpose(jvp(mlp))/neg"}'
    (kernel,) = read(f"n = f32[8,4] negate(%x), {name}").schedule
    assert kernel.origin == Origin("backward", "mlp")


def test_what_a_loop_carries_needs_no_memory_once_it_is_sent() -> None:
    """320 floats are made from what came in; what was sent is needed no longer."""
    body = """p = (f32[8,4]) parameter(0); v = f32[8,4] get-tuple-element(%p), index=0
        s = (f32[8,4], f32[8,4]) collective-permute-start(%v), source_target_pairs={{0,1},{1,0}}
        d = f32[8,4] collective-permute-done(%s)
        b = f32[80,4] concatenate(%d, %d, %d, %d, %d, %d, %d, %d, %d, %d), dimensions={0}
        w = f32[8,4] slice(%b), slice={[0:8], [0:4]}; t = (f32[8,4]) tuple(%w)"""
    main = """n = f32[8,4] negate(%x); t0 = (f32[8,4]) tuple(%n)
        l = (f32[8,4]) while(%t0), condition=%condition, body=%body
        e = f32[8,4] get-tuple-element(%l), index=0; r = f32[1,1] slice(%e)"""
    condition = "c = (f32[8,4]) parameter(0); go = pred[] constant(true)"
    program = read(main, body=body, condition=condition)
    arguments, came_in, made, result = 4 * 32, 4 * 32, 4 * 320, 4
    constant = 1
    assert memory_use(program).peak == arguments + came_in + made + result + constant


def test_devices_that_are_no_axes_are_kept_and_warned_about() -> None:
    groups = "replica_groups={{0,3},{1,2}}, use_global_device_ids=true, channel_id=1"
    program = read(f"r = f32[8,4] all-reduce(%x), {groups}, to_apply=%sum", sum=ADD)
    ((found, _),) = collectives(program)
    assert (found.axes, found.groups) == ((), ((0, 3), (1, 2)))
    (warning,) = program.warnings
    assert "r (all-reduce among devices [0, 3]" in warning and "{'data': 2, 'tensor': 2}" in warning


@pytest.mark.parametrize(
    "line",
    [
        "r = f32[8,4] all-frobnicate(%x), replica_groups={{0,1}}",
        "r = f32[8,4] all-gather(%x), replica_groups=[strange]",
        "r = f32[8,4] frobnicate(%x)",
        "r = f32[8,4] copy-done(%x)",
    ],
)
def test_what_is_not_known_is_bad_input_that_names_the_line(line: str) -> None:
    with pytest.raises(UnknownHlo) as caught:
        read(line)
    assert line.split("(")[0] in str(caught.value)
    assert "please report it" in str(caught.value)
    assert isinstance(caught.value, InputError)  # the command line prints it and exits with 2


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.hlo")), ids=lambda path: path.stem)
def test_every_golden_text_reads_as_a_program_that_replays(path: Path) -> None:
    program = read_program(path.read_text(), {"data": 2, "fsdp": 2, "tensor": 2}, path.stem)
    kinds = sorted(c.kind for c, _ in collectives(program))
    assert kinds == ["all-gather", "all-reduce", "all-to-all", "permute", "reduce-scatter"]
    names = [step.name for found in (kernels, collectives) for step, _ in found(program)]
    assert run_schedule(program, dict.fromkeys(names, 1.0)).total > 0
    assert memory_use(program).peak > 0
    assert {buffer.name for buffer in program.buffers if buffer.persistent}
