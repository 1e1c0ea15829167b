"""What a student who reads Korean still meets in English: names alone, by the list below."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from scaling.cli.main import main
from scaling.course.explorer.answer import answer
from scaling.course.explorer.programs import programs
from scaling.course.language import catalogue, speaking
from scaling.course.lessons.index import Lesson, labs, lessons
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.quiz import quizzes
from scaling.course.teaching import class_page
from scaling.course.teaching.material import material
from scaling.course.teaching.pack import teacher_page
from scaling.course.teaching.slides import deck
from scaling.course.web.ask import ask
from scaling.course.web.pages import WRITTEN, written
from scaling.questions.page import FORMATS

NOTEBOOKS = [*lessons(), *labs()]
HANGUL = re.compile("[가-힣]")
END = re.compile(r"[;:·|\n]|[.,] ")  # of a phrase
CODE = {"code", "pre", "style", "script", "math", "kbd"}
WORDS = {"aria-label", "title", "alt", "placeholder"}  # attributes that are read
INLINE = {"a", "b", "strong", "em", "i", "br", "sub", "sup", "tspan", *CODE}

# What stays English in a Korean text: names, each kind with its reason.
NAMES = {
    "units": r"[kKMGTPEmu]?i?(?:B|bytes|FLOPs?|FLOP|OPs?|bit|Hz|W|Wh|s|m|h)"
    r"(?:/(?:s|token|chip|byte|cycle|dollar))?|x|ns|ways?|milli|micro|mega|giga|tera",
    "axes, keys and their values, which commands accept": r"data|fsdp|tensor|stage|expert|context"
    r"|remat|none|full|selective|sequences?|zero|microbatches|global_batch|seq_len|d_model|d_ff"
    r"|mesh|batch|layers|heads|pipeline|sharding|precision|gpipe|1f1b|interleaved|zero_bubble"
    r"|query|key|value|attention|attention_out|mlp_gate|mlp_up|virtual|stages",
    "commands and what they take": r"scaling|plan|python|http.server|learn|lesson|lab|quiz|puzzle"
    r"|sweep|root",
    "collectives and their algorithms, as JAX and NCCL name them": r"all-(?:gather|reduce|to-all)"
    r"|reduce-scatter|permute|broadcast|ring|tree|nvls|pat|pairwise|hierarchical|psum|ppermute"
    r"|Simple|verbs|collective|matmul",
    "chips, machines and software": r"[A-Z]{1,4}\d+\w*|v\d\w?|TPU|GPU|CPU|NVIDIA|DGX|NVLink"
    r"|NVSwitch|NIC|InfiniBand|RoCE|EFA|TCPX|PCIe|ICI|DCN|xGMI|HBM\d?|JAX|jax|XLA|NCCL|PyTorch|cuBLAS|MaxText"
    r"|Megatron(?:-LM|-DeepSpeed)?|DeepSpeed|DeepSeek\S*|dgx\S*|gb200\S*|tpu\S*"
    r"|[Ll]+ama\S*|LLaMA\S*|gpt\S*|mixtral\S*|deepseek\S*|host|demo|tiny\S*|Python|RTX|PRO|SXM|Pod|lite|Trillium|Google"
    r"|Cloud|(?:jaxlib|flax|optax|jax-cuda12-pjrt)",
    "acronyms of the field": r"MFU|HFU|MLPs?|FSDP|ZeRO(?:-\d)?|KV|MXU|VPU|VMEM|bf16|fp\d+|int\d+"
    r"|f32|MoE|SHARP|NVLS|SMs?|LoRA|HLO|AdamW?|RoPE|GQA|QKV?|rematerialization",
    "kernels and layers, as a program names them": r"forward|backward|(?:layers|head|embed)"
    r"(?:/\w+)*",
    "sources, as they are cited": r"arXiv|VIA-Research/vTrain|bigscience-workshop/bigscience|issue"
    r"|NVIDIA/nccl(?:-tests)?|commit|AWS|Apache-2.0|Ultra-Scale|Playbook|nanotron|[0-9a-f]{7,8}",
    "the link to the other language": "English",
    "symbols of formulas": r"[A-Z]\w?(?:_\w+)?(?:/[A-Z])?|alpha|beta|[a-z]_\w+|sqrt|ceil|floor",
}
NAME = re.compile("|".join(f"(?:{names})" for names in NAMES.values()))
TOKEN = re.compile(r"(?<![\w.])[A-Za-z][\w./%'-]*")
# Code within a text: in backticks or braces, commands and options, key=value, addresses, files.
WRITTEN_AS_CODE = re.compile(
    r"`[^`]*`|\{\w+\}|\$? ?scaling [a-z][^);|]*|--[\w-]+(?: [\w.-]+)*|\w+=[\w\['][\w,.'\]-]*"
    r"|https?://\S+|\S+\.(?:md|json|py|toml|html|csv)\S*"
)


def english(text: str) -> list[str]:
    """Return the phrases of a text that have words and no Korean; names are no words."""
    found = []
    for phrase in END.split(WRITTEN_AS_CODE.sub(" ", text)):
        words = (one.strip("./%'-") for one in TOKEN.findall(phrase))
        others = [one for one in words if len(one) > 1 and not NAME.fullmatch(one)]
        if others and not HANGUL.search(phrase):
            found.append(" ".join(phrase.split()))
    return found


class Reader(HTMLParser):
    """Collects what a page says: its texts, block by block, and attributes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = [""]
        self.code = 0

    def handle_starttag(self, tag, attrs):
        self.said += [value or "" for name, value in attrs if name in WORDS and tag != "math"]
        self.code += tag in CODE
        self.said.append("") if tag not in INLINE else None
        for name, value in attrs:  # marimo's controls bring what they show as JSON
            if tag.startswith("marimo-") and name in ("data-label", "data-html", "data-labels"):
                found = json.loads(value or "null")
                for html in found if isinstance(found, list) else [found]:
                    self.said += said(html or "")

    def handle_endtag(self, tag):
        self.code -= tag in CODE
        self.said.append("") if tag not in INLINE else None

    def handle_data(self, data):
        self.said[-1] += " " if self.code else data


