"""Trained models in lm-evaluation-harness (extra `lm-eval`): its tasks, on our mesh.

    python -m scaling.training.evaluation.harness run --model scaling \\
        --model_args run_dir=runs/demo fsdp=4 tensor=2 --tasks arc_easy --batch_size 16

The command is lm-eval's own, to which the model "scaling" has been added; in Python this module is
imported before `lm_eval.simple_evaluate(model="scaling", model_args={"run_dir": ...}, ...)`. How
text is cut into context and continuation is the harness's (`TemplateLM` of 0.4.13).
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.training.data.chat import render
from scaling.training.evaluation.scores import log_likelihoods
from scaling.training.sample import Sampling, continued
from scaling.training.trained_model import newest_model, open_run, tokenizer_of

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise ImportError(f"{error}; install the extra: pip install 'jax-scaling[lm-eval]'") from None

TOKENS = 256  # new ones where a task does not say: the harness's default
TOKENS_OF_CHARACTER = 4  # at most: the bytes of UTF-8


@register_model("scaling")
class ScalingLM(TemplateLM):
    """The newest checkpoint of a run folder, or a folder of Hugging Face's.

    Args:
        batch_size: sequences at once on the whole mesh; "auto", or 1, which is the harness's
            default: as `scaling eval`.
        devices: number of fake host devices, where no accelerator is present.
        seq_len: tokens that the model sees at most; None: as in training.
        axes: sizes of mesh axes; none: all devices are fsdp.
    """

    def __init__(
        self,
        run_dir: str,
        batch_size: int | str = "auto",
        devices: int | None = None,
        seq_len: int | None = None,
        device: Any = None,  # the harness's own, of PyTorch
        max_batch_size: Any = None,
        **axes: int,
    ):
        super().__init__()
        sizes = ",".join(f"{axis}={size}" for axis, size in axes.items())
        mesh = parse_mesh(sizes) if axes else None
        folder, batch = Path(run_dir), None if str(batch_size) in ("auto", "1") else int(batch_size)
        self.run = open_run(folder, mesh, devices, batch, seq_len)
        self.text_tokenizer = tokenizer_of(self.run)
        self.model, _ = newest_model(self.run, folder)

    @property
    def eot_token_id(self) -> int:
        """The end of text, which also stands before a text that has no context."""
        if self.text_tokenizer.end is None:
            raise InputError(
                f"the tokenizer {self.text_tokenizer.description} names no end of text, which "
                "stands before texts without a context: set eos_token in its tokenizer_config.json"
            )
        return self.text_tokenizer.end

    @property
    def max_length(self) -> int:
        """Tokens that the model sees at most."""
        return self.run.batch.seq_len

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Ids of a text; nothing is added at its beginning or end."""
        ids: list[int] = self.text_tokenizer.encode([string])[0][0].tolist()
        return ids

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihoods in nats, and whether greedy; of long contexts the end alone is seen."""
        pairs, cut = [], 0
        for _text, context, rest in requests:
            over = max(0, len(context) + len(rest) - 1 - self.max_length)
            if over >= len(context) or not rest:
                raise InputError(
                    f"a continuation has {len(rest):,} tokens; the model needs 1 at least and sees "
                    f"{self.max_length:,}"
                )
            cut += bool(over)
            pairs.append((context[over:], rest))
        _warn_of(cut, len(pairs), self.max_length)
        scores = log_likelihoods(self.model, self.run, pairs)
        return [(score.log_likelihood, score.is_greedy) for score in scores]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of each whole text behind an end of text, each token in one window."""
        windows, owners = [], []
        for number, request in enumerate(requests):
            ids = self.tok_encode(request.args[0])
            rolling = get_rolling_token_windows(ids, self.eot_token_id, self.max_length, 1)
            for context, rest in map(make_disjoint_window, rolling):
                windows.append((None, context, rest))
                owners.append(number)
        sums = [0.0] * len(requests)
        for number, (value, _) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            sums[number] += value
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context, up to one of the texts that end it."""
        texts = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(number)
        for numbers in groups.values():
            settings = normalize_gen_kwargs(dict(requests[numbers[0]].args[1]), TOKENS)
            contexts = [requests[number].args[0] for number in numbers]
            for number, text in zip(numbers, self._continued(contexts, settings), strict=True):
                texts[number] = text
        return texts

    def _continued(self, contexts: Sequence[str], settings: Any) -> list[str]:
        """The continuations of contexts with the same settings, as `normalize_gen_kwargs` has them.

        The end alone of a long context is seen: what leaves room for the new tokens, or half.
        """
        until = [text for text in settings["until"] if text]
        sampling = Sampling(
            settings["max_gen_toks"],
            settings.get("temperature", 0.0),
            settings.get("top_k") or None,
            settings.get("top_p", 1.0),
        )
        room = max(self.max_length - sampling.tokens, self.max_length // 2, 1)
        whole = [self.tok_encode(text) or [self.eot_token_id] for text in contexts]
        _warn_of(sum(len(ids) > room for ids in whole), len(whole), room)
        prompts, special = [ids[-room:] for ids in whole], self.text_tokenizer.special
        tail = TOKENS_OF_CHARACTER * (1 + max(map(len, until), default=0))
        ends = lambda new: any(text in self.text_tokenizer.decode(new[-tail:]) for text in until)
        stop = lambda new: new[-1] in special or ends(new)
        texts = []
        for new in continued(self.model, self.run, prompts, sampling, stop):
            text = self.text_tokenizer.decode([i for i in new if i not in special])
            texts.append(min((text.partition(end)[0] for end in until), key=len, default=text))
        return texts

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer, for the harness's caches of requests."""
        return f"{self.text_tokenizer.description} {self.text_tokenizer.digest}"

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of a chat, as training has it."""
        return render(self.text_tokenizer, chat_history, answer=add_generation_prompt)


def _warn_of(cut: int, of: int, length: int) -> None:
    if cut:
        warnings.warn(f"of {cut} of {of} texts the last {length:,} tokens are seen", stacklevel=3)


def main() -> None:
    """lm-eval's command line."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
