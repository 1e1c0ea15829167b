"""What these functions write is on the disk when they return."""

import errno
import os
from pathlib import Path

import pytest

from scaling.meshes.durable import make_folders, sync, write_whole


def test_a_file_is_replaced_as_a_whole_and_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, file = tmp_path / "theirs", tmp_path / "run.json"
    theirs.write_text("theirs")
    file.symlink_to(theirs)
    (tmp_path / ".run.json.draft").symlink_to(theirs)
    write_whole(file, "first")
    assert (file.read_text(), file.is_symlink(), theirs.read_text()) == ("first", False, "theirs")

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device: .*/run.json"):
        write_whole(file, "second")
    assert file.read_text() == "first" and not (tmp_path / ".run.json.draft").exists()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What has been synced, in order."""
    paths: list[Path] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_the_name_of_a_file_is_synced_after_its_text(tmp_path: Path, synced: list[Path]) -> None:
    write_whole(tmp_path / "run.json", "text")
    assert synced == [tmp_path / ".run.json.draft", tmp_path]


def test_the_names_of_new_folders_are_synced(tmp_path: Path, synced: list[Path]) -> None:
    make_folders(tmp_path / "a" / "b")
    assert {*synced} == {tmp_path, tmp_path / "a"}
    make_folders(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_only_a_file_system_that_cannot_sync_folders_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    number = errno.EINVAL
    sync(tmp_path)
    number = errno.EIO
    with pytest.raises(OSError, match=f"Input/output error: {str(tmp_path)!r}"):
        sync(tmp_path)
