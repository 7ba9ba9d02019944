"""The tables of a C file."""

from __future__ import annotations

from farcall.artifact._c_tables import Tables


def test_equal_tables_are_written_once() -> None:
    tables = Tables("main_")
    dims = tables.add("int64_t", [2, 3])
    assert tables.add("int64_t", iter((2, 3))) == dims
    assert tables.add("int32_t", [2, 3]) != dims
    assert (
        tables.text()
        == "static const int64_t main_t0[] = {2, 3};\nstatic const int32_t main_t1[] = {2, 3};\n"
    )


def test_an_empty_table_is_null() -> None:
    tables = Tables()
    assert tables.add("int64_t", []) == "NULL"
    assert tables.text() == ""
