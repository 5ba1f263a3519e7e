"""The browser of a file of tests; such a file skips itself where there is none."""

import pytest


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    """Where the browser saves files."""
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory, downloads):
    """Chromium with a profile of its own."""
    from tests.browsers import chromium

    with chromium(tmp_path_factory.mktemp("profile"), downloads) as driver:
        yield driver
