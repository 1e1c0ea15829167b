"""Phases and layers: from single names, by votes, and of the instructions of a module."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.attribution import PHASES, majority, origins, read_name
from scaling.hlo.parse import Module, parse_module
from scaling.program.ir import Origin
from tests.scaling.hlo.texts import module

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional")
UNKNOWN = Origin()


# Names


@pytest.mark.parametrize(
    "name, phase, layer",
    [
        ("jit(step)/jvp(layers)/while/body/closed_call/mlp/mul", "forward", "layers/mlp"),
        ("jit(step)/jvp(layers)/while", "forward", "layers"),
        ("jit(step)/jvp()/reduce_sum", "forward", ""),
        ("jit(step)/jvp(head)/bsd,vd->bsv/dot_general", "forward", "head"),
        ("jit(step)/jvp(embed)/shard_map/jit(_where)/select_n", "forward", "embed"),
        ("jit(step)/jvp(jit(_where))/select_n", "forward", ""),
        ("jit(step)/jvp(vmap(experts))/dot_general", "forward", "experts"),
        ("jit(step)/transpose(jvp(head))/jvp(head)/checkpoint/mul", "backward", "head"),
        ("jit(step)/transpose(jvp(layers))/while/body/sub", "backward", "layers"),
        ("jit(f)/transpose(jvp(gate))/cond/branch_1_fun/mlp/cos", "backward", "gate/mlp"),
        ("jit(f)/transpose(jvp(a))/b/jvp(a)/b/checkpoint/c/mul", "backward", "a/b/c"),
        ("jit(f)/transpose(jvp(a))/while/body/closed_call/b/b/checkpoint/mul", "backward", "a/b"),
        ("jit(f)/transpose(jvp(a))/checkpoint/rematted_computation/b/mul", "remat", "a/b"),
        ("jit(f)/jvp(transpose(jvp(a)))/mul", "backward", "a"),
        ("jit(step)/optimizer/jit(clip)/max", "optimizer", ""),
        ("jit(step)/optimizer/norm/square", "optimizer", "norm"),
        ("jit(step)/layers/while/body/eval_jaxpr/mlp/dot_general", "", "layers/mlp"),
        ("jit(step)/add", "", ""),
        ("jit(step)/while/body/closed_call/add", "", ""),
    ],
)
def test_a_name_tells_phase_and_layer(name: str, phase: str, layer: str) -> None:
    assert read_name(name) == Origin(phase, layer)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "state.params.layers.mlp.up_DF.value",
        "params['block/attention']['w']",
        "reduce_sum",
        "broadcast.75",
        "vmap(BNTS,BSNH->BTNH)/transpose",
        "attention/checkpoint/reduce_sum",
        "jit(step)/while",
        "jit(step)/while/body/closed_call",
    ],
)
def test_arguments_fragments_and_places_tell_nothing(name: str) -> None:
    assert read_name(name) is None


SCOPES = st.lists(st.sampled_from(["block_0", "attention", "mlp", "norm"]), unique=True, max_size=4)
AROUND = st.sampled_from(["while/body/closed_call", "cond/branch_0_fun", "jit(f)", "checkpoint"])


@given(SCOPES, st.lists(AROUND, max_size=4), st.sampled_from(["", "jvp", "transpose(jvp"]))
def test_control_flow_between_scopes_changes_nothing(scopes, around, transform) -> None:
    first = scopes[0] if scopes else ""
    wrapped = f"{transform}({first}" + ")" * (transform.count("(") + 1) if transform else first
    parts = ["jit(step)", *filter(None, [wrapped]), *around]
    for scope in scopes[1:]:
        parts += [scope, *around]
    phase = {"": "", "jvp": "forward", "transpose(jvp": "backward"}[transform]
    assert read_name("/".join([*parts, "mul"])) == Origin(phase, "/".join(scopes))


@given(SCOPES, SCOPES)
def test_scopes_that_a_transposed_checkpoint_repeats_count_once(outer, inner) -> None:
    once = "/".join([*outer, *inner])
    twice = "/".join(["jit(f)", "transpose(jvp())", *outer, *outer, *inner, "mul"])
    apart = not set(outer) & set(inner)
    assert not apart or read_name(twice) == Origin("backward", once)


# Votes


def test_the_phase_with_most_bytes_wins() -> None:
    votes = {Origin("forward", "mlp"): 3.0, Origin("backward", "a"): 2, Origin("backward", "b"): 2}
    assert majority(votes) == Origin("backward", "")
    assert majority({}) is None


def test_a_layer_needs_more_than_half_of_the_bytes() -> None:
    both = {Origin("remat", "layers/attention"): 1.0, Origin("remat", "layers/mlp"): 1.0}
    assert majority(both) == Origin("remat", "layers")
    assert majority({**both, Origin("remat", "layers/mlp"): 1.1}) == Origin("remat", "layers/mlp")


def test_of_phases_with_equal_bytes_the_last_wins() -> None:
    assert majority({Origin("backward"): 1.0, Origin("remat"): 1.0}) == Origin("backward")
    assert majority({Origin(): 1.0, Origin("forward"): 1.0}) == Origin("forward")


LAYERS = st.sampled_from(["", "head", "layers", "layers/attention", "layers/mlp"])
VOTES = st.dictionaries(
    st.builds(Origin, st.sampled_from(["", "forward", "remat", "backward"]), LAYERS),
    st.integers(1, 2**40),
    min_size=1,
)


@given(VOTES, st.integers(1, 1000))
def test_a_majority_depends_on_shares_only_and_holds_one(votes, factor) -> None:
    won = majority(votes)
    assert majority({origin: factor * weight for origin, weight in votes.items()}) == won
    phase = {o.layer: w for o, w in votes.items() if o.phase == won.phase}
    under = sum(w for layer, w in phase.items() if f"{layer}/".startswith(f"{won.layer}/"))
    assert won.layer == "" or 2 * under > sum(phase.values())
    others = {o.phase for o in votes} - {won.phase}
    for other in others:
        assert sum(phase.values()) >= sum(w for o, w in votes.items() if o.phase == other)


# Modules


def named(name: str) -> str:
    return f'metadata={{op_name="jit(step)/{name}"}}'


def by_name(read: Module) -> dict[tuple[str, str], Origin]:
    """(computation, instruction) -> its origin."""
    return {(i.computation.name, i.name): origin for i, origin in origins(read).items()}


def of_entry(main: str, **others: str) -> dict[str, Origin]:
    found = by_name(module(main, **others)).items()
    return {name: origin for (block, name), origin in found if block == "main"}


FORWARD, BACKWARD = named("jvp(mlp)/mul"), named("transpose(jvp(mlp))/mul")
REMAT = named("transpose(jvp(mlp))/checkpoint/rematted_computation/mul")
HEAD = named("transpose(jvp(head))/mul")
X = "x = f32[8] parameter(0);"


def test_a_fusion_comes_from_where_its_product_does() -> None:
    body = f"""p = f32[8,8] parameter(0); q = f32[8,8] parameter(1)
        a = f32[8,8] multiply(%p, %q), {REMAT}
        b = f32[8,8] exponential(%a), {REMAT}
        d = f32[8,8] dot(%b, %q), lhs_contracting_dims={{1}}, {BACKWARD}"""
    call = f"f = f32[8,8] fusion(%x, %x), kind=kCustom, calls=%fused, {REMAT}"
    found = of_entry(f"x = f32[8,8] parameter(0); {call}", fused=body)
    assert found["f"] == Origin("backward", "mlp")
    assert set(found) == {"x", "f"}  # what is fused is no step of its own


def test_a_fusion_without_product_comes_from_where_most_of_its_arithmetic_does() -> None:
    given = "p = f32[9,8] parameter(0); n = s32[] parameter(1);"
    body = f"""{given} s = f32[1,8] dynamic-slice(%p, %n, %n), {HEAD}
        i = s32[] add(%n, %n), {HEAD}
        a = f32[1,8] multiply(%s, %s), {REMAT}
        b = f32[1,8] exponential(%a), {REMAT}
        c = f32[1,8] negate(%b), {BACKWARD}
        u = f32[9,8] dynamic-update-slice(%p, %c, %n, %n), {BACKWARD}"""
    call = f"f = f32[9,8] fusion(%p, %n), kind=kLoop, calls=%fused, {BACKWARD}"
    assert of_entry(f"{given} {call}", fused=body)["f"] == Origin("remat", "mlp")


def test_a_combined_collective_weighs_its_operands() -> None:
    name = "(optimizer/reduce_sum:optimizer/reduce_sum:transpose(jvp(head))/dot_general)"
    found = of_entry(f"""x = f32[] parameter(0); y = f32[] parameter(1); z = f32[8] parameter(2)
        r = (f32[], f32[], f32[8]) all-reduce(%x, %y, %z), to_apply=%sum, {named(name)}""")
    assert found["r"] == Origin("backward", "head")


def test_a_name_joined_by_a_semicolon_is_two() -> None:
    both = 'metadata={op_name="jit(f)/transpose(jvp(a))/mul;jit(f)/transpose(jvp(a))/b/neg"}'
    assert of_entry(f"{X} y = f32[8] negate(%x), {both}")["y"] == Origin("backward", "a")


def test_a_collective_without_a_name_comes_from_what_it_sums() -> None:
    found = of_entry(f"""{X} p = f32[8] negate(%x), {BACKWARD}
        q = f32[2,4] bitcast(%p)
        s = ((f32[2,4]), f32[1,4]) reduce-scatter-start(%q), dimensions={{0}}
        d = f32[1,4] reduce-scatter-done(%s)
        u = f32[1,4] negate(%d), {named("optimizer/add")}""")
    assert found["s"] == found["d"] == found["q"] == Origin("backward", "mlp")


def test_shared_constants_and_arguments_lead_nowhere() -> None:
    found = of_entry(f"""x = f32[8] parameter(0), {named("optimizer/add")}
        c = f32[] constant(0), {named("optimizer/add")}
        b = f32[8] broadcast(%c), dimensions={{}}
        t = f32[8] copy(%x)
        y = f32[8] add(%b, %t), {FORWARD}
        z = f32[8] copy(%x)""")
    assert found["b"] == found["t"] == Origin("forward", "mlp")
    assert found["z"] == found["x"] == found["c"] == UNKNOWN


@pytest.mark.parametrize("first, second", [(REMAT, HEAD), (HEAD, REMAT)])
def test_a_product_without_a_name_is_as_late_as_its_latest_operand(first, second) -> None:
    found = of_entry(f"""x = f32[8,8] parameter(0)
        a = f32[8,8] negate(%x), {first}
        b = f32[8,8] negate(%x), {second}
        d = f32[8,8] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""")
    assert found["d"] == Origin("backward", "head")


def looping(outer: str, inner: str) -> Module:
    """A loop with a loop inside, which fills a buffer of zeros that was made before both."""
    body = f"""q = (f32[8], f32[8]) parameter(0)
        kept = f32[8] get-tuple-element(%q), index=0
        filled = f32[8] get-tuple-element(%q), index=1
        plain = f32[8] negate(%kept), {named("while/body/closed_call/add")}
        in = (f32[8]) tuple(%filled)
        loop = (f32[8]) while(%in), body=%inner, {inner}
        out = f32[8] get-tuple-element(%loop), index=0
        both = (f32[8], f32[8]) tuple(%plain, %out)"""
    main = f"""{X} c = f32[] constant(0); zeros = f32[8] broadcast(%c), dimensions={{}}
        start = (f32[8], f32[8]) tuple(%x, %zeros)
        steps = (f32[8], f32[8]) while(%start), body=%body, {outer}"""
    copy = "v = f32[8] get-tuple-element(%p), index=0; w = f32[8] copy(%v); t = (f32[8]) tuple(%w)"
    return module(main, inner=f"p = (f32[8]) parameter(0); {copy}", body=body)


def test_an_initial_buffer_comes_from_the_loop_that_uses_it() -> None:
    layers = Origin("backward", "layers")
    found = by_name(looping(named("while"), named("while/body/transpose(jvp(layers))/while")))
    assert found["main", "zeros"] == found["body", "loop"] == layers
    assert found["inner", "w"] == layers  # nothing but the loop around it tells
    assert found["body", "plain"] == found["main", "steps"] == UNKNOWN
    found = by_name(looping(named("jvp(outer)/while"), named("jvp(outer)/while/body/while")))
    assert found["main", "zeros"] == Origin("forward", "outer")


def test_every_branch_and_called_computation_is_read() -> None:
    gate = named("jvp(gate)/cond")
    main = f"""i = s32[] parameter(0); x = f32[8] parameter(1)
        c = f32[8] conditional(%i, %x, %x), branch_computations={{%no, %yes}}, {gate}
        r = f32[8] call(%c), to_apply=%task"""
    found = by_name(
        module(
            main,
            yes=f"{X} m = f32[8] negate(%x), {named('jvp(gate)/cond/branch_1_fun/mlp/neg')}",
            no=f"{X} n = f32[8] copy(%x)",
            task=f"{X} k = f32[8] negate(%x), {BACKWARD}",
        )
    )
    assert found["yes", "m"] == Origin("forward", "gate/mlp")
    assert found["no", "n"] == found["main", "c"] == Origin("forward", "gate")
    assert found["main", "r"] == found["task", "k"] == Origin("backward", "mlp")


def test_what_xla_computes_once_more_is_remat_but_what_it_only_moves_is_not() -> None:
    found = of_entry(f"""{X} twice = f32[8] negate(%x), {FORWARD}
        once.remat = f32[8] negate(%x), {BACKWARD}
        twice.remat2 = f32[8] negate(%x), {FORWARD}
        a.remat = f32[8] negate(%x), {named("optimizer/neg")}
        a.remat2 = f32[8] negate(%x), {named("optimizer/neg")}""")
    assert found["twice"] == Origin("forward", "mlp")
    assert found["twice.remat2"] == Origin("remat", "mlp")
    assert found["once.remat"] == Origin("backward", "mlp")
    assert found["a.remat2"] == Origin("optimizer")


# Compiled steps


def compiled(step: Callable, *arguments: jax.Array) -> dict[Origin, list[str]]:
    """Origin -> operations of a jitted function."""
    read = parse_module(jax.jit(step).lower(*arguments).compile().as_text())
    found: dict[Origin, list[str]] = {}
    for i, origin in origins(read).items():
        if i.opcode not in FREE:
            found.setdefault(origin, []).append(i.op_name.rpartition("/")[2])
    return found


def test_a_step_of_plain_functions_has_phases_and_no_layers() -> None:
    """Its optimiser has no scope and is left unknown, not guessed."""

    def loss(w, x):
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)
        return jnp.mean(x**2)

    def step(w, x):
        value, gradient = jax.value_and_grad(loss)(w, x)
        return value, optax.apply_updates(w, -0.1 * gradient)

    found = compiled(step, jnp.ones((3, 16, 16)), jnp.ones((4, 16)))
    assert set(found) == {Origin("forward"), Origin("backward"), UNKNOWN}
    assert set(found[UNKNOWN]) <= {"add", "mul", "neg"}
    assert "tanh" in found[Origin("forward")] and "dot_general" in found[Origin("backward")]


def test_scopes_of_any_function_become_layers() -> None:
    def block(x, w):
        with jax.named_scope("up"):
            x = jnp.tanh(x @ w)
        with jax.named_scope("down"):
            return jnp.sin(x @ w.T)

    def loss(w, x):
        for i in range(2):
            with jax.named_scope(f"block_{i}"), jax.named_scope("residual"):
                x = x + jax.checkpoint(block)(x, w[i])
        return x.sum()

    def step(w, x):
        value, gradient = jax.value_and_grad(loss)(w, x)
        with jax.named_scope("optimizer"):
            return value, w - gradient / jnp.sqrt(jnp.sum(gradient**2))

    found = compiled(step, jnp.ones((2, 16, 16)), jnp.ones((4, 16)))
    scopes = [f"block_{i}/residual/{scope}" for i in range(2) for scope in ("up", "down")]
    layers = {phase: {o.layer for o in found if o.phase == phase} for phase in PHASES}
    assert layers["forward"] >= set(scopes) and layers["backward"] >= set(scopes)
    assert all("block_0/residual/block_0" not in origin.layer for origin in found)
    assert Origin("optimizer") in found and UNKNOWN not in found
