"""Text from a checkpoint: the same on any mesh and in any batch, greedy or drawn."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scaling as sc
from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.run import Batch, Run, save_run
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.data.tokenizer import BYTES
from scaling.training.run_folder.folder import Options
from scaling.training.sample import Sampling, _likeliest, encode_prompts, generate
from scaling.training.trained_model import newest_model, on_mesh, run_of_folder, tokenizer_of
from scaling.training.weights.naming import to_dict
from tests.scaling.training.fakes import train

STEPS, SEQ_LEN = 8, 16
ONE, slow = MeshShape(), pytest.mark.slow

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


def loaded(folder, mesh=ONE, batch=None):
    """Run and model of a folder."""
    run = on_mesh(run_of_folder(folder), mesh, batch)
    return run, newest_model(run, folder)[0]


@pytest.fixture(scope="module")
def write(trained):
    """Writes on with the model on one device: write(prompt, tokens, temperature)."""
    run, model = loaded(trained[2])

    def texts(prompts, tokens, temperature=0.0, seed=0, **options):
        sampling = Sampling(tokens, temperature, seed=seed, **options)
        asked = encode_prompts(run, [prompts] if isinstance(prompts, str) else prompts, BYTES)
        found = generate(model, run, asked, sampling, BYTES)
        return found[0] if isinstance(prompts, str) else found

    return texts


def test_the_parameters_are_those_of_the_checkpoint_on_one_device(trained):
    plan, programs, folder = trained
    run, model = loaded(folder)
    with jax.set_mesh(plan.mesh), Checkpoints(folder / "checkpoints") as checkpoints:
        arrays, _, _ = checkpoints.restore(to_dict(programs.state))
    saved = [array for name, array in arrays.items() if name.startswith("params/")]
    for expected, actual in zip(saved, jax.tree.leaves(model), strict=True):
        assert actual.sharding.device_set == {jax.local_devices()[0]}
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
    assert run.model == plan.run.model and run.train == plan.run.train


@pytest.fixture(scope="module")
def likeliest(trained):
    """The likeliest byte after some bytes, by the whole model and without a cache."""
    model = loaded(trained[2])[1]
    whole = jax.jit(lambda model, tokens: model(tokens))

    def byte(text):
        window = list(text)[-SEQ_LEN:]
        padded = jnp.asarray([window + [0] * (SEQ_LEN - len(window))], jnp.int32)
        with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
            return int(jnp.argmax(whole(model, padded)[0, len(window) - 1]))

    return byte


@pytest.mark.parametrize("prompt", ["alpha beta gamm", "n alpha def beta"])
def test_greedy_text_is_the_likeliest_byte_each_time(write, likeliest, prompt):
    assert write(prompt, 1) == prompt + decode([likeliest(encode(prompt))])


def test_greedy_text_is_the_whole_model_s_also_beyond_the_window(write, likeliest):
    """A full window begins again with its later half."""
    text = encode("def alpha ").tolist()
    window, prompt = list(text), decode(text)
    for _ in range(2 * SEQ_LEN):
        if len(window) > SEQ_LEN:
            window = window[-SEQ_LEN // 2 :]
        byte = likeliest(window)
        text.append(byte)
        window.append(byte)
    assert write(prompt, 2 * SEQ_LEN) == decode(text)


PROMPTS = ["d", "alpha beta gamma", "return al", "beta ", "gamma d"]


@pytest.mark.parametrize("chunk", [512, 3])
def test_each_text_of_a_batch_is_that_of_its_prompt_alone(write, monkeypatch, chunk):
    """Greedy and, of the first prompt, drawn; windows fill at different times."""
    alone = [write(prompt, 2 * SEQ_LEN) for prompt in PROMPTS]
    drawn = write(PROMPTS[0], 2 * SEQ_LEN, 1.0)
    monkeypatch.setattr("scaling.training.sample.CHUNK", chunk)
    assert write(PROMPTS, 2 * SEQ_LEN) == alone
    assert write(PROMPTS, 2 * SEQ_LEN, 1.0)[0] == drawn
    assert len(set(write(["d"] * 5, 2 * SEQ_LEN, 1.0))) > 1  # each row has randomness of its own


@pytest.mark.parametrize(
    "mesh", [{"fsdp": 2, "tensor": 2}, pytest.param({"data": 2, "expert": 2}, marks=slow)]
)
def test_greedy_text_on_a_mesh_is_that_of_one_device(trained, write, mesh):
    """In two batches, of which the second is filled up."""
    run, model = loaded(trained[2], MeshShape(**mesh), batch=4)
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(model)} == {4}
    asked = encode_prompts(run, PROMPTS, BYTES)
    texts = generate(model, run, asked, Sampling(6, 0.0), BYTES)
    assert texts == write(PROMPTS, 6)


def test_a_seed_gives_its_text_again_and_another_seed_another_unless_greedy(write):
    draw = lambda seed, heat=1.0, **few: write("def ", 16, heat, seed, **few)
    assert draw(0) == draw(0) != draw(1)
    assert draw(0, 0.0) == draw(1, 0.0) == draw(1, 1e-6)
    assert draw(0, 0.0) == draw(1, top_k=1) == draw(1, top_p=1e-6)
    assert draw(0) == draw(0, top_k=256, top_p=1.0) != draw(0, top_k=3)
    assert write("naïve ☃", 0, 1.0) == "naïve ☃"


def test_the_likeliest_tokens_are_kept():
    logits = jnp.log(jnp.array([0.1, 0.4, 0.05, 0.15, 0.3]))
    kept = lambda k, p: set(np.flatnonzero(np.isfinite(_likeliest(logits, k, p))).tolist())
    assert kept(5, 1.0) == {0, 1, 2, 3, 4}
    assert kept(2, 1.0) == {1, 4}
    assert kept(5, 0.6) == {1, 4} and kept(5, 0.75) == {1, 3, 4}
    assert kept(3, 0.8) == {1, 4}  # 0.7 / 0.85 of the three likeliest
    assert kept(1, 0.01) == {1}


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ("", {}, "empty"),
        ([], {}, "prompts=.* must be texts, one at least"),
        (["a", 3], {}, "must be texts"),
        ("a", {"tokens": -1}, "negative"),
        ("a", {"temperature": -0.5}, "negative"),
        ("a", {"top_p": 0.0}, "top-p 0.0 must be above 0"),
        ("a", {"top_k": 0}, "top-k"),
        ("b" * 17, {}, "prompt 1 has 17 tokens; the model sees 1 to 16"),
    ],
)
def test_what_cannot_be_sampled_is_bad_input(write, prompt, settings, message):
    with pytest.raises(InputError, match=message):
        write(prompt, **{"tokens": 1, **settings})


@pytest.mark.parametrize(
    ("mesh", "batch", "message"),
    [
        ({"tensor": 4}, None, "n_kv_heads=2 is not divisible by tensor=4"),
        ({"context": 2}, None, "leave context and stage out"),
        ({"stage": 2}, None, "leave context and stage out"),
        ({"data": 16}, None, "needs 16 devices, but 8 are present"),
        ({"fsdp": 4}, 6, "--batch=6 is not divisible by fsdp=4"),
    ],
)
def test_a_mesh_that_does_not_fit_is_bad_input(trained, mesh, batch, message):
    with pytest.raises(InputError, match=message):
        on_mesh(run_of_folder(trained[2]), MeshShape(**mesh), batch)


def test_a_folder_without_a_run_or_a_checkpoint_says_so(trained, tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="not a run folder"):
            run_of_folder(folder)
    assert cli.main(["sample", str(tmp_path), "--prompt", "a"]) == 2
    assert "not a run folder" in capsys.readouterr().err
    shutil.copy(trained[2] / "run.json", tmp_path)
    with pytest.raises(InputError, match="no finished checkpoint"):
        loaded(tmp_path)


def test_a_model_of_other_tokens_than_bytes_is_refused(tmp_path):
    model = ModelConfig(100, d_model=32, n_layers=2, n_heads=4, d_ff=64)
    save_run(Run("tokens", model, Batch(8, 16)), tmp_path / "run.json")
    with pytest.raises(InputError, match="needs train.tokenizer"):
        tokenizer_of(run_of_folder(tmp_path))


def test_the_command_prints_the_texts(trained, write, tmp_path, capsys):
    more = tmp_path / "prompts.txt"
    more.write_text("alpha \n\nbeta\n")
    words = ["sample", str(trained[2]), "--mesh", "data=1", "--temperature", "0"]
    prompts = ["--prompt", "def ", "--prompts", str(more)]
    texts = write(["def ", "alpha ", "beta"], 4)
    assert cli.main([*words, *prompts, "--tokens", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"texts": texts}
    assert cli.main([*words, *prompts, "--tokens", "4"]) == 0
    assert capsys.readouterr().out == "\n---\n".join(texts) + "\n"
    assert sc.sample(trained[2], "def ", tokens=0, mesh="data=1") == ["def "]
    with pytest.raises(InputError, match="unknown kind 'best'"):
        sc.sample(trained[2], "def ", mesh="data=1", weights="best")
    assert cli.main(words) == 2
    assert "give --prompt" in capsys.readouterr().err
