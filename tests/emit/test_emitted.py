"""Files are written, replaced where convwright wrote them, and left alone where somebody else did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convwright.emit.emitted import MARK, EmittedC
from convwright.errors import BadInput

EMITTED = EmittedC("mine", f"/* header, {MARK} */\n", f"/* source, {MARK} */\n", ())


def test_both_files_are_written_into_a_folder_that_is_made(tmp_path: Path) -> None:
    source, header = EMITTED.write(tmp_path / "a" / "b")
    assert (source.name, header.name) == ("mine.c", "mine.h")
    assert (source.read_text(), header.read_text()) == (EMITTED.source, EMITTED.header)
    assert EMITTED.write(str(tmp_path / "a" / "b")) == (source, header)


@pytest.mark.parametrize("name", ["mine.c", "mine.h"])
def test_a_file_of_somebody_else_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("int main(void) { return 0; }\n")
    with pytest.raises(BadInput, match=f"{name} exists and was not emitted by convwright"):
        EMITTED.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text().startswith("int main")


@pytest.mark.parametrize("folder", [None, 7])
def test_what_is_no_path_is_bad_input(folder: Any) -> None:
    with pytest.raises(BadInput, match=f"`folder` must be the path of a folder, got {folder}"):
        EMITTED.write(folder)


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"file.* cannot be written: (Not a directory|File exists)"):
        EMITTED.write(tmp_path / "file" / "inner")
    with pytest.raises(BadInput, match="file is a file: name the folder to write into"):
        EMITTED.write(tmp_path / "file")


def test_what_a_link_leads_to_is_replaced_and_keeps_its_rights(tmp_path: Path) -> None:
    first, _ = EMITTED.write(tmp_path / "there")
    first.chmod(0o640)
    (tmp_path / first.name).symlink_to(first)
    first.write_text(f"{first.read_text().splitlines()[0]}\n")
    EMITTED.write(tmp_path)
    assert (tmp_path / first.name).is_symlink()
    assert first.read_text() == EMITTED.source
    assert first.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["mine.c", "mine.h"])
def test_a_link_to_nothing_is_not_followed(name: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(BadInput, match=f"{name} is a link to {elsewhere}, which does not exist: remove it or give"):
        EMITTED.write(folder)
    assert not elsewhere.exists()
    assert [path.name for path in folder.iterdir()] == [name]


def test_links_in_a_circle_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine.c").symlink_to(tmp_path / "mine.h")
    (tmp_path / "mine.h").symlink_to(tmp_path / "mine.c")
    with pytest.raises(BadInput, match=r"mine\.c is a link to .*, which does not exist"):
        EMITTED.write(tmp_path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Not even to a file that convwright emitted."""
    first, _ = EMITTED.write(tmp_path / "elsewhere")
    first.write_text(f"{first.read_text().splitlines()[0]}\n")
    before = first.read_text()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / first.name).symlink_to(first)
    with pytest.raises(BadInput, match=r"mine\.c is a link to .*, outside the folder: remove it or give another"):
        EMITTED.write(tmp_path / "folder")
    assert first.read_text() == before
    assert not (tmp_path / "folder" / "mine.h").exists()


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    (tmp_path / "there" / "mine.c").symlink_to(tmp_path / "there" / "other.c")
    (tmp_path / "there" / "other.c").write_text(EMITTED.source)
    EMITTED.write(tmp_path / "here")
    assert (tmp_path / "there" / "mine.h").read_text() == EMITTED.header


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, most[1]))
    try:
        with pytest.raises(BadInput, match=r"\.c cannot be written to: File too large"):
            EMITTED.write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not any(tmp_path.iterdir())
