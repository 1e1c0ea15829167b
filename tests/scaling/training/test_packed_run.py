"""A run on packed chats mixed with text learns, and goes on on another mesh with the same rows."""

import json
from dataclasses import replace

import numpy as np
import pytest

from experiments.chat.make import HERE
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.run import Batch, Precision, Run, Train
from scaling.training.prepare import compile_programs, plan
from scaling.training.run_folder.folder import Options
from scaling.training.sample import Sampling, encode_prompts, generate
from scaling.training.trained_model import newest_model, on_mesh, run_of_folder, tokenizer_of
from tests.scaling.training.fakes import train, with_step

STEPS, HALF = 6, 3
MODEL = ModelConfig(256, d_model=32, n_layers=2, n_heads=4, d_ff=64, n_kv_heads=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    text = tmp_path_factory.mktemp("data") / "text.jsonl"
    text.write_text('{"text": "some words"}\n' * 40)
    data = {str(HERE / "chats.jsonl"): 3.0, str(text): 1.0}
    settings = dict(schedule="constant", warmup_steps=0, learning_rate=1e-2, eval_every=HALF)
    settings |= dict(data=data, documents="packed", eval_batches=1, checkpoint_every=HALF)
    return Run(
        "chats",
        MODEL,
        Batch(8, 128, 2),
        MeshShape(data=2, fsdp=2, tensor=2),
        precision=Precision("fp32"),
        train=Train(steps=STEPS, **settings),
    )


@pytest.fixture(scope="module")
def prepared(run):
    ready = plan(run)
    return ready, compile_programs(ready)


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """Folder of the whole run, and the inputs of its steps."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, trained(prepared, folder)


def trained(prepared, folder, **options):
    """The inputs of each step on the host."""
    ready, programs = with_step(prepared)
    train(ready, programs, Options(folder, **options))
    return [np.asarray(x) for x in programs.step.batches]


def metrics(folder, name):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line[name] for line in lines if name in line}


def test_a_run_on_a_mixture_goes_on_on_another_mesh_with_the_same_rows(
    run, prepared, whole, tmp_path
):
    folder, batches = whole
    mesh = MeshShape(fsdp=4, tensor=2)
    first = plan(replace(run, train=replace(run.train, steps=HALF)))
    begun = trained((first, prepared[1]), tmp_path)  # whose rate is the same at every step
    other = plan(replace(run, mesh=mesh))
    rest = trained((other, compile_programs(other)), tmp_path, resume=True)
    np.testing.assert_array_equal(np.stack([*begun, *rest]), batches)
    for name in ("loss", "held_out_loss"):
        expected, found = metrics(folder, name), metrics(tmp_path, name)
        assert list(found) == list(expected)
        assert list(found.values()) == pytest.approx(list(expected.values()), rel=1e-4)
    each = [metrics(folder, f"held_out_loss/{name}")[STEPS] for name in run.train.data]
    assert metrics(folder, "held_out_loss")[STEPS] == pytest.approx(np.dot(each, [0.75, 0.25]))
    assert metrics(folder, "loss")[STEPS] < 0.8 * metrics(folder, "loss")[1]


def test_an_answer_is_returned_without_its_question(whole):
    run = on_mesh(run_of_folder(whole[0]), MeshShape())
    model, step = newest_model(run, whole[0])
    assert step == STEPS
    known, few = tokenizer_of(run), Sampling(5, 0.0)
    asked = [encode_prompts(run, ["1 + 1?"], known, chat) for chat in (True, False)]
    (answer,) = generate(model, run, asked[0], few, known, chat=True)
    assert "1 + 1?" not in answer and len(answer.encode(errors="replace")) <= 3 * 5
    assert generate(model, run, asked[1], few, known)[0].startswith("1 + 1?")


def test_a_run_on_ids_needs_the_tokenizer_that_made_them(run):
    with pytest.raises(InputError, match="trained on tokens of 'a.bin' .* needs train.tokenizer"):
        tokenizer_of(replace(run, train=Train(data={"a.bin": 1.0, "stdlib": 1.0})))
