"""Anybody's state, step and data in our loop: resumed exactly, and refused in one line."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.run.own import Loop, OwnRun, document_of, load_any, own_run
from scaling.training import loop
from scaling.training.data.own_batches import OwnBatches
from scaling.training.launch.stopping import NotFinite
from scaling.training.own import compile_own, plan_own
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics

STEPS, WIDTH = 6, 8
TARGETS = np.random.default_rng(0).normal(size=(WIDTH, 4)).astype(np.float32)


def rows(seed):
    x = np.random.default_rng(seed).normal(size=(16, WIDTH)).astype(np.float32)
    return {"x": x, "y": x @ TARGETS}


class Stateful:
    """Batches whose iterator has a position, as JSON or as bytes."""

    def __init__(self, pack=lambda n: {"at": n}, unpack=lambda state: state["at"]):
        self.at, self.pack, self.unpack = 0, pack, unpack

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return rows(self.at)

    def get_state(self):
        return self.pack(self.at)

    def set_state(self, state):
        self.at = self.unpack(state)


DATA = {
    "a generator": lambda: map(rows, range(1, 100)),
    "a list": lambda: [rows(n) for n in range(1, STEPS + 2)],
    "a position": Stateful,
    "bytes": lambda: Stateful(lambda n: str(n).encode(), int),
}


def make(mesh, data=Stateful, rate=0.1):
    """A linear model by hand: its state has a random key and a number of Python."""
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def step(state, batch):
        def loss(w):
            return jnp.mean((batch["x"] @ w - batch["y"]) ** 2)

        value, gradient = jax.value_and_grad(loss)(state["w"])
        key, noise = jax.random.split(state["key"])
        w = state["w"] - rate * gradient + 1e-3 * jax.random.normal(noise, gradient.shape)
        return {"w": w, "key": key, "count": state["count"] + 1}, {
            "loss": value,
            "w": {"max": w.max()},
        }

    jitted = jax.jit(step, in_shardings=(whole, cut), out_shardings=(whole, None), donate_argnums=0)
    state = {"w": np.zeros((WIDTH, 4), np.float32), "key": jax.random.key(1), "count": 0}
    return sc.Training(
        state=state,
        step=jitted,
        data=data(),
        evaluate=lambda state: {"largest": jnp.abs(state["w"]).max()},
        tokens=16,
    )


def trained(folder, function=make, resume=False, **settings):
    """The outcome of a run of a function, and its state."""
    train = Loop(**{"steps": STEPS, **settings})
    plan = plan_own(OwnRun("own", "own.py:make", train=train, make=function), resume)
    training, notes = compile_own(plan)
    outcome = loop.train(plan, training, Options(folder, resume))
    return outcome, notes


def losses(folder):
    return {line["step"]: line["loss"] for line in read_metrics(folder) if "loss" in line}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The losses of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    trained(folder, eval_every=3, checkpoint_every=4)
    return folder


@pytest.mark.parametrize("data", DATA)
def test_a_resumed_run_goes_on_to_the_bit_with_or_without_a_position(data, whole, tmp_path):
    function = partial(make, data=DATA[data])
    trained(tmp_path, function, steps=3)
    outcome, _ = trained(tmp_path, function, resume=True)
    assert (outcome.step, outcome.new_steps) == (STEPS, 3)
    assert losses(tmp_path) == losses(whole)


def test_the_run_folder_has_metrics_evaluations_and_a_run_json_that_reads_back(whole):
    lines = read_metrics(whole)
    first = next(line for line in lines if "loss" in line)
    assert (first["tokens"], first["learning_rate"], first["grad_norm"]) == (16, None, None)
    assert first["w/max"] > 0
    assert [line["step"] for line in lines if "largest" in line] == [3, STEPS]
    run = load_any(whole / "run.json")
    assert isinstance(run, OwnRun) and run.mesh == {"data": jax.device_count()}
    measured = json.loads((whole / "measured.json").read_text())
    assert measured["memory"]["compiled"] > 0 and measured["step_time"]["steps"] == STEPS - 3


def test_data_that_end_end_the_run_with_a_checkpoint(tmp_path, capsys):
    outcome, _ = trained(tmp_path, partial(make, data=lambda: [rows(1), rows(2)]))
    assert (outcome.step, outcome.stopped_by) == (2, "")
    assert "the data ended after step 2" in capsys.readouterr().err
    assert (tmp_path / "checkpoints" / "step_00000002").is_dir()


def test_a_batch_without_a_finite_loss_is_saved_by_its_own_names(tmp_path):
    function = partial(
        make, data=lambda: [rows(1), {**rows(2), "y": np.full((16, 4), np.nan, "f")}]
    )
    said = "step 2: loss nan; its .* Lower the learning rate of .* or clip its gradients; .* no"
    with pytest.raises(NotFinite, match=said):
        trained(tmp_path, function)
    with np.load(tmp_path / "nan_step_2.npz") as saved:
        assert set(saved) == {"step", "x", "y"} and np.isnan(saved["y"]).all()


def changed(**fields):
    return lambda mesh: replace(make(mesh), **fields)


def with_step(step, state=0.0):
    return changed(step=jax.jit(step), state=state, data=[1.0])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda mesh: (1, []), r"returned \(int, list\): return scaling.Training\("),
        (lambda mesh: None, "returned nothing: return scaling.Training"),
        (lambda mesh: 1 / 0, "ZeroDivisionError"),
        (changed(step=lambda s, b: s), "step is a function that is not jitted: give step=jax.jit"),
        (changed(data=3), "data is an int, no iterable"),
        (changed(data=[]), "the data have no batch"),
        (changed(state="weights"), "the state holds a str"),
        (with_step(lambda s, b: s), "the step returned a ShapeDtypeStruct: return"),
        (with_step(lambda s, b: (s, {"x": b})), r"metrics \(x\) none is called loss"),
        (with_step(lambda s, b: (s, {})), r"metrics \(none\) none is called loss"),
        (with_step(lambda s, b: (s, jnp.ones(3))), r"the loss has shape \[3\]: return its mean"),
        (
            with_step(lambda s, b: ((s, s), b)),
            r"state itself as float32\[\] and returns it as missing",
        ),
        (
            with_step(lambda s, b: ({"w": s["w"].astype("bfloat16")}, b), {"w": np.ones(2, "f")}),
            r"state w as float32\[2\] and returns it as bfloat16\[2\]",
        ),
        (with_step(lambda s, b: (s, {"loss": b, "time": b})), "'time' has the name of a figure"),
        (with_step(lambda s, b: s.missing), "AttributeError"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line_before_anything_is_compiled(function, said):
    with pytest.raises(InputError, match=said) as caught:
        plan_own(OwnRun("own", "own.py:make", make=function))
    assert "\n" not in str(caught.value)


def test_a_mesh_of_other_devices_and_an_evaluation_that_is_not_there_are_refused():
    run = OwnRun("own", "own.py:make", make=make)
    with pytest.raises(InputError, match=r"mesh data=3,model=2 has 6 devices, there are"):
        plan_own(replace(run, mesh={"data": 3, "model": 2}))
    without = replace(run, make=changed(evaluate=None), train=Loop(eval_every=2))
    with pytest.raises(InputError, match=r"train.eval_every=2: .* returned no `evaluate`"):
        plan_own(without)


def test_a_state_that_comes_out_elsewhere_is_named():
    def function(mesh):
        whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
        step = lambda s, b: ({"w": s["w"] + b}, b)
        jitted = jax.jit(
            step, in_shardings=({"w": whole}, whole), out_shardings=({"w": cut}, whole)
        )
        return sc.Training(state={"w": np.ones(8, "f")}, step=jitted, data=[np.float32(1)])

    with pytest.raises(InputError, match="takes state w as .* and returns it as .*out_shardings"):
        compile_own(plan_own(OwnRun("own", "own.py:make", make=function)))


def test_what_wastes_memory_or_devices_is_noted():
    step = lambda s, b: (s + b, b)
    plain = lambda mesh: sc.Training(state=0.0, step=jax.jit(step), data=[np.float32(1)])
    _, notes = compile_own(plan_own(OwnRun("own", "own.py:make", make=plain)))
    assert notes[0].startswith("note: the state lies in memory twice")
    assert notes[1].startswith("warning: nothing is divided among the")


FILE = """
import jax
raise SystemExit("executed")
def run(mesh, width=8, *, rate=0.1): ...
def our(width=8): ...
def anything(mesh, **settings): ...
"""


def test_what_a_function_takes_is_read_and_nothing_is_executed(tmp_path):
    file = tmp_path / "my.py"
    file.write_text(FILE)
    run = own_run(f"{file}:run", {"train.steps": 3, "rate": 0.2})
    assert run == OwnRun("my", f"{file}:run", {"rate": 0.2}, train=Loop(steps=3))
    assert own_run(f"{file}:anything", {"x": 1}).name == "my-anything"
    assert own_run(f"{file}:our", {}) is None and own_run(f"{file}:absent", {}) is None
    with pytest.raises(InputError, match="unknown setting 'with'; did you mean 'width'"):
        own_run(f"{file}:run", {"with": 1})
    with pytest.raises(InputError, match="unknown key 'step'; did you mean 'steps'"):
        own_run(f"{file}:run", {"train.step": 1})


names = st.text("abcdef", min_size=1, max_size=4)


@given(
    st.dictionaries(names, st.one_of(st.integers(-9, 9), st.text(max_size=4), st.booleans())),
    st.dictionaries(names, st.integers(1, 4)),
    st.integers(1, 10**6),
)
def test_a_run_json_says_all_of_a_run(tmp_path_factory, settings, mesh, steps):
    run = OwnRun("own", "own.py:run", settings, mesh, Loop(steps=steps))
    path = tmp_path_factory.getbasetemp() / "own.json"
    path.write_text(json.dumps(document_of(run)))
    assert load_any(path) == run and list(load_any(path).mesh) == list(mesh)


@given(st.integers(1, 20), st.sampled_from(sorted(DATA)))
def test_data_go_on_after_any_number_of_batches(drawn, kind):
    first, second = (OwnBatches(DATA[kind](), "own") for _ in range(2))
    first.peek(), second.peek()
    for _ in range(min(drawn, STEPS)):
        next(first)
    second.set_state(json.loads(json.dumps(first.get_state())))
    np.testing.assert_array_equal(next(first)["x"], next(second)["x"])


class Tiny(nn.Module):
    """A decoder as nanodo writes them: embeddings, one head of causal attention, tied logits."""

    @nn.compact
    def __call__(self, tokens_BS):
        embed = nn.Embed(16, 8)
        x_BSD = embed(tokens_BS)
        mask = nn.make_causal_mask(tokens_BS)
        x_BSD += nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x_BSD), mask=mask)
        return embed.attend(x_BSD + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x_BSD)))))


def language(mesh):
    tokens = np.random.default_rng(0).integers(0, 16, (8, 9))
    model = Tiny()
    params = model.init(jax.random.key(0), tokens[:, :-1])

    def loss(params, tokens):
        logits = model.apply(params, tokens[:, :-1])
        found = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return found.mean(), {"accuracy": (logits.argmax(-1) == tokens[:, 1:]).mean()}

    return sc.minimize(loss, params, optax.adamw(1e-2), [tokens] * STEPS, mesh)


@pytest.mark.slow
def test_the_loop_trains_a_linen_model(tmp_path):
    outcome, notes = trained(tmp_path, language)
    assert outcome.step == STEPS and notes == []
    assert all("accuracy" in line for line in read_metrics(tmp_path))


GROUPS = optax.partition(
    {"matrix": optax.adamw(1e-2), "vector": optax.sgd(1e-2)},
    lambda tree: jax.tree.map(lambda x: "matrix" if x.ndim > 1 else "vector", tree),
)


@pytest.mark.parametrize(
    "optimizer",
    [GROUPS, optax.adafactor(1e-2, min_dim_size_to_factor=4)],
    ids=["groups", "factored"],
)
def test_a_loss_and_an_optax_chain_train_alike_on_one_device_and_on_a_mesh(optimizer):
    loss = lambda p, batch: (jnp.mean((batch["x"] @ p["w"] + p["b"] - batch["y"]) ** 2), {"n": 1.0})
    found = []
    for data, fsdp in ((1, 1), (2, 2)):
        devices = np.array(jax.devices()[: data * fsdp]).reshape(data, fsdp)
        params = {"w": jnp.ones((WIDTH, 4)), "b": jnp.zeros(3 + 1)}
        mesh = jax.sharding.Mesh(devices, ("data", "fsdp"))
        training = sc.minimize(loss, params, optimizer, [rows(n) for n in range(3)], mesh)
        state, metrics = training.state, []
        for batch in training.data:
            state, values = training.step(state, batch)
            metrics.append({key: float(value) for key, value in values.items()})
        found.append(metrics)
    assert found[1] == [pytest.approx(one, rel=1e-5) for one in found[0]]
    cut = [leaf.sharding.spec for leaf in jax.tree.leaves(state) if leaf.shape == (WIDTH, 4)]
    assert len(cut) > 1 or optimizer is not GROUPS
    assert set(cut) == {P("fsdp", None)}
