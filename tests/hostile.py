"""Text that means something to a shell, to sbatch or to a terminal, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = st.text(
    st.one_of(
        st.sampled_from(list(" '\"\\$`;&|<>(){}[]*?!~#=%-\n\t\r\x0b\x1b\x7f\x85\u2028é")),
        st.sampled_from(list("abSBATCH01")),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=30,
)
CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"