def said(html: str) -> list[str]:
    reader = Reader()
    reader.feed(html)
    return reader.said


def left(html: str) -> list[str]:
    """Return the English phrases of a page."""
    return list(dict.fromkeys(phrase for text in said(html) for phrase in english(text)))


# Keys of documents that hold names, commands, formulas or facts of others.
NAMED = ("id", "chapter", "section", "commands", "formulas", "problems", "columns", "made", "tried")


def strings(found) -> list[str]:
    """Return all texts of a document of JSON that a page shows."""
    if isinstance(found, str):
        return [found]
    if isinstance(found, dict):
        named = (*NAMED, *(("name", "side") if "sentence" in found else ()))  # of a mistake
        found = [value for key, value in found.items() if key not in named]
    return [text for item in found for text in strings(item)] if isinstance(found, list) else []


def test_english_is_found_and_names_are_none():
    assert english("3.35 TB/s, memory bandwidth; W = `b c d`") == ["memory bandwidth"]
    assert english("llama3-8b, fsdp=8,tensor=2, 128 H100: 12 ms (MFU 41 %)") == []
    assert english("디바이스 8개의 all-gather, one direction") == ["one direction"]
    assert left('<p>가 <b>나</b></p><svg aria-label="a step"><text>12 ms</text></svg>') == [
        "a step"
    ]
    assert left("<pre>a b c</pre><p><code>scaling learn x</code></p>") == []


@pytest.mark.parametrize("name", [name for name in WRITTEN if name.endswith(".html")])
def test_a_page_is_korean(name):
    page = written(f"ko/{name}")
    if name == "glossary.html":  # whose terms are English: the Korean one begins the meaning
        page = re.sub(r"<th>term</th>|<tr>\s*<td>.*?</td>", "<tr>", page, flags=re.DOTALL)
    assert left(page) == []


def test_the_words_of_scripts_are_korean():
    texts = json.loads(written("ko/texts.js").partition("=")[2].strip().rstrip(";"))
    found = {name: left(text) for name, text in texts.items() if name != "all.language"}
    assert {name: words for name, words in found.items() if words} == {}


