"""`scaling train`: what it leaves in a run folder beside what the loop writes."""

from types import SimpleNamespace

import pytest

from meshes import catalog
from scaling.commands import train
from scaling.cost.profile_file import profile_of
from scaling.predict import predict
from scaling.price import price
from scaling.train import predicted

H100 = catalog.load("dgx-h100")


@pytest.fixture
def made(hand_step):
    priced = price(hand_step, H100, profile_of(H100.accelerator))
    return priced, predict(priced)


def test_what_an_earlier_run_predicted_goes_where_there_is_no_prediction(
    tmp_path, toy, made, monkeypatch, capsys
):
    plan = SimpleNamespace(run=toy())
    monkeypatch.setattr(predicted, "try_to_predict", lambda *_: made)
    assert train._predict(plan, None, tmp_path) == made[1].step_time
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predicted.json", "program.json", "calibration.json"}
    monkeypatch.setattr(predicted, "try_to_predict", lambda *_: "no prediction: never measured")
    assert train._predict(plan, None, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert "no prediction: never measured" in capsys.readouterr().err
