"""What tests of several folders share and is slow to make."""

import pytest


@pytest.fixture(scope="session")
def toy_weights(tmp_path_factory):
    from toy_weights import make_toy_weights  # here, since most tests need none of what it imports

    folder = tmp_path_factory.mktemp("weights")
    make_toy_weights(folder)
    return folder
