"""What all tests keep to, and what tests of several folders share and is slow to make."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings

from focusmem.browser.executable import browser_version
from focusmem.errors import UserError

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Names the browser that the tests drive, and refuses one that is not there before any test runs.

    Not by pytest's own header, which quiet runs leave out.
    """
    if hasattr(session.config, "workerinput"):
        return  # one of several processes; the first one tells it
    try:
        line = f"browser: {browser_version()}"
    except UserError as error:
        raise pytest.UsageError(str(error)) from error
    session.config.pluginmanager.get_plugin("terminalreporter").write_line(line)


@pytest.fixture(autouse=True)
def _no_loop_left_over():
    """Every test begins without a current event loop, whichever test ran before it in this process.

    Python makes one up on the main thread until the first `asyncio.run` there, so what leans on it passes or fails by
    the order of the tests.
    """
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Nothing that another run has kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOCUSMEM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def toy_weights(tmp_path_factory):
    from toy_weights import make_toy_weights  # here, since most tests need none of what it imports

    folder = tmp_path_factory.mktemp("weights")
    make_toy_weights(folder)
    return folder
