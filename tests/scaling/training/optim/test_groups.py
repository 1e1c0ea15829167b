"""Groups of parameters, and an optimizer of the user: what they change, and what is refused."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import Group, Train, read_run, run_dict
from scaling.run.optimizers import check_optimizer, optimizer_of
from scaling.training import program
from scaling.training.optim.optimizer import check_groups, make_optimizer
from scaling.training.weights.naming import to_dict

RATE, DECAY = 0.5, 0.1
TRAIN = Train(
    learning_rate=RATE, weight_decay=DECAY, warmup_steps=0, schedule="constant", clip_norm=0
)


class Model(nnx.Module):
    def __init__(self):
        one = lambda *dims: nnx.Param(jnp.ones([2] * len(dims)), dims=dims)
        self.table_VD, self.head_VD = one("vocab", "embed"), one("vocab", "embed")
        self.scale = one(None)


def decayed(groups):
    """What a step without gradients takes of each parameter, all 1."""
    model = Model()
    optimizer = make_optimizer(replace(TRAIN, groups=groups))
    none = jax.tree.map(jnp.zeros_like, model)
    updates, _ = optimizer.update(none, optimizer.init(model), model)
    return {name: float(-x.mean()) for name, x in to_dict(updates).items()}


def test_a_group_has_its_own_rate_and_decay_and_the_first_pattern_counts():
    usual = {"head_VD": RATE * DECAY, "scale": 0.0, "table_VD": RATE * DECAY}
    assert decayed({}) == pytest.approx(usual)
    assert decayed({"table*": Group(weight_decay=0.0)}) == pytest.approx({**usual, "table_VD": 0})
    both = {"*_VD": Group(learning_rate=0.1), "scale": Group(weight_decay=1.0), "table*": Group(0)}
    tenth = RATE * DECAY / 10
    assert decayed(both) == pytest.approx({"head_VD": tenth, "table_VD": tenth, "scale": RATE})


def test_a_pattern_that_nothing_matches_and_a_group_below_0_are_refused():
    with pytest.raises(InputError, match="train.groups: no parameter is called 'tabel'; did you"):
        check_groups(Model(), Train(groups={"tabel": Group()}))
    with pytest.raises(InputError, match="learning_rate=-1 must be at least 0"):
        Group(-1)


def test_an_optimizer_of_the_user_gets_the_rate_and_returns_a_chain(toy, tmp_path):
    file = tmp_path / "my.py"
    file.write_text(
        "import optax\ndef chain(rate): return optax.sgd(rate)\ndef no(rate): return 3\n"
    )
    run = replace(toy(), optimizer=f"{file}:chain", train=TRAIN)
    check_optimizer(run)
    chain = make_optimizer(run.train, optimizer_of(run))
    updates, _ = chain.update(jnp.ones(2), chain.init(jnp.ones(2)), jnp.ones(2))
    assert updates.tolist() == [-RATE, -RATE]
    with pytest.raises(InputError, match="returned an int: return an optax chain"):
        make_optimizer(run.train, optimizer_of(replace(run, optimizer=f"{file}:no")))
    for train, said in (
        (replace(TRAIN, beta_1=0.9), "train.beta_1=0.9 is no setting of"),
        (replace(TRAIN, groups={"x": Group()}), "use optax.partition there"),
    ):
        with pytest.raises(InputError, match=said):
            check_optimizer(replace(run, train=train))
    with pytest.raises(InputError, match="there is no file absent.py"):
        check_optimizer(replace(run, optimizer="absent.py:chain"))


def test_settings_that_say_nothing_leave_the_keys_of_programs_alone(toy, tmp_path):
    keys = set(program._decides(toy(), MeshShape())["train"])
    assert not {"xla", "deterministic", "groups"} & keys
    said = {"xla": {"xla_gpu_enable_triton_gemm": False}, "deterministic": True}
    run = toy(**said, groups={"*": Group(0.5)})
    assert keys | {*said, "groups"} == set(program._decides(run, MeshShape())["train"])
    assert read_run(json.loads(json.dumps(run_dict(run)))) == run
    file = tmp_path / "my.py"
    file.write_text("def chain(rate): ...")
    before = program._decides(replace(run, optimizer=f"{file}:chain"), MeshShape())
    file.write_text("def chain(rate): ... # changed")
    assert program._decides(replace(run, optimizer=f"{file}:chain"), MeshShape()) != before
