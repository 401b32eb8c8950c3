import shutil

from jengine.doctor.folder import look_at_folder


def test_files_are_counted_below_it(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b").write_bytes(b"123")
    found = look_at_folder(tmp_path)
    assert (found.num_files, found.num_bytes, found.can_write) == (2, 8, True)
    total = shutil.disk_usage(tmp_path).total
    assert 0 < found.free_bytes <= total


def test_a_folder_that_is_not_there_yet(tmp_path):
    found = look_at_folder(tmp_path / "not" / "yet")
    assert (found.num_files, found.num_bytes, found.can_write) == (0, 0, True)


def test_below_a_file_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert not look_at_folder(tmp_path / "file" / "folder").can_write
