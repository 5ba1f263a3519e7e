"""The folder of a data set that has moved since the training."""

import pytest

from segconf.data.cases import Case, CaseSet
from segconf.data.datasets.dataset import check_one_folder, dataset_folder
from segconf.data.splits import Split
from segconf.errors import ConfigError, DataError
from segconf.runs.run_cases import masked_cases
from segconf.runs.run_data import RunData
from tests.untrained_runs import untrained_run


def test_a_folder_that_has_moved_is_found_where_it_is_now(tmp_path):
    run, _ = untrained_run(tmp_path, training=2, validation=1, test=2)
    moved = (tmp_path / "discs").rename(tmp_path / "moved")
    with pytest.raises(DataError, match="no such folder"):
        masked_cases(run, "test", None)
    cases, root = masked_cases(run, "test", moved)
    assert root == moved
    assert [case.id for case in cases] == ["test/case_200", "test/case_201"]


def test_a_new_image_goes_where_its_patient_is(tmp_path):
    names = {f"p{number}/a": f"p{number}" for number in range(9)}
    cases = [Case(name, tmp_path / f"{name}.png", group=group) for name, group in names.items()]
    split = Split(tuple(cases[:2]), tuple(cases[2:5]), tuple(cases[5:7]), tuple(cases[7:]))
    new = [Case(f"{g}/b", tmp_path / "b.png", group=g) for g in ("p1", "p5", "p8", "p9")]
    # More images with masks are held out in another way.
    parts = ((*cases[4:], *new), tuple(cases[:4]), ())
    found = CaseSet("set", tmp_path, *parts, held_out=frozenset({"validation", "test"}))
    arranged = RunData.of(str(tmp_path), None, split).arranged(found)
    assert {part: [case.id for case in own] for part, own in arranged.parts().items()} == {
        "training": ["p0/a", "p1/a", "p1/b", "p2/a", "p3/a", "p4/a", "p9/b"],
        "validation": ["p5/a", "p5/b", "p6/a"],
        "test": ["p7/a", "p8/a", "p8/b"],
    }


def test_a_new_data_set_has_one_folder(tmp_path):
    check_one_folder(str(tmp_path), None)
    check_one_folder("isic", tmp_path)
    assert dataset_folder("isic", tmp_path) == tmp_path
    with pytest.raises(ConfigError, match="Give one of both"):
        check_one_folder("discs", tmp_path)
