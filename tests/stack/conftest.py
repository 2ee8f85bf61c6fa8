"""The provisioned stack of this checkout, for the tests that run its programs."""

import pytest

from seatrial.errors import LabError
from seatrial.stack import load_stack


@pytest.fixture(scope="session")
def real_stack():
    """The stack; the test is skipped where it has not been provisioned."""
    try:
        return load_stack()
    except LabError as error:
        pytest.skip(str(error))
