"""Names that an interface file must not declare, since they mean something else in the generated code."""

from __future__ import annotations

import re

_IDL = (
    "any attribute boolean case char const default dmahandle double enum exception float in inout inrout "
    "interface long module native octet oneway out raises readonly rout sequence short string struct switch "
    "typedef union unsigned void wchar wstring TRUE FALSE"
)
_C = (
    "auto break case char const continue default do double else enum extern float for goto if inline "
    "int long register restrict return short signed sizeof static struct switch typedef union unsigned "
    "void volatile while asm typeof fortran"
)
_CXX = (
    "alignas alignof and and_eq bitand bitor bool catch char8_t char16_t char32_t class co_await co_return "
    "co_yield compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit "
    "export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
    "protected public reinterpret_cast requires static_assert static_cast template this thread_local throw "
    "true try typeid typename using virtual wchar_t xor xor_eq"
)
_MACROS = "NULL EOF errno assert linux unix i386 stdin stdout stderr main offsetof va_list size_t ptrdiff_t"
# Functions of the C library that compilers know: a type or member with such a name at the top level clashes.
_BUILTIN = (
    "abort abs acos alloca asin atan atan2 bcmp bcopy bzero calloc cbrt ceil cos cosh erf exit exp exp2 "
    "expm1 fabs fdim floor fma fmax fmin fmod free frexp gamma hypot index isalnum isalpha isdigit "
    "islower isspace isupper j0 j1 jn labs ldexp lgamma llabs log log10 log1p log2 logb lrint lround "
    "malloc memchr memcmp memcpy memmove memset modf nan nearbyint pow printf putchar puts realloc "
    "remainder rindex rint round scalb scanf signbit sin sincos sinh snprintf sprintf sqrt strcat "
    "strchr strcmp strcpy strdup strlen strncat strncmp strncpy strpbrk strrchr strspn strstr tan tanh "
    "tgamma tolower toupper trunc vprintf y0 y1 yn"
)
_KNOWN = (
    dict.fromkeys(_IDL.split(), "a word of the interface language")
    | dict.fromkeys(_MACROS.split(), "defined by the C library")
    | dict.fromkeys(_CXX.split(), "reserved in C++, where the header can be included")
    | dict.fromkeys(_C.split(), "reserved in C")
)
_TOP_LEVEL = frozenset(_BUILTIN.split())
_STDINT = re.compile(r"u?int\w*_t$|U?INT\w*$")
_OURS = re.compile(r"fc_|FC_|FARCALL|farcall_(?!dsp$)")


def is_word(name: str) -> bool:
    """Whether the language itself uses a name."""
    return name in _IDL_WORDS


_IDL_WORDS = frozenset(_IDL.split())


def why_reserved(name: str, *, top_level: bool) -> str | None:
    """The reason why nothing may be declared by this name; None if it may be."""
    if name.startswith("_"):
        return "names that begin with `_` belong to the compiler and to the generated code"
    if name in _KNOWN:
        return f"`{name}` is {_KNOWN[name]}"
    if _STDINT.match(name):
        return f"`{name}` may be defined by the C library"
    if _OURS.match(name):
        return f"`{name}` begins like the names of farcall's header"
    if top_level and name in _TOP_LEVEL:
        return f"`{name}` is a function of the C library"
    return None
