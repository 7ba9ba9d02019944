/* Dims of a tensor in a Signature: numbers, names that a call binds to sizes, and expressions over names. */
#include "python/abi/abi.h"

static bool floor_divide(int64_t a, int64_t b, int64_t* out) {
  if (b <= 0) return false;
  *out = a / b - (a % b < 0);
  return true;
}

static bool apply(int64_t op, int64_t a, int64_t b, int64_t* out) {
  switch (op) {
    case FC_OP_ADD: return !__builtin_add_overflow(a, b, out);
    case FC_OP_SUBTRACT: return !__builtin_sub_overflow(a, b, out);
    case FC_OP_MULTIPLY: return !__builtin_mul_overflow(a, b, out);
    case FC_OP_FLOOR_DIVIDE: return floor_divide(a, b, out);
    case FC_OP_LARGER: *out = a > b ? a : b; return true;
    default: *out = a < b ? a : b; return true;
  }
}

/* Returns false if a symbol has no size yet, or on overflow; then the rules in Python, which never overflow, decide. */
static bool evaluate(const int64_t* code, const int64_t* symbols, int64_t* out) {
  int64_t stack[FC_OP_MAX_STACK + 1];
  int32_t n = 0;
  for (; *code != FC_OP_END; ++code) {
    if (*code == FC_OP_CONSTANT) {
      stack[n++] = *++code;
    } else if (*code == FC_OP_SYMBOL) {
      stack[n] = symbols[*++code];
      if (stack[n++] < 0) return false;
    } else {
      --n;
      if (!apply(*code, stack[n - 1], stack[n], &stack[n - 1])) return false;
    }
  }
  *out = stack[0];
  return true;
}

/* Solves a linear expression for its symbol, given the size of the dim. */
static bool solve(const int64_t* code, int64_t size, int64_t* symbols) {
  int64_t *symbol = &symbols[code[0]], at_0, at_1, slope, rest;
  *symbol = 0;
  bool known = evaluate(code + 1, symbols, &at_0);
  *symbol = 1;
  known = known && evaluate(code + 1, symbols, &at_1);
  *symbol = -1;
  if (!known || __builtin_sub_overflow(at_1, at_0, &slope) || __builtin_sub_overflow(size, at_0, &rest)) return false;
  if (slope == 0 || slope == -1 || rest % slope != 0 || rest / slope < 0) return false; /* -1: INT64_MIN / -1 */
  *symbol = rest / slope;
  return true;
}

static FC_COLD bool accepts_expression(const int64_t* code, int64_t size, int64_t* symbols) {
  int64_t want;
  if (code[0] >= 0 && symbols[code[0]] < 0) return solve(code, size, symbols);
  return evaluate(code + 1, symbols, &want) && want == size;
}

static inline bool is_expression(int64_t dim) { return dim < FC_DIM_EXPRESSION / 2; }

static inline const int64_t* code_of(const FcLeaf* leaf, int64_t dim) { return leaf->code + (dim - FC_DIM_EXPRESSION); }

bool fc_dim_accepts(const FcLeaf* leaf, int32_t axis, int64_t size, int64_t* symbols) {
  int64_t want = leaf->dims[axis];
  if (FC_LIKELY(want >= FC_DIM_ANY)) return want == size || want == FC_DIM_ANY;
  if (FC_UNLIKELY(is_expression(want))) return accepts_expression(code_of(leaf, want), size, symbols);
  int64_t* symbol = &symbols[-2 - want];
  if (*symbol < 0) *symbol = size;
  return *symbol == size;
}

int64_t fc_dim_size(const FcLeaf* leaf, int32_t axis, const int64_t* symbols) {
  int64_t dim = leaf->dims[axis], size;
  if (dim >= FC_DIM_ANY) return dim;
  if (!is_expression(dim)) return symbols[-2 - dim];
  return evaluate(code_of(leaf, dim) + 1, symbols, &size) && size >= 0 ? size : -1;
}
