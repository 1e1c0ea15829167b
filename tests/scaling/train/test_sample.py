"""Text from a checkpoint: on one device whatever the mesh, greedy or drawn, window sliding."""

import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.models.config import ModelConfig
from scaling.run import Batch, Run, save_run
from scaling.train.checkpoint.checkpoints import Checkpoints
from scaling.train.data.tokenizer import BYTES
from scaling.train.loop import train
from scaling.train.run_folder import Options
from scaling.train.sample import generate, load_model
from scaling.weights.naming import to_dict

STEPS, SEQ_LEN = 8, 16

decode = BYTES.decode


def encode(text):
    return BYTES.encode([text])[0][0]


@pytest.fixture(scope="module")
def trained(toy, prepare, tmp_path_factory):
    """Plan, programs and folder of a finished run on four devices."""
    plan, programs = prepare(toy(mesh={"fsdp": 4}, steps=STEPS))
    folder = tmp_path_factory.mktemp("sample")
    train(plan, programs, Options(folder))
    return plan, programs, folder


@pytest.fixture(scope="module")
def model(trained):
    return load_model(trained[2])[1]


def test_the_parameters_are_those_of_the_checkpoint_on_one_device(trained):
    plan, programs, folder = trained
    run, model = load_model(folder)
    with jax.set_mesh(plan.mesh), Checkpoints(folder / "checkpoints") as checkpoints:
        arrays, _, _ = checkpoints.restore(to_dict(programs.state))
    saved = [array for name, array in arrays.items() if name.startswith("params/")]
    for expected, actual in zip(saved, jax.tree.leaves(model), strict=True):
        assert actual.sharding.device_set == {jax.local_devices()[0]}
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
    assert replace(run, mesh=plan.run.mesh) == plan.run


@pytest.fixture(scope="module")
def likeliest(model):
    """The likeliest byte after some bytes, by the whole model and without a cache."""
    whole = jax.jit(lambda model, tokens: model(tokens))

    def byte(text):
        window = list(text)[-SEQ_LEN:]
        padded = jnp.asarray([window + [0] * (SEQ_LEN - len(window))], jnp.int32)
        with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
            return int(jnp.argmax(whole(model, padded)[0, len(window) - 1]))

    return byte


@pytest.mark.parametrize("prompt", ["d", "alpha be", "return alpha def beta gamma "])
def test_greedy_text_is_the_likeliest_byte_each_time(model, likeliest, prompt):
    text = generate(model, prompt, SEQ_LEN, 1, temperature=0, seed=0)
    assert text == prompt + decode([likeliest(encode(prompt))])


def test_greedy_text_is_the_whole_model_s_also_beyond_the_window(model, likeliest):
    """A full window begins again with its later half."""
    text = encode("def alpha ").tolist()
    window, prompt = list(text), decode(text)
    for _ in range(2 * SEQ_LEN):
        if len(window) > SEQ_LEN:
            window = window[-SEQ_LEN // 2 :]
        byte = likeliest(window)
        text.append(byte)
        window.append(byte)
    assert generate(model, prompt, SEQ_LEN, 2 * SEQ_LEN, 0, seed=0) == decode(text)


def test_a_seed_gives_its_text_again_and_another_seed_another_unless_greedy(model):
    draw = lambda seed, heat=1.0: generate(model, "def ", SEQ_LEN, 16, heat, seed)
    assert draw(0) == draw(0) != draw(1)
    assert draw(0, 0) == draw(1, 0) == draw(1, 1e-6)
    assert generate(model, "naïve ☃", SEQ_LEN, 0, 1.0, seed=0) == "naïve ☃"


def test_only_the_last_window_of_a_long_prompt_counts(model):
    window = "alpha beta gamma"
    assert len(window) == SEQ_LEN
    longer = "return " * 5 + window
    short = generate(model, window, SEQ_LEN, 6, temperature=0, seed=0)
    assert generate(model, longer, SEQ_LEN, 6, temperature=0, seed=0) == "return " * 5 + short


@pytest.mark.parametrize(
    ("prompt", "tokens", "temperature", "message"),
    [("", 1, 1.0, "empty"), ("a", -1, 1.0, "negative"), ("a", 1, -0.5, "negative")],
)
def test_what_cannot_be_sampled_is_bad_input(model, prompt, tokens, temperature, message):
    with pytest.raises(InputError, match=message):
        generate(model, prompt, SEQ_LEN, tokens, temperature, seed=0)


def test_a_folder_without_a_run_or_a_checkpoint_says_so(trained, tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="not a run folder"):
            load_model(folder)
    assert cli.main(["sample", str(tmp_path), "--prompt", "a"]) == 2
    assert "not a run folder" in capsys.readouterr().err
    shutil.copy(trained[2] / "run.json", tmp_path)
    with pytest.raises(InputError, match="no finished checkpoint"):
        load_model(tmp_path)


def test_a_model_of_other_tokens_than_bytes_is_refused(tmp_path):
    model = ModelConfig(100, d_model=32, n_layers=2, n_heads=4, d_ff=64)
    save_run(Run("tokens", model, Batch(8, 16)), tmp_path / "run.json")
    with pytest.raises(InputError, match="needs train.tokenizer"):
        load_model(tmp_path)


def test_the_command_prints_the_text(trained, capsys):
    words = ["sample", str(trained[2]), "--prompt", "def ", "--tokens", "4", "--temperature", "0"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("def ") and out.endswith("\n")