COMMANDS = [
    *(["find", word] for word in ("all-gather", "roofline", "bubble", "MFU")),
    *([], ["puzzles"], ["sweep"], ["sweep", "3.57B-128"], ["puzzle", "1"], ["puzzle", "10"]),
    ["ladder", "collective all-gather --bytes 1GiB --cluster dgx-h100"],
    ["sweep", "3.57B-128", *(f"--try=tensor={n},stage=1,zero=0,sequences=1" for n in (1, 2, 4))],
    ["quiz", "gpu-q2.3", "--guess", "2.1"],
]
# Commands, documents, names of quizzes, and places in the guide, which is English.
COMMAND = re.compile(
    r"^\s*\$ .*|^\s*scaling learn: |lesson \d+|^\{.*|docs/\S+|^quiz .*|quiz [\w.-]+"
    r"|(?:batch|mesh)\.\w+|안내서: https.*"
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_korean(capsys, words):
    assert main(["learn", *words, "--lang", "ko"]) == 0
    lines = (COMMAND.sub("", line) for line in capsys.readouterr().out.splitlines())
    assert [phrase for line in lines for phrase in english(line)] == []


ERRORS = [
    (["nosuch"], "모르는 단어"),
    (["explorer", "1"], "페이지를 여는"),
    (["lesson"], "전체 목록"),
    (["lesson", "99"], "없습니다"),
    (["quiz", "nosuch"], "퀴즈는 없습니다"),
    (["quiz", "gpu-q2.3", "--guess", "much"], "수가 아닙니다"),
    (["puzzle", "77"], "없습니다"),
    (["find", "xyzzy"], "색인에"),
    (["sweep", "3.57B-128", "--try", "a"], "읽을 수 없습니다"),
    (["sweep", "7B"], "스윕은 없습니다"),
    (["teach", "1"], "번호가 없으면"),
    (["class", "1"], "포트를"),
    (["grade", "no-such-folder"], "폴더가 아닙니다"),
    (["ladder"], "하나까지입니다"),
    (["check", "1"], "run.json이 빠졌습니다"),
]


@pytest.mark.parametrize(("words", "korean"), ERRORS, ids=str)
def test_an_error_is_korean(capsys, words, korean):
    assert main(["learn", *words, "--lang", "ko"]) == 2
    message = capsys.readouterr().err
    assert korean in message
    assert main(["learn", *words, "--lang", "en"]) == 2
    assert not HANGUL.search(capsys.readouterr().err)


def test_the_answers_of_pages_are_korean():
    asked = [("quizzes", {}), ("sweeps", {})] + [("quiz", {"id": q.id}) for q in quizzes()[::9]]
    for what, given in asked:
        found = json.loads(ask(json.dumps({"what": what, "with": given, "lang": "ko"})))["answer"]
        left_out = [phrase for text in strings(found) for phrase in english(text)]
        assert left_out == [], (what, given)


def test_the_class_page_is_korean():
    room = class_page.Room(class_page.Question("몇 개입니까?", "tokens", 8.0, ("backward",)))
    room.guesses |= {"a": 8.0, "b": 24.0}
    with speaking("ko"):
        pages = [class_page._student(room, ""), class_page._student(room, "", "0" * 16, "8")]
        pages += [class_page._teacher(room, is_open) for is_open in (False, True)]
        assert [phrase for page in pages for phrase in left(page)] == []
        assert [phrase for line in str(room).splitlines() for phrase in english(line)] == []


@pytest.mark.slow
@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda lesson: lesson.file.stem)
def test_a_lesson_is_korean(lesson: Lesson):
    pytest.importorskip("marimo", reason="lessons are marimo notebooks")
    with speaking("ko"):
        outputs, _ = lesson.run()
    html = "\n".join(str(getattr(output, "text", "")) for output in outputs if output is not None)
    assert left(html) == []


@pytest.mark.slow
@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda lesson: lesson.file.stem)
def test_a_teachers_pack_is_korean(lesson: Lesson):
    pytest.importorskip("marimo", reason="lessons are marimo notebooks")
    with speaking("ko"):
        found = material(lesson)
        assert left(deck(found)) == []
        page = teacher_page(found)
    assert [phrase for line in page.splitlines() for phrase in english(line)] == []


@pytest.mark.slow
def test_the_explorer_is_korean():
    with speaking("ko"):
        for group in programs({})[:3]:
            found = answer({"program": group["families"][0]["stops"][0]["key"]})
            for picture in found["pictures"]:
                svg = picture["svg"]
                # names of kernels; and the groups and levels of a cluster, which are still English
                if picture["name"] in ("look", "roofline", "cluster"):
                    svg = re.sub(r"<title>.*?</title>|<text.*?</text>", "", svg)
                assert left(svg) + english(picture["words"]) == [], picture["name"]
            texts = [found["title"], *strings(found["step"]), *strings(found["memory"])]
            assert [phrase for text in texts for phrase in english(unescape(text))] == []


def test_a_unit_that_says_how_a_number_is_written_stays():
    assert set(FORMATS) & set(catalogue("ko")) == set()


def test_every_puzzle_has_a_korean_title_story_and_hint():
    with speaking("ko"):
        assert all(HANGUL.search(str(goal)) for puzzle in puzzles() for goal in puzzle.goals)
