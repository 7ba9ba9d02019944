"""Trees of SIP signatures, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from farcall.abi.iree import _sip as sip

indices = st.integers(0, 2**31 - 1)
trees: Any = st.recursive(
    indices,
    lambda inner: (
        st.dictionaries(indices, inner, max_size=3).map(lambda kids: sip.Branch("list", kids))
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda kids: sip.Branch("dict", kids))
    ),
    max_leaves=8,
)
