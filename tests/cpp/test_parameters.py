"""Reading parameter names in C++ text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.cpp._parameters import OWN, Declarations, Parameter


def names(source: str, function: str = "f") -> list[str] | None:
    found = Declarations(source).parameters(function)
    return None if found is None else [one.name for one in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int f(int a, float b) { return a; }", ["a", "b"]),
        ("void f() {}", []),
        ("void f(void);", []),
        (
            "static farcall::Map<K, V> f(const farcall::Map<String, Array<int>>& x, std::pair<A, B> y) {",
            ["x", "y"],
        ),
        ("// int f(int wrong) {}\nint f(int right /* f(int no) */, int other) {}", ["right", "other"]),
        ('const char* s = "int f(int a) {"; int f(int b) { }', ["b"]),
        ('auto s = R"x(int f(int a) {)x"; int f(int b) { }', ["b"]),
        ("#define f(x) int f(int x) {\nint f(int b) { }", ["b"]),
        ("int g() { return f(1, 2); } int f(int a, int b) {}", ["a", "b"]),
        ("auto f(unsigned int x, const int y) -> int {", ["x", "y"]),
        ("void f(TensorView x, Tensor*const y) noexcept {", ["x", "y"]),
        ("int f(int a); int f(int b) { }", ["a"]),
        ("int f(int n) { return n < 2 ? 1 : n * f(n - 1); }", ["n"]),
        ("int f(int, int); int f(int a, int b) { }", ["a", "b"]),
        ("int f(int, float b) {", None),  # no name
        ("int f(unsigned long) {", None),
        ("int f(farcall::TensorView) {", None),
        ("int f(const TensorView) {", None),
        ("int f(int a) {} int f(int a, int b) {}", None),  # overloaded
        ("int f(int (*callback)(int)) {", None),
        ("int g(int a) {}", None),
        ("int f(int a", None),
        ("", None),
    ],
)
def test_names(source: str, expected: list[str] | None) -> None:
    assert names(source) == expected


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("int x = 3", "3"),
        ("int x = -3", "-3"),
        ("double x = 1.5e-3", "1.5e-3"),
        ("bool x = true", "true"),
        ('std::string x = "a, (b"', '"a, (b"'),
        ("Optional<int> x = std::nullopt", "nullptr"),
        ("Optional<int> x = {}", "nullptr"),
        ("std::string x = {}", '""'),
        ("bool x = {}", "false"),
        ("const double x = {}", "0.0"),
        ("uint64_t x = {}", "0"),
        ("int x = 1 + 2", "(1 + 2)"),
        ("int x = 1 << 4", "(1 << 4)"),
        ("int x = (256 * 2) / 4", "(( 256 * 2 ) / 4)"),
        ("int x = 256 >> 2", OWN),
        ("int x = kDefault", OWN),
        ("Mode x = Mode::kFast", OWN),
        ("std::vector<std::pair<int, int>> x = {}", OWN),
        ("Map<String, int> x = {}", OWN),
        ("Shape x = {}", OWN),
        ("Options x = Options{}", OWN),
        ("int x = pick<int, 3>(2)", OWN),
        ("int x", None),
    ],
)
def test_defaults(text: str, default: str | None) -> None:
    assert Declarations(f"void f({text}) {{").parameters("f") == [Parameter("x", default)]


def test_a_default_hides_no_parameter_behind_it() -> None:
    source = "int f(int a = 1 << 4, std::vector<int> b = {1, 2}, int c = 1 < 2, int d = 9 >> 1);"
    assert names(source) == ["a", "b", "c", "d"]


@given(st.text(alphabet=' \n\tf(){}[]<>,=;:"\'/*#R"\\-01ab&int', max_size=80))
def test_any_text_is_read_or_given_up(source: str) -> None:
    found = Declarations(source).parameters("f")
    assert found is None or all(one.name.isidentifier() for one in found)
