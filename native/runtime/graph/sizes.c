/* Sizes: integer expressions over symbols, and what follows from them for each value and node. */
#include "runtime/graph/graph.h"

enum { SYMBOL, ADD, MUL, DIV, MOD, MIN, MAX };

int fc_graph_size_op(const char* name, size_t size) {
  static const char* const names[] = {"symbol", "add", "mul", "div", "mod", "min", "max"};
  for (int i = ADD; i <= MAX; ++i) {
    if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0) return i;
  }
  return -1;
}

/* Rounds down. */
static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static bool compute(const FcGraphSize* size, int64_t a, int64_t b, int64_t* out) {
  if ((size->op == DIV || size->op == MOD) && (b == 0 || (b == -1 && a == INT64_MIN))) return false;
  switch (size->op) {
    case ADD: return !__builtin_add_overflow(a, b, out);
    case MUL: return !__builtin_mul_overflow(a, b, out);
    case DIV: return *out = floor_div(a, b), true;
    case MOD: return *out = a - floor_div(a, b) * b, true;
    case MIN: return *out = a < b ? a : b, true;
    default: return *out = a > b ? a : b, true;
  }
}

int fc_graph_sizes(const FcGraphFunction* function, int64_t* sizes) {
  for (int32_t i = function->num_symbols; i < function->num_sizes; ++i) {
    const FcGraphSize* size = &function->sizes[i];
    if (compute(size, fc_graph_number(size->a, sizes), fc_graph_number(size->b, sizes), &sizes[i])) continue;
    fc_error_format("ValueError", "`%s`: size %d cannot be computed for these shapes: it overflows 64 bits",
                    function->name, (int)i);
    return -1;
  }
  return 0;
}

/* ---- values ---- */

static FC_COLD int bad_value(const FcGraphFunction* function, int32_t i, const char* what) {
  fc_error_format("ValueError", "`%s`: value %d %s", function->name, (int)i, what);
  return -1;
}

/* The number of elements, of which there are so few that their bytes fit in 48 bits. */
static bool count_elements(const FcGraphValue* value, int64_t* out) {
  const int64_t most = (PTRDIFF_MAX < (int64_t)1 << 47 ? PTRDIFF_MAX : (int64_t)1 << 47) / 8;
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < value->rank; ++i) {
    if (value->dims[i] < 0 || value->dims[i] > most) return false;
    if (value->dims[i] == 0) empty = true;
    if (!empty && (count *= value->dims[i]) > most) return false;
    if (count > most) return false;
  }
  *out = empty ? 0 : count;
  return true;
}

/* Whether a value's bytes are where it says. */
static bool has_place(const FcGraphFunction* function, int32_t i, const int64_t* sizes, const FcGraphValue* values) {
  const FcGraphValueInfo* info = &function->values[i];
  const FcGraphValue* value = &values[i];
  int64_t bytes = value->count * fc_graph_size(value), from = fc_graph_number(info->from, sizes);
  if (info->place == FC_GRAPH_WORKSPACE) {
    int64_t room = fc_graph_number(function->workspace, sizes);
    return from >= 0 && from % fc_graph_size(value) == 0 && room >= bytes && from <= room - bytes;
  }
  if (info->place != FC_GRAPH_ALIAS) return true;
  return bytes <= values[from].count * fc_graph_size(&values[from]) &&
         fc_graph_size(value) <= fc_graph_size(&values[from]);
}

static int resolve_value(const FcGraphFunction* function, int32_t i, const int64_t* sizes, const int64_t* numbers,
                         FcGraphValue* values) {
  const FcGraphValueInfo* info = &function->values[i];
  values[i] = (FcGraphValue){info->data, numbers + info->dims, 0, info->rank, info->dtype};
  if (!count_elements(&values[i], &values[i].count)) return bad_value(function, i, "has a negative or too large size");
  return has_place(function, i, sizes, values) ? 0 : bad_value(function, i, "does not fit in its place");
}

static int check_equal(const FcGraphFunction* function, const int64_t* pairs) {
  for (int32_t i = 0; i < function->num_equal; ++i, pairs += 2) {
    if (pairs[0] == pairs[1]) continue;
    fc_error_format("ValueError", "`%s`: expected two sizes to be equal, got %lld and %lld", function->name,
                    (long long)pairs[0], (long long)pairs[1]);
    return -1;
  }
  return 0;
}

/* Whether an operator that is not `call` or `move` has a value that is only carried. */
static bool is_carried(const FcGraphFunction* function, const FcGraphNode* node, const FcGraphValue* values) {
  const int32_t* operands = function->operands + node->values;
  for (int i = 0; fc_graph_ops[node->op].run != fc_graph_move && i < node->num_inputs + node->num_outputs; ++i) {
    if (fc_graph_wide(&values[operands[i]]) == FC_GRAPH_CARRIED) return true;
  }
  return false;
}

int fc_graph_resolve(const FcGraphFunction* function, const int64_t* sizes, int64_t* numbers, FcGraphValue* values) {
  for (int32_t i = 0; i < function->num_numbers; ++i) numbers[i] = fc_graph_number(function->numbers[i], sizes);
  if (fc_graph_number(function->workspace, sizes) < 0)
    return bad_value(function, -1, "the workspace, has a negative size");
  if (check_equal(function, numbers + function->equal) != 0) return -1;
  for (int32_t i = 0; i < function->num_values; ++i) {
    if (resolve_value(function, i, sizes, numbers, values) != 0) return -1;
  }
  for (int32_t i = 0; i < function->num_nodes; ++i) {
    const FcGraphNode* node = &function->nodes[i];
    const FcGraphOp* op = &fc_graph_ops[node->op];
    const FcGraphStep step = fc_graph_step(function, node, values, numbers);
    if (node->op == FC_GRAPH_CALL || (!is_carried(function, node, values) && op->fits(&step))) continue;
    fc_error_format("ValueError",
                    "`%s`: node %d, `%s`: its operands do not fit together; pass arguments of other sizes",
                    function->name, (int)i, op->name);
    return -1;
  }
  return 0;
}
