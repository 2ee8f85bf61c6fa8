"""Globs: those of the shell, with sets of numbers as in Slurm's lists of nodes."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.base import globs
from seatrial.base.errors import InputError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("n[1-12]", "n1 n9 n10 n12", "n0 n13 n01 n1-12"),
        ("n[01-16]", "n01 n07 n16", "n1 n7 n17"),
        ("n[1,3-5]", "n1 n3 n4 n5", "n2 n, n13"),
        ("n[8-11]>n[1-20]", "n8>n1 n11>n20", "n7>n1 n8>n21"),
        ("*-r[2-10]?", "a-r2x a-b-r10y", "a-r1x a-r2"),
        ("n[12]", "n1 n2", "n12"),
        ("6.[0-4]*", "6.1-rc 6.4", "6.5"),
        ("n[!1,2]", "n3", "n1 n,"),
        ("[[]x]", "[x]", "x"),
        ("a[b", "a[b", "ab"),
        ("n[5-3]", "", "n5 n4 n3"),
    ],
)
def test_what_a_pattern_matches(pattern, yes, no):
    fits = globs.matcher(pattern)
    assert [text for text in f"{yes} {no}".split() if fits(text)] == yes.split()


@given(st.text("abx-[]!*?", max_size=8), st.text("abx-[]!", max_size=6))
def test_without_sets_of_numbers_it_is_the_shells(pattern, text):
    assert globs.matcher(pattern)(text) == fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("n[1-3", "'[' without ']'"),
        ("n[]", "'[' without ']'"),
        ("n[3-1]", "[3-1] is no range: 1 comes before 3"),
        ("n[12-3]", "[12-3] is no range: 3 comes before 12"),
        ("n[1,9-8]", "[1,9-8] is no range: 8 comes before 9"),
        ("n[z-a]", "[z-a] is no range: a comes before z"),
        ("n[1-99999999999]", "[1-99999999999] is more than 10000 numbers: use '*'"),
    ],
)
def test_what_cannot_match_is_refused(pattern, text):
    with pytest.raises(InputError) as caught:
        globs.check(["*", "n[1-3]", "n[01-99]", pattern])
    assert str(caught.value).startswith(f"{pattern}: {text}")


def test_the_parts_of_a_list_and_other_characters_outside_of_brackets():
    assert globs.split("lab-[1,3],b,c[,d") == ["lab-[1,3]", "b", "c[", "d"]
    assert globs.folded("igb-5.[0-4]-x", "-", " ") == "igb 5.[0-4] x"
