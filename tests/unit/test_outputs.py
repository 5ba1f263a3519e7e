"""Outputs lie in no input and replace nothing but their own kind."""

import pytest

from segconf.errors import FileError
from segconf.outputs import check_output, check_output_file


def test_an_output_folder_is_new_empty_or_its_own(tmp_path):
    images, out = tmp_path / "images", tmp_path / "out"
    images.mkdir()
    check_output(out, inputs=[images])
    out.mkdir()
    check_output(out, inputs=[images])
    (out / "metrics.json").write_text("")
    check_output(out, inputs=[images], known=["metrics.json"])
    check_output(out, inputs=[images], known=["*.json"])
    with pytest.raises(FileError, match=r"holds other files, such as metrics\.json"):
        check_output(out, inputs=[images], known=["*.png"])


@pytest.mark.parametrize("place", ["images", "images/out", "other/../images/deep/out"])
def test_an_output_folder_lies_in_no_input(tmp_path, place):
    (tmp_path / "images").mkdir()
    (tmp_path / "other").mkdir()
    with pytest.raises(FileError, match="which is read"):
        check_output(tmp_path / place, inputs=[tmp_path / "images"])


def test_an_output_folder_is_no_file(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(FileError, match="Choose another folder"):
        check_output(tmp_path / "out")


def test_a_mark_makes_everything_in_a_folder_its_own(tmp_path):
    (tmp_path / "a.png").write_text("")
    with pytest.raises(FileError, match="holds other files"):
        check_output(tmp_path, mark="export.json")
    (tmp_path / "export.json").write_text("")
    check_output(tmp_path, mark="export.json")


def test_a_place_in_an_input_may_be_meant_for_outputs(tmp_path):
    run, within = tmp_path / "run", tmp_path / "run/evaluation"
    within.mkdir(parents=True)
    check_output(within / "mine", inputs=[run], within=within)
    for place in (run, within, run / "history", within / ".." / "mine"):
        with pytest.raises(FileError, match="which is read"):
            check_output(place, inputs=[run], within=within)


def test_a_file_is_new_or_of_its_own_kind(tmp_path):
    own, other, link = (tmp_path / name for name in ("own", "other", "link"))
    own.write_text("own")
    other.write_text("other")
    link.symlink_to("nowhere")

    def is_own(path):
        return path.read_text() == "own"

    check_output_file(tmp_path / "new", is_own=is_own)
    check_output_file(own, is_own=is_own)
    for path in (other, link, tmp_path):
        with pytest.raises(FileError, match="something else is there"):
            check_output_file(path, is_own=is_own)
    with pytest.raises(FileError, match="which is read"):
        check_output_file(own, inputs=[tmp_path], is_own=is_own)


@pytest.mark.parametrize("name", ["a\0b", "loop"])
def test_a_path_that_leads_nowhere_is_refused(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileError, match="cannot be written"):
        check_output(tmp_path / name / "below", inputs=[tmp_path / "images"])
