"""The provisioned stack of this checkout, for the tests that run its programs."""

import pytest

from seatrial.stack import load_stack


@pytest.fixture(scope="session")
def real_stack():
    """The stack; tests that ask for it carry the marker ``stack``."""
    return load_stack()
