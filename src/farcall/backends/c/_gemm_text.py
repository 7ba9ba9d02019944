"""C source of the blocked matrix product, for one element type.

``C = A B``, or ``C = S + A B``, where S is C, or has a value for each row or column of C. A tile of C stays
in registers during a block of K: with AVX-512, 12 rows by two vectors of 64 bytes, else 6 rows by two of 32
bytes, which leaves room for two vectors of B and one of A in 32 or 16 registers. Vector types are an
extension of gcc and clang, which lower them to what the target has; for x86 with FMA, the loop of the second
tile is assembly.

*Panels* of B are 64 bytes wide, *groups* of A are 6 rows high: both operands may be given packed in such an
order, so that a tile reads them from beginning to end. The first tile copies a panel that is not packed to
the stack, where the other rows of A meet it in the L1 cache. A few columns behind the last whole vector are
computed by vectors of the rows of packed groups instead: up to 4, as in planes of 7x7 and 14x14, and with
AVX-512 up to 9, as in planes of 3x3 and 5x5.
"""

from __future__ import annotations

from functools import cache

from farcall.backends._kernels import HIDDEN, Kernels
from farcall.backends.c._gemm_tile_text import GROUP, NARROW, PAIRED, tiles_source
from farcall.backends.c._turn_text import SHUFFLES, turn_source

# Contraction: a multiply and an add become one fused operation, rounded once, if the processor has it, which
# doubles the speed of a matrix product. gcc before 14 treats ISO C's setting ("on") as off.
COMPILE_FLAGS = ("-ffp-contract=fast",)

PANEL_BYTES = 64
_DEPTH = 512  # rows of B in a block of K with vectors of 64 bytes: 64 KB of two panels, for the L2 cache
_LESS_DEPTH = 256  # the same with others: 16 KB of two panels, which fit L1 caches, and the stacks of boards
BAND = 96  # rows of A in a block: with a block of K, half of a small L2 cache
_BANDS = 4  # in a block, where B is copied once for all of its rows
_CHUNK = 128  # columns of a packed B that all rows of A meet before the next ones
PAGE = 4096  # bytes between rows that fall on the same lines of an L1 cache
_APART = 16  # elements between gathered rows of a block, so that few of them fall on the same lines
FEW = 3  # with so few rows of A, B is read in order, since that is what takes the time
_PART_COLUMNS = 64  # of a part that one thread may compute: whole panels and tiles
_PART_ROWS = 4 * GROUP * 2  # likewise: whole tiles
_MANY_PARTS = 8  # of fewer, parts are halves of those, or quarters, so that threads get equal shares
GROUP_SLACK = 2  # elements behind the last packed group, so that 8 rows can be read of one


