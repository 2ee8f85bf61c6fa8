"""Marks that several files of Spack's tests share."""

from __future__ import annotations

import pytest

#: Spack looks for the reason of a refusal, which takes it ten times as long as a solution
REFUSED_SPECS = pytest.mark.nightly(
    reason="specs that Spack's concretizer refuses, with the reason that it gives"
)
