"""What changed between two predictions: parts add up to the whole, whatever is in the documents."""

import json
from dataclasses import replace
from functools import partial

import pytest

import scaling as sc
from scaling.comparing.breakdown import rounded
from scaling.comparing.difference import Change, difference, prediction_document
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import profile_of
from scaling.report.difference import difference_table, headlines
from scaling.simulate.prediction import prediction_dict
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from tests.scaling.cli.running import run

H100 = catalog.load("dgx-h100")
FIGURES = {"count": 1, "calls": 1, "time": 1.0, "flops": 2.0, "bytes": 4.0}
ROW = {"class": "matmul bf16", "line": "a.py:3", "code": "x @ w", **FIGURES}


@pytest.fixture
def documents(hand_step):
    """The step written by hand, and the same with one layer less and without its last sum."""
    loop, _, update = hand_step.schedule
    shorter = replace(hand_step, schedule=(replace(loop, trips=2), update))
    profile = profile_of(H100.accelerator)
    return [prediction_dict(summarize(price(p, H100, profile))) for p in (hand_step, shorter)]


def test_terms_add_up_to_the_change_of_the_step(documents):
    found = difference(*documents)
    summed = sum(c.difference for name, c in found.time.items() if name != "hidden_communication")
    assert summed == pytest.approx(found.step_time.difference) and summed < 0
    sizes = dict(found.memory)
    peak = sizes.pop("peak")
    assert sum(c.difference for c in sizes.values()) == pytest.approx(peak.difference)


def test_collectives_that_only_one_has_are_there(documents):
    lines = {(c.kind, c.axis): c for c in difference(*documents).collectives}
    assert lines["all-reduce", "fsdp+tensor"].time.second is None
    assert lines["all-gather", "fsdp"].moved == Change(3 * 2**26, 2 * 2**26)
    assert lines["all-gather", "fsdp"].moved.ratio == pytest.approx(2 / 3)


def test_a_prediction_differs_from_itself_in_nothing(documents):
    found = difference(documents[0], documents[0])
    assert not found.words and found.step_time.difference == 0
    assert all(c.difference == 0 for c in (*found.time.values(), *found.memory.values()))
    assert "x1\n" in difference_table(found)


def test_the_command_compares_files(documents, tmp_path, capsys):
    for name, document in zip("ab", documents, strict=True):
        (tmp_path / name).write_text(json.dumps(document))
    cli = partial(run, capsys, "compare", tmp_path / "a", tmp_path / "b")
    code, out, _ = cli("--json")
    found = json.loads(out)
    assert code == 0 and found == sc.compare(tmp_path / "a", tmp_path / "b").to_dict()
    assert found["step_time"]["second"] < found["step_time"]["first"]
    code, out, _ = cli()
    assert code == 0 and out.startswith("hand -> hand: step ") and "all-gather[fsdp] bf16" in out
    code, _, err = cli("--trace", tmp_path / "t.json")
    assert code == 2 and "--trace is for a finished run" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "x"}', "is no prediction (it lacks step_time, time, memory, collectives)"),
        ("[]", "is no prediction (it lacks name"),
        (
            '{"name": "x", "step_time": 1, "time": {}, "memory": {}, "collectives": [1]}',
            "is not as `scaling predict --json` prints it",
        ),
        (
            '{"name": "x", "step_time": "soon", "time": {}, "memory": {}, "collectives": []}',
            "is not as `scaling predict --json` prints it",
        ),
    ],
)
def test_other_files_are_refused(text, message, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError) as error:
        prediction_document(tmp_path / "x.json")
    assert message in str(error.value)


def test_a_saved_price_beside_a_document_has_its_digits_and_no_work(documents):
    saved = rounded(documents[0] | {"made_with": {}, "operations": [ROW], "buffers": []})
    found = difference(saved, documents[0])
    assert all(c.difference == 0 for c in (found.step_time, *found.time.values()))
    assert found.work["flops"] == Change(None, None) and not list(headlines(found))


def test_a_line_is_joined_to_its_text_in_another_file(documents):
    renamed = ROW | {"line": "b.py:5", "time": 1.5}
    first, second = ({**documents[0], "operations": [r], "buffers": []} for r in (ROW, renamed))
    (line,) = difference(first, second).lines
    assert line.name == "b.py:5 x @ w" and line.figures["time"] == Change(1.0, 1.5)


def test_what_is_no_dump_is_not_called_one(tmp_path):
    with pytest.raises(InputError, match="has no predicted.json; as XLA's dump: for which"):
        sc.diff(tmp_path, tmp_path)
