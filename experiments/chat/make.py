"""Write the example of fine-tuning: chats about small sums, and a tokenizer trained on them.

    python -m experiments.chat.make [FOLDER]      beside this file, if no folder is named

`chats.jsonl`    300 chats of one or two questions, of a fixed seed
`tokenizer/`     byte-pair encoding of 384 tokens (needs the extra `data`), with ChatML as template
"""

import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHATS, VOCABULARY = 300, 384  # a few hundred lines; 256 bytes, special tokens and some merges
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTIONS = ("What is {a} + {b}?", "{a} + {b}?", "Please add {a} and {b}.")


def chats(count: int = CHATS, seed: int = 0) -> list[dict]:
    """Records {"messages": [...]} with one or two sums each."""
    draw = random.Random(seed)
    return [{"messages": _turns(draw, 1 + (number % 4 == 3))} for number in range(count)]


def _turns(draw: random.Random, turns: int) -> list[dict]:
    messages = []
    for _ in range(turns):
        a, b = draw.randrange(10), draw.randrange(10)
        question = draw.choice(QUESTIONS).format(a=a, b=b)
        answer = f"{a} + {b} = {a + b}"
        messages += [("user", question), ("assistant", answer)]
    return [{"role": role, "content": content} for role, content in messages]


def write_tokenizer(records: list[dict], folder: Path) -> None:
    """Train the tokenizer on the chats and write it as Hugging Face's models have theirs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [message["content"] for record in records for message in record["messages"]]
    tokenizer.train_from_iterator([*texts, "user\n", "assistant\n"], trainer)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"eos_token": SPECIAL[0], "chat_template": TEMPLATE}
    text = json.dumps(config, indent=1)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Write both."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    records = chats()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "chats.jsonl").write_text(lines, encoding="utf-8")
    write_tokenizer(records, folder / "tokenizer")


if __name__ == "__main__":
    main()
