"""The folder of a data set that has moved since the training."""

import pytest

from segconf.data.datasets.dataset import check_one_folder, dataset_folder
from segconf.errors import ConfigError, DataError
from segconf.runs.run_cases import masked_cases
from tests.untrained_runs import untrained_run


def test_a_folder_that_has_moved_is_found_where_it_is_now(tmp_path):
    run, _ = untrained_run(tmp_path, training=2, validation=1, test=2)
    moved = (tmp_path / "discs").rename(tmp_path / "moved")
    with pytest.raises(DataError, match="no such folder"):
        masked_cases(run, "test", None)
    cases, root = masked_cases(run, "test", moved)
    assert root == moved
    assert [case.id for case in cases] == ["test/case_200", "test/case_201"]


def test_a_new_data_set_has_one_folder(tmp_path):
    check_one_folder(str(tmp_path), None)
    check_one_folder("isic", tmp_path)
    assert dataset_folder("isic", tmp_path) == tmp_path
    with pytest.raises(ConfigError, match="Give one of both"):
        check_one_folder("discs", tmp_path)
