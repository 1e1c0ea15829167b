"""`--resume` of a run that has all its steps."""

from scaling.training.checkpoint.resume import mend_finished
from scaling.training.run_folder.metrics import MetricsLog


def test_a_torn_line_of_another_process_is_removed_though_all_else_is_whole(tmp_path):
    (tmp_path / "checkpoints" / "step_00000002").mkdir(parents=True)
    (tmp_path / "measured.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "process_1"):
        with MetricsLog(folder) as log:
            log.write(1, loss=1.0)
            log.write(2, loss=0.5)
    assert mend_finished(tmp_path, 2) == []
    with (tmp_path / "process_1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3')
    (note,) = mend_finished(tmp_path, 2)
    assert "process_1/metrics.jsonl had a torn last line, which is removed" in note
    assert mend_finished(tmp_path, 2) == []
