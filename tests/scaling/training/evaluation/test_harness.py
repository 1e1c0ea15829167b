"""The model for lm-evaluation-harness. Where that is not installed, what is used of it is below."""

import importlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from scaling.meshes.errors import InputError

SEQ_LEN = 16


class TemplateLM:
    """Of `lm_eval.api.model` (0.4.13): how a text is cut into context and continuation."""

    def loglikelihood(self, requests):
        found = []
        for context, rest in (request.args for request in requests):
            before = self.tok_encode(context.rstrip()) if context else [self.eot_token_id]
            whole = self.tok_encode(context + rest)
            found.append(((context, rest), before, whole[len(before) if context else 0 :]))
        return self._loglikelihood_tokens(found)


def normalize_gen_kwargs(settings, default_max_gen_toks):
    drawn = settings.get("do_sample", False)
    heat = settings.get("temperature", 1.0) if drawn else 0.0
    return {"max_gen_toks": default_max_gen_toks, **settings, "temperature": heat}


def get_rolling_token_windows(token_list, prefix_token, max_seq_len, context_len):
    ids = [prefix_token, *token_list]
    for start in range(0, len(token_list), max_seq_len):
        end = min(start + max_seq_len, len(token_list))
        first = max(0, end - max_seq_len)
        yield ids[first:end], ids[start + 1 : end + 1]


def make_disjoint_window(pair):
    inputs, rest = pair
    return inputs[: len(inputs) - len(rest) + 1], rest


@pytest.fixture(scope="module")
def harness():
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("lm_eval") is None:
            of_utils = dict(
                get_rolling_token_windows=get_rolling_token_windows,
                make_disjoint_window=make_disjoint_window,
            )
            for name, content in {
                "lm_eval": {},
                "lm_eval.api": {},
                "lm_eval.models": {},
                "lm_eval.api.model": {"TemplateLM": TemplateLM},
                "lm_eval.api.registry": {"register_model": lambda name: lambda cls: cls},
                "lm_eval.models.utils": {"normalize_gen_kwargs": normalize_gen_kwargs},
                "lm_eval.utils": of_utils,
            }.items():
                module = ModuleType(name)
                vars(module).update(content)
                patch.setitem(sys.modules, name, module)
        yield importlib.import_module("scaling.training.evaluation.harness")
        sys.modules.pop("scaling.training.evaluation.harness")


@pytest.fixture(scope="module")
def model(harness, folder):
    return harness.ScalingLM(str(folder), batch_size=4, data=1)


@pytest.fixture(scope="module")
def log_p(log_softmax):
    """log p of bytes behind others, and whether they are the likeliest."""

    def of(before, rest):
        rows = log_softmax([*before, *rest[:-1]])[len(before) - 1 :]
        return rows[np.arange(len(rest)), rest].sum(), (rows.argmax(axis=-1) == rest).all()

    return of


def asked(*args):
    return SimpleNamespace(args=args)


def test_log_likelihoods_are_the_model_s(model, log_p):
    """Without a context that of the end of text; of long ones the last tokens are seen."""
    pairs = [("alpha", " beta"), ("", "def"), ("alpha beta gamma ", "def")]
    contexts = [b"alpha", b"\0", b"ha beta gamma"]
    rests = [b" beta", b"def", b" def"]
    with pytest.warns(UserWarning, match="of 1 of 3 texts the last 16 tokens are seen"):
        found = model.loglikelihood([asked(*pair) for pair in pairs])
    for before, rest, (value, is_greedy) in zip(contexts, rests, found, strict=True):
        expected = log_p(list(before), list(rest))
        assert (value, is_greedy) == (pytest.approx(expected[0], rel=1e-5), expected[1])
    with pytest.raises(InputError, match="a continuation has 17 tokens"):
        model.loglikelihood([asked("a", "b" * 17)])


def test_a_whole_text_is_predicted_token_by_token(model, log_p):
    """Behind an end of text, in windows; the last one has as much context as the model sees."""
    text = b"return alpha def beta"
    ids = [0, *text]
    parts = [(ids[:1], ids[1:17]), (ids[5:17], ids[17:])]
    expected = sum(log_p(*part)[0] for part in parts)
    assert model.loglikelihood_rolling([asked("d"), asked(text.decode())]) == [
        pytest.approx(log_p([0], [100])[0], rel=1e-5),
        pytest.approx(expected, rel=1e-5),
    ]


def test_texts_are_generated_until_one_that_ends_them(model, log_softmax):
    ids = list(b"alpha beta g")
    for _ in range(4):
        ids.append(int(log_softmax(ids)[-1].argmax()))
    free = model.text_tokenizer.decode(ids[12:])
    settings = {"until": [], "max_gen_toks": 4}
    other = {"until": [free[2], "never"], "max_gen_toks": 4, "do_sample": False}
    requests = [asked("alpha beta g", kind) for kind in (settings, other, other)]
    with pytest.warns(UserWarning, match="of 1 of 2 texts the last 12 tokens are seen"):
        found = model.generate_until([*requests, asked("def alpha beta g", settings)])
    ended = free.partition(free[2])[0]
    assert found == [free, ended, ended, free]


def test_its_arguments_are_checked(harness, folder):
    with pytest.raises(InputError, match="axis 'fsd'"):
        harness.ScalingLM(str(folder), fsd=2)
    with pytest.raises(InputError, match="--batch=3 is not divisible by fsdp=2"):
        harness.ScalingLM(str(folder), batch_size=3, fsdp=2)


def test_chats_are_rendered_as_in_training(model):
    text = model.apply_chat_template([{"role": "user", "content": "1?"}])
    assert text == "<|im_start|>user\n1?<|im_end|>\n<|im_start|>assistant\n"