def room(m: int | None) -> int:
    """Elements of memory for rows of A that a product of m rows, or of any number, copies."""
    rows = _BANDS * BAND if m is None else min(-(-m // GROUP) * GROUP, _BANDS * BAND)
    return rows * (_DEPTH + _APART) + GROUP_SLACK


def panel_width(itemsize: int) -> int:
    """Columns of B in a panel."""
    return PANEL_BYTES // itemsize


@cache
def gemm_kernels(kind: str, itemsize: int) -> Kernels:
    """The file with ``farcall_gemm_part_KIND``, which all products of a dtype call."""
    driver = _DRIVER.replace("@TURN", turn_source(itemsize))
    text = f"{VECTORS}{tiles_source(kind, itemsize)}{driver}"
    text = INCLUDES + with_numbers(text, kind, itemsize)
    return Kernels(f"farcall_gemm_{kind}", text, (f"farcall_gemm_part_{kind}",), COMPILE_FLAGS, vectors=True)


@cache
def gemm_calls(kind: str, itemsize: int) -> str:
    """C source of ``farcall_gemm_KIND``, which :func:`farcall.backends.c._gemm.call_gemm` calls.

    It needs :data:`RANGE` before it.
    """
    return with_numbers(_CALLS, kind, itemsize)


def shared_calls(kind: str, itemsize: int, verb: str) -> str:
    """C source of ``farcall_shared_VERB_KIND``, which computes as ``farcall_VERB_KIND`` does, by threads.

    It needs that function and :data:`farcall.backends.c._parallel.HELPER` before it.
    """
    return with_numbers(_SHARED, kind, itemsize).replace("VERB", verb)


def vector_source(kind: str, itemsize: int) -> str:
    """C source of the vector types of other kernels."""
    return with_numbers(VECTORS, kind, itemsize)


def with_numbers(text: str, kind: str, itemsize: int) -> str:
    numbers = {
        "HIDDEN": HIDDEN, "KIND": kind, "PANEL": panel_width(itemsize), "SLACK": GROUP_SLACK, "GROUP": GROUP,
        "LESS_DEPTH": _LESS_DEPTH, "MOST_DEPTH": _DEPTH, "BANDS": _BANDS, "BAND": BAND, "FEW": FEW,
        "PAGE": PAGE, "APART": _APART, "CHUNK": _CHUNK, "NARROW": NARROW,
        "PAIRED": PAIRED,
        "COLUMNS": _PART_COLUMNS, "ROWS": _PART_ROWS, "MANY_PARTS": _MANY_PARTS,
    }  # fmt: skip
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return text


INCLUDES = "#include <stdint.h>\n#include <string.h>\n\n"
RANGE = "struct farcall_range { int64_t row, row_end, column, column_end; };"

VECTORS = (
    SHUFFLES
    + """\
#if defined(__AVX512F__)
#define FARCALL_VECTOR 64
#elif defined(__SSE__) && !defined(__AVX__)
#define FARCALL_VECTOR 16
#else
#define FARCALL_VECTOR 32
#endif
typedef KIND farcall_v_KIND __attribute__((vector_size(FARCALL_VECTOR)));
typedef KIND farcall_u_KIND __attribute__((vector_size(FARCALL_VECTOR), aligned(1), may_alias));
typedef KIND farcall_short_KIND __attribute__((vector_size(16)));
typedef KIND farcall_short_at_KIND __attribute__((vector_size(16), aligned(1), may_alias));
typedef KIND farcall_rows_KIND __attribute__((vector_size(8 * sizeof(KIND))));
typedef KIND farcall_rows_at_KIND __attribute__((vector_size(8 * sizeof(KIND)), aligned(1), may_alias));
enum { farcall_lanes_KIND = FARCALL_VECTOR / sizeof(KIND), farcall_wide_KIND = 2 * farcall_lanes_KIND,
  farcall_high_KIND = FARCALL_VECTOR == 64 ? 2 * GROUP : GROUP,
  farcall_depth_KIND = FARCALL_VECTOR == 64 ? MOST_DEPTH : LESS_DEPTH };
"""
)


_DRIVER = """\
/* A panel without gaps, as wide as a tile; its last columns may be zeros. */
static inline void farcall_copy_KIND(int64_t k, int64_t n, const KIND* b, int64_t b_row, KIND* panel) {
  if (n == farcall_wide_KIND)
    for (int64_t i = 0; i < k; ++i)
      memcpy(panel + i * farcall_wide_KIND, b + i * b_row, farcall_wide_KIND * sizeof(KIND));
  else
    for (int64_t i = 0; i < k; ++i, b += b_row, panel += farcall_wide_KIND) {
      const farcall_v_KIND zero = {0};
      *(farcall_u_KIND*)panel = *(farcall_u_KIND*)(panel + farcall_lanes_KIND) = zero;
      if (n >= farcall_lanes_KIND) {
        *(farcall_u_KIND*)panel = *(const farcall_u_KIND*)b;
        *(farcall_u_KIND*)(panel + n - farcall_lanes_KIND) =
            *(const farcall_u_KIND*)(b + n - farcall_lanes_KIND);
      } else {
        for (int64_t j = 0; j < n; ++j) panel[j] = b[j];
      }
    }
}

@TURN#ifdef FARCALL_PAIRED_KIND
enum { farcall_narrow_KIND = PAIRED };
#else
enum { farcall_narrow_KIND = NARROW };
#endif
/* The last columns, fewer than a vector, of rows whose groups are packed. */
static __attribute__((noinline)) void farcall_last_columns_KIND(int64_t rows, int64_t columns, int64_t k,
    const KIND* a, int64_t a_group, const KIND* b, int64_t b_row, KIND* c, int64_t c_row, int add,
    const KIND* start, int64_t start_row, int64_t start_column) {
  KIND copy[farcall_depth_KIND * farcall_narrow_KIND], made[16 * farcall_narrow_KIND];
  const int64_t width = columns == 1 ? 1 : columns <= NARROW ? NARROW : farcall_narrow_KIND;
  const KIND* const few = columns == width && b_row == width ? b : copy;
  for (int64_t i = 0; few == copy && i < k; ++i, b += b_row)
    for (int64_t j = 0; j < width; ++j) copy[i * width + j] = b[j < columns ? j : 0];
  for (int64_t i = 0; i < rows; ++i, c += c_row, start += start_row) {
    const int64_t r = i % (2 * GROUP);
    if (r == 0) {
      const KIND* a1 = i + GROUP < rows ? a + a_group : a;
      if (width == 1) farcall_narrow1_KIND(k, a, a1, few, made);
      else if (width == NARROW) farcall_narrowNARROW_KIND(k, a, a1, few, made);
#ifdef FARCALL_PAIRED_KIND
      else farcall_narrowPAIRED_KIND(k, a, a1, few, made);
#endif
      a += 2 * a_group;
    }
    for (int64_t j = 0; j < columns; ++j)
      c[j] = made[16 * j + (r < GROUP ? r : 8 - GROUP + r)] + (add ? c[j] : start[j * start_column]);
  }
}

static inline __attribute__((always_inline)) void farcall_blocks_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int packed) {
  /* A value for each row is what the sums begin with; to others, or to those of the block before, they are
   * added. */
  const KIND none = 0;
  const KIND* first = start && !start_column ? start : &none;
  int64_t first_row = first == start ? start_row : 0;
  const KIND* old = start && start_column ? start : 0;
  int64_t old_row = start_row;
  /* Each vector of a panel in one line of the cache, where it is as long. */
  __attribute__((aligned(FARCALL_VECTOR == 64 ? 64 : sizeof(KIND))))
  KIND panels[farcall_depth_KIND * farcall_wide_KIND];
  const int turned = b_row == 1 && b_panel != PANEL;
  const int64_t b_column = turned ? b_panel / PANEL : 1;
  const int in_panels = b_panel != PANEL && !turned && farcall_wide_KIND == PANEL; /* one for each tile */
  /* A panel that is copied serves more rows; one of a transposed B costs more than to read A again. */
  const int64_t band = turned ? m : b_panel != PANEL ? BAND : BANDS * BAND;
  const int64_t rest = n % farcall_lanes_KIND;
  const int64_t narrow = packed && !turned && rest <= farcall_narrow_KIND ? rest : 0;
  n -= narrow;
  for (int64_t k0 = 0; k0 < k || k0 == 0;
       k0 += farcall_depth_KIND, old = c, old_row = c_row, first = &none, first_row = 0) {
    const int64_t k1 = k - k0 < farcall_depth_KIND ? k - k0 : farcall_depth_KIND;
    for (int64_t i0 = 0; i0 < m; i0 += band) {
      const int64_t rows = m - i0 < band ? m - i0 : band;
      const KIND* const from = a + k0 * a_column + i0 / GROUP * a_group;
      for (int64_t j = 0; j < n; j += farcall_wide_KIND) {
        const int64_t n1 = n - j < farcall_wide_KIND ? n - j : farcall_wide_KIND;
        const KIND* b0 = b + k0 * b_row + j / PANEL * b_panel + j % PANEL * b_column;
        const KIND* b1 = b0 + farcall_lanes_KIND;
        int64_t row = b_row;
        KIND* copy = 0;
        if (b_panel != PANEL && !turned) {
          if (farcall_lanes_KIND == PANEL) b1 = n1 > PANEL ? b0 + b_panel : b0;
        } else if (turned || (b_row != n1 && rows >= 4 * GROUP) || n1 % farcall_lanes_KIND != 0) {
          if (!turned && n1 == farcall_wide_KIND && rows >= farcall_high_KIND) {
            copy = panels;
          } else {
            if (turned) farcall_turn_KIND(k1, n1, b0, b_column, panels);
            else farcall_copy_KIND(k1, n1, b0, b_row, panels);
            b0 = panels;
            b1 = panels + farcall_lanes_KIND;
            row = farcall_wide_KIND;
          }
        }
        KIND* const to = c + i0 * c_row + j;
        farcall_tiles_KIND(rows, n1, k1, from, a_row, a_column, a_group, b0, b1, row, to, c_row,
            old ? old + i0 * old_row + j : 0, old_row,
            first + i0 * first_row, first_row, packed, copy,
            in_panels && n - j > farcall_wide_KIND ? b0 + b_panel : 0);
      }
    }
    /* Behind the tiles, which ask for the rows of A ahead of their use. In their loop, LLVM for Hexagon would
     * overwrite the loop's bound. */
    for (int64_t i0 = 0; i0 < m && narrow; i0 += band)
      farcall_last_columns_KIND(m - i0 < band ? m - i0 : band, narrow, k1,
          a + k0 * a_column + i0 / GROUP * a_group, a_group,
          b + k0 * b_row + n / PANEL * b_panel + n % PANEL, b_row, c + i0 * c_row + n, c_row, k0 != 0,
          start ? start + i0 * start_row + n * start_column : &none, start ? start_row : 0,
          start ? start_column : 0);
  }
}

/* The body of a tile takes long to compile: there are those for packed rows and for contiguous ones, whose
 * strides are constants. Other rows are copied first. */
static __attribute__((noinline)) void farcall_packed_KIND(int64_t m, int64_t n, int64_t k, const KIND* a,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {
  farcall_blocks_KIND(m, n, k, a, 1, GROUP, GROUP * k, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, 1);
}
static __attribute__((noinline)) void farcall_plain_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column) {
  /* Panels of B that are packed are read by one block of rows after another, from the L2 cache. */
  const int64_t most = b_panel != PANEL && b_row != 1 && m > BAND ? CHUNK : n;
  for (int64_t j = 0; j < n; j += most)
    farcall_blocks_KIND(m, n - j < most ? n - j : most, k, a, a_row, 1, GROUP * a_row,
        b + j / PANEL * b_panel, b_row, b_panel, c + j, c_row, start ? start + j * start_column : 0,
        start_row, start_column, 0);
}
static void farcall_groups_KIND(int64_t rows, int64_t k, const KIND* a, int64_t a_row, int64_t a_column,
    KIND* groups) {
  for (int64_t i = 0; i < k; ++i, a += a_column) {
    KIND* to = groups + i * GROUP;
    int64_t r = 0;
    for (; a_row == 1 && r + GROUP <= rows; r += GROUP, to += k * GROUP)
      memcpy(to, a + r, GROUP * sizeof *to);
    for (; r < rows; r += GROUP, to += k * GROUP)
      for (int64_t t = 0; t < GROUP; ++t) to[t] = r + t < rows ? a[(r + t) * a_row] : 0;
  }
}
/* Contiguous rows that are pages apart need not be packed, only be nearer to each other. */
static __attribute__((noinline)) void farcall_strided_KIND(int64_t m, int64_t n, int64_t k, int64_t most,
    const KIND* a, int64_t a_row, int64_t a_column, const KIND* b, int64_t b_row, int64_t b_panel,
    KIND* c, int64_t c_row, const KIND* start, int64_t start_row, int64_t start_column, KIND* room) {
  KIND own[4 * GROUP * LESS_DEPTH + SLACK], *const copy = room ? room : own;
  /* B is read once for `most` rows. */
  const int64_t depth = room ? farcall_depth_KIND : 4 * GROUP * LESS_DEPTH / most;
  for (int64_t i0 = 0; i0 < m; i0 += most, a += most * a_row, c += most * c_row) {
    const int64_t rows = m - i0 < most ? m - i0 : most;
    for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += depth) {
      const int64_t k1 = k - k0 < depth ? k - k0 : depth;
      const KIND *const b0 = b + k0 * b_row, *s = start ? start + i0 * start_row : 0;
      int64_t s_row = start_row, s_column = start_column;
      if (k0 > 0) s = c, s_row = c_row, s_column = 1;
      if (a_column == 1 && rows >= GROUP) {
        const int64_t pitch = k1 + (room ? APART : 0);
        for (int64_t r = 0; r < rows; ++r)
          memcpy(copy + r * pitch, a + r * a_row + k0, (size_t)k1 * sizeof *a);
        farcall_plain_KIND(rows, n, k1, copy, pitch, b0, b_row, b_panel, c, c_row, s, s_row, s_column);
      } else {
        farcall_groups_KIND(rows, k1, a + k0 * a_column, a_row, a_column, copy);
        farcall_packed_KIND(rows, n, k1, copy, b0, b_row, b_panel, c, c_row, s, s_row, s_column);
      }
    }
  }
}

/* Rows `i` to `i_end` and columns `j` to `j_end` of a product: a whole number of groups and panels, or up to
 * the end. Rows that are copied first have `room`, or, if that is 0, some on the stack, which is small. */
HIDDEN void farcall_gemm_part_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t i, int64_t i_end, int64_t j,
    int64_t j_end, KIND* room) {
  const int turned = b_row == 1 && b_panel != PANEL, in_panels = !turned && b_panel != PANEL;
  const int pays = m >= BAND && n >= BAND && (!turned || room);
  const int crowded = pays && a_row * (int64_t)sizeof(KIND) % PAGE == 0;
  const int64_t most = room && m >= BAND ? BANDS * BAND : m < BAND || in_panels ? 4 * GROUP : BAND;
  m = i_end - i;
  n = j_end - j;
  a += i / GROUP * a_group;
  b += j / PANEL * b_panel;
  c += i * c_row + j;
  if (start) start += i * start_row + j * start_column;
  if (a_row == 1 && a_column == GROUP && a_group == GROUP * k && k > 1) {
    farcall_packed_KIND(m, n, k, a, b, b_row, b_panel, c, c_row, start, start_row, start_column);
  } else if (a_column == 1 && m >= GROUP && !crowded) {
    farcall_plain_KIND(m, n, k, a, a_row, b, b_row, b_panel, c, c_row, start, start_row, start_column);
  } else {
    farcall_strided_KIND(m, n, k, most, a, a_row, a_column, b, b_row, b_panel, c, c_row, start, start_row,
        start_column, room);
  }
}
"""

_CALLS = """\
/* Rows `i` to `i_end` and columns `j` to `j_end` of a product: a whole number of groups and panels, or up to
 * the end. */
HIDDEN void farcall_gemm_part_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t i, int64_t i_end, int64_t j,
    int64_t j_end, KIND* room);

/* How many parts a product has that threads can compute: blocks of columns, or of rows if these are many
 * more, since threads that share rows each copy all panels of B. Where the borders are changes no result:
 * each element is the same sum in the same order, and few rows stay few rows. */
static inline int64_t farcall_part_columns_KIND(int64_t n) {
  return n >= MANY_PARTS * COLUMNS ? COLUMNS : COLUMNS / 2;
}
static inline int64_t farcall_part_rows_KIND(int64_t m) {
  return m >= MANY_PARTS * ROWS ? ROWS : m >= MANY_PARTS * ROWS / 2 ? ROWS / 2 : ROWS / 4;
}
static inline int64_t farcall_column_parts_KIND(int64_t n) {
  const int64_t each = farcall_part_columns_KIND(n);
  return n / each + (n % each != 0);
}
static inline int64_t farcall_row_parts_KIND(int64_t m) {
  const int64_t each = farcall_part_rows_KIND(m);
  return m <= FEW ? 0 : m / each + (m % each != 0);
}
static inline int farcall_by_columns_KIND(int64_t m, int64_t n) {
  const int64_t columns = farcall_column_parts_KIND(n);
  return (columns >= MANY_PARTS ? 2 : 1) * columns >= farcall_row_parts_KIND(m);
}
static inline int64_t farcall_parts_KIND(int64_t m, int64_t n) {
  if (m == 0 || n == 0) return 0;
  return farcall_by_columns_KIND(m, n) ? farcall_column_parts_KIND(n) : farcall_row_parts_KIND(m);
}
/* What a part costs; with few rows of A, reading B takes the time. */
static inline double farcall_part_cost_KIND(int64_t m, int64_t n, int64_t k) {
  const double all = (double)m * (double)n * (double)k * (m <= FEW ? 2 : 1);
  return all > 0 ? all / (double)farcall_parts_KIND(m, n) : 0;
}

/* The rows and columns of the parts from `first` to `last`, exclusive. */
static inline void farcall_gemm_range_KIND(int64_t m, int64_t n, int64_t first, int64_t last,
    struct farcall_range* range) {
  *range = (struct farcall_range){0, m, 0, n};
  const int64_t columns = farcall_part_columns_KIND(n), rows = farcall_part_rows_KIND(m);
  if (farcall_by_columns_KIND(m, n))
    range->column = first * columns, range->column_end = last * columns < n ? last * columns : n;
  else
    range->row = first * rows, range->row_end = last * rows < m ? last * rows : m;
}

/* The parts from `first` to `last`, exclusive. */
static inline void farcall_gemm_parts_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, int64_t first, int64_t last, KIND* room) {
  struct farcall_range at;
  farcall_gemm_range_KIND(m, n, first, last, &at);
  farcall_gemm_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, at.row, at.row_end, at.column, at.column_end, room);
}

static inline void farcall_gemm_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, KIND* room) {
  farcall_gemm_part_KIND(m, n, k, a, a_row, a_column, a_group, b, b_row, b_panel, c, c_row, start, start_row,
      start_column, 0, m, 0, n, room);
}
"""

_SHARED = """\
/* A product in a loop whose steps depend on each other: threads share each product. */
struct farcall_shared_VERB_KIND {
  int64_t m, n, k, a_row, a_column, a_group, b_row, b_panel, c_row, start_row, start_column;
  const KIND *a, *b, *start;
  KIND *c, *room;
};
static int farcall_shared_VERB_part_KIND(void* context, int64_t first, int64_t last, void* scratch) {
  const struct farcall_shared_VERB_KIND* o = context;
  farcall_VERB_parts_KIND(o->m, o->n, o->k, o->a, o->a_row, o->a_column, o->a_group, o->b, o->b_row,
      o->b_panel, o->c, o->c_row, o->start, o->start_row, o->start_column, first, last,
      scratch ? (KIND*)scratch : o->room);
  return 0;
}
static inline void farcall_shared_VERB_KIND(int64_t m, int64_t n, int64_t k,
    const KIND* a, int64_t a_row, int64_t a_column, int64_t a_group,
    const KIND* b, int64_t b_row, int64_t b_panel, KIND* c, int64_t c_row,
    const KIND* start, int64_t start_row, int64_t start_column, KIND* room, int64_t room_size) {
  struct farcall_shared_VERB_KIND operands = {m, n, k, a_row, a_column, a_group, b_row, b_panel, c_row,
      start_row, start_column, a, b, start, c, room};
  farcall_parallel(farcall_parts_KIND(m, n), farcall_part_cost_KIND(m, n, k), room != 0, room_size,
      farcall_shared_VERB_part_KIND, &operands);
}
"""
