/* Reads the payload of a module into checked functions. The payload is hostile: docs/spec/graph.md. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/graph/graph.h"
#include "runtime/text.h"

enum { MOST_TEXT = 64 << 20, ALIGNMENT = 64, MOST_DATA = 64, MOST_DIMS = 64 };

void* fc_graph_room(FcGraph* graph, size_t count, size_t size) {
  void** block = NULL;
  const size_t head = ALIGNMENT;
  if (count <= (SIZE_MAX - 2 * head) / (size ? size : 1))
    block = aligned_alloc(ALIGNMENT, (head + count * size + head - 1) / head * head);
  if (!block) return fc_error_no_memory(), NULL;
  memset(block, 0, head + count * size);
  *block = graph->blocks;
  graph->blocks = block;
  return (char*)block + head;
}

/* What is being read, for errors. */
typedef struct {
  FcGraph* graph;
  FcGraphFunction* function;
  const char* name;     /* of the function; "" outside of functions */
  TVMFFIObject* indexes; /* Map: names of the functions that were read -> their indexes */
} Reading;

static FC_COLD int wrong(const Reading* r, const char* what, int i) {
  char place[32] = "";
  if (i >= 0) snprintf(place, sizeof place, " %d", i);
  fc_error_format("ValueError", "a module of kind farcall.json is malformed: function `%.80s`: %s%s; build it again",
                  r->name, what, place);
  return -1;
}

/* ---- JSON ---- */

static const TVMFFIAny* member(const TVMFFIAny* map, const char* name) {
  const TVMFFIAny key = {.type_index = kTVMFFIRawStr, .v_c_str = name};
  return map->type_index == kTVMFFIMap ? fc_map_find(map->v_obj, &key) : NULL;
}

/* The items of a list; NULL for other values. `*n` is at most 1 << 24. */
static const TVMFFIAny* items(const TVMFFIAny* list, int32_t* n) {
  static const TVMFFIAny none;
  *n = 0;
  if (!list || list->type_index != kTVMFFIArray) return NULL;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(list->v_obj);
  if (cell->size > 1 << 24) return NULL;
  *n = (int32_t)cell->size;
  return *n ? cell->data : &none;
}

static bool is_index(const TVMFFIAny* value, int64_t end) {
  return value->type_index == kTVMFFIInt && value->v_int64 >= 0 && value->v_int64 < end;
}

/* An integer, or "s3": size 3, which is before size `end`. */
static bool read_number(const TVMFFIAny* value, int32_t end, FcGraphNumber* out) {
  TVMFFIByteArray text;
  int64_t index = 0;
  if (value->type_index == kTVMFFIInt)
    return *out = value->v_int64, *out > -((int64_t)1 << 62) && *out < (int64_t)1 << 62;
  if (!fc_any_text(value, &text) || text.size < 2 || text.size > 9 || text.data[0] != 's') return false;
  for (size_t i = 1; i < text.size; ++i) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
    index = index * 10 + (text.data[i] - '0');
  }
  *out = FC_GRAPH_SIZE + index;
  return index < end;
}

/* A list of indexes below `end`, into new memory. */
static int read_indexes(Reading* r, const TVMFFIAny* list, int64_t end, int32_t** out, int32_t* n, const char* what) {
  const TVMFFIAny* all = items(list, n);
  if (!all) return wrong(r, what, -1);
  if (!(*out = fc_graph_room(r->graph, (size_t)*n, sizeof **out))) return -1;
  for (int32_t i = 0; i < *n; ++i) {
    if (!is_index(&all[i], end)) return wrong(r, what, i);
    (*out)[i] = (int32_t)all[i].v_int64;
  }
  return 0;
}

/* ---- sizes ---- */

static int read_size(Reading* r, const TVMFFIAny* value, int32_t i) {
  FcGraphFunction* f = r->function;
  FcGraphSize* size = &f->sizes[i];
  TVMFFIByteArray text;
  int32_t n;
  if (fc_any_text(value, &text)) {
    if (f->num_symbols != i) return wrong(r, "a symbol behind a computed size: size", i);
    return ++f->num_symbols, 0;
  }
  const TVMFFIAny* parts = items(value, &n);
  if (n != 3 || !fc_any_text(&parts[0], &text)) return wrong(r, "size", i);
  const int op = fc_graph_size_op(text.data, text.size);
  if (op < 0 || !read_number(&parts[1], i, &size->a) || !read_number(&parts[2], i, &size->b))
    return wrong(r, "size", i);
  size->op = (uint8_t)op;
  return 0;
}

static int read_sizes(Reading* r, const TVMFFIAny* map) {
  FcGraphFunction* f = r->function;
  const TVMFFIAny* all = items(member(map, "sizes"), &f->num_sizes);
  if (!all) return member(map, "sizes") ? wrong(r, "`sizes`", -1) : 0;
  if (!(f->sizes = fc_graph_room(r->graph, (size_t)f->num_sizes, sizeof *f->sizes))) return -1;
  for (int32_t i = 0; i < f->num_sizes; ++i) {
    if (read_size(r, &all[i], i) != 0) return -1;
  }
  return 0;
}

/* ---- values ---- */

/* Literal elements: `data`, a list of numbers. */
static int read_data(Reading* r, const TVMFFIAny* list, int32_t i, FcGraphValueInfo* info, int64_t count) {
  int32_t n;
  const TVMFFIAny* all = items(list, &n);
  const uint8_t size = fc_graph_dtypes[info->dtype].size;
  if (!all || n != count) return wrong(r, "the number of elements of value", i);
  if (fc_graph_dtypes[info->dtype].wide == FC_GRAPH_CARRIED) return wrong(r, "elements of this dtype: value", i);
  if (!(info->data = fc_graph_room(r->graph, (size_t)n, size))) return -1;
  for (int32_t k = 0; k < n; ++k) {
    const bool is_float = all[k].type_index == kTVMFFIFloat;
    if (!is_float && all[k].type_index != kTVMFFIInt && all[k].type_index != kTVMFFIBool)
      return wrong(r, "an element of value", i);
    FcGraphChunk chunk;
    if (is_float) chunk.f64[0] = all[k].v_float64;
    if (!is_float) chunk.i64[0] = all[k].v_int64;
    fc_graph_store(info->data + (size_t)k * size, info->dtype, &chunk, is_float ? FC_GRAPH_F64 : FC_GRAPH_I64, 1);
  }
  return 0;
}

/* The number of elements of a constant, whose shape is numbers; -1 if it is not, or too large. */
static int64_t constant_count(const FcGraphFunction* f, const FcGraphValueInfo* info) {
  int64_t count = 1;
  for (int i = 0; i < info->rank; ++i) {
    const FcGraphNumber dim = f->numbers[info->dims + i];
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count) || count > (int64_t)1 << 40) return -1;
  }
  return count;
}

/* Elements behind the payload's text: the offset counts from the first aligned byte there. NULL: it has none there. */
static char* bytes_at(const FcGraph* graph, int64_t offset, int64_t bytes) {
  const int64_t start = (int64_t)(graph->text / ALIGNMENT + 1) * ALIGNMENT, room = (int64_t)graph->payload_size - start;
  if (offset < 0 || offset % ALIGNMENT || offset > room || bytes < 0 || bytes > room - offset) return NULL;
  return (char*)graph->payload + start + offset;
}

static int find_bytes(Reading* r, int32_t i, FcGraphValueInfo* info, int64_t count) {
  info->data = bytes_at(r->graph, info->from, count * fc_graph_dtypes[info->dtype].size);
  return info->data ? 0 : wrong(r, "the offset of value", i);
}

static int read_place(Reading* r, const TVMFFIAny* map, int32_t i, FcGraphValueInfo* info) {
  static const struct {
    const char* name;
    FcGraphPlace place;
  } places[] = {
      {"data", FC_GRAPH_DATA}, {"offset", FC_GRAPH_DATA}, {"workspace", FC_GRAPH_WORKSPACE}, {"of", FC_GRAPH_ALIAS}};
  const FcGraphFunction* f = r->function;
  const TVMFFIAny* value = NULL;
  size_t k = 0;
  while (k < 4 && !(value = member(map, places[k].name))) ++k;
  if (!value) return wrong(r, "the place of value", i);
  info->place = (uint8_t)places[k].place;
  if (k > 0 && !read_number(value, f->num_sizes, &info->from)) return wrong(r, "the place of value", i);
  if (k == 0 || k == 1) {
    const int64_t count = constant_count(f, info);
    if (count < 0) return wrong(r, "the shape of value", i);
    return k == 0 ? read_data(r, value, i, info, count) : find_bytes(r, i, info, count);
  }
  info->writable = k == 2;
  if (k == 2) return 0;
  if (info->from < 0 || info->from >= i) return wrong(r, "an alias of a later value: value", i);
  info->writable = f->values[info->from].writable;
  return 0;
}

static int read_shape(Reading* r, const TVMFFIAny* shape, int32_t i, FcGraphValueInfo* info) {
  FcGraphFunction* f = r->function;
  int32_t rank;
  const TVMFFIAny* dims = items(shape, &rank);
  if (!dims || rank > FC_GRAPH_RANK) return wrong(r, "the shape of value", i);
  info->rank = (uint8_t)rank;
  info->dims = f->num_numbers;
  for (int32_t k = 0; k < rank; ++k) {
    if (!read_number(&dims[k], f->num_sizes, &f->numbers[f->num_numbers++])) return wrong(r, "the shape of value", i);
  }
  return 0;
}

/* [dtype, shape] or [dtype, shape, {place}]. */
static int read_value(Reading* r, const TVMFFIAny* value, int32_t i) {
  FcGraphValueInfo* info = &r->function->values[i];
  TVMFFIByteArray text;
  int32_t n;
  const TVMFFIAny* parts = items(value, &n);
  if (n < 2 || n > 3 || !fc_any_text(&parts[0], &text)) return wrong(r, "value", i);
  const int dtype = fc_graph_dtype(text.data, text.size);
  if (dtype < 0) return wrong(r, "the dtype of value", i);
  info->dtype = (uint8_t)dtype;
  if (read_shape(r, &parts[1], i, info) != 0) return -1;
  info->from = -1; /* no argument, until it is one */
  return n == 3 ? read_place(r, &parts[2], i, info) : 0;
}

/* The most numbers that a list of values or nodes can hold. */
static size_t count_numbers(const TVMFFIAny* all, int32_t n, int32_t part) {
  size_t total = 0;
  for (int32_t i = 0; i < n; ++i) {
    int32_t parts, numbers;
    const TVMFFIAny* list = items(&all[i], &parts);
    if (parts > part && items(&list[part], &numbers)) total += (size_t)numbers;
  }
  return total;
}

/* ---- arguments ---- */

static int set_arguments(Reading* r, const int32_t* values, int32_t n, int32_t first, FcGraphPlace place,
                         bool writable) {
  for (int32_t i = 0; i < n; ++i) {
    FcGraphValueInfo* info = &r->function->values[values[i]];
    if (info->place != FC_GRAPH_ARGUMENT || info->from >= 0) return wrong(r, "two places for value", values[i]);
    info->place = (uint8_t)place;
    info->from = first + i;
    info->writable = writable;
  }
  return 0;
}

static int read_arguments(Reading* r, const TVMFFIAny* map) {
  FcGraphFunction* f = r->function;
  int32_t *inputs, *outputs, *constants = NULL;
  if (read_indexes(r, member(map, "inputs"), f->num_values, &inputs, &f->num_inputs, "`inputs`") != 0 ||
      read_indexes(r, member(map, "outputs"), f->num_values, &outputs, &f->num_outputs, "`outputs`") != 0) {
    return -1;
  }
  const TVMFFIAny* list = member(map, "constants");
  if (list && read_indexes(r, list, f->num_values, &constants, &f->num_constants, "`constants`") != 0) return -1;
  const size_t total = (size_t)f->num_inputs + (size_t)f->num_outputs;
  if (!(f->arguments = fc_graph_room(r->graph, total, sizeof *f->arguments))) return -1;
  if (f->num_inputs) memcpy(f->arguments, inputs, (size_t)f->num_inputs * sizeof *inputs);
  if (f->num_outputs) memcpy(f->arguments + f->num_inputs, outputs, (size_t)f->num_outputs * sizeof *outputs);
  return set_arguments(r, inputs, f->num_inputs, 0, FC_GRAPH_ARGUMENT, false) ||
                 set_arguments(r, outputs, f->num_outputs, f->num_inputs, FC_GRAPH_ARGUMENT, true) ||
                 set_arguments(r, constants, f->num_constants, 0, FC_GRAPH_CONSTANT, false)
             ? -1
             : 0;
}

/* Constants have a shape of numbers; every value has a place; an alias is writable if its root is. */
static int check_values(Reading* r) {
  FcGraphFunction* f = r->function;
  for (int32_t i = 0; i < f->num_values; ++i) {
    FcGraphValueInfo* info = &f->values[i];
    if (info->place == FC_GRAPH_ARGUMENT && info->from < 0) return wrong(r, "no place for value", i);
    if (info->place == FC_GRAPH_CONSTANT && constant_count(f, info) < 0) return wrong(r, "the shape of value", i);
    if (info->place == FC_GRAPH_ALIAS) info->writable = f->values[info->from].writable;
  }
  return 0;
}

static bool is_shown(const FcGraphFunction* f, int32_t symbol) {
  for (int32_t i = 0; i < f->num_inputs; ++i) {
    const FcGraphValueInfo* info = &f->values[f->arguments[i]];
    for (int k = 0; k < info->rank; ++k) {
      if (f->numbers[info->dims + k] == FC_GRAPH_SIZE + symbol) return true;
    }
  }
  return false;
}

/* The symbols that no input shows; a call passes their sizes. */
static int find_extra(Reading* r) {
  FcGraphFunction* f = r->function;
  if (f->num_symbols > 64) return wrong(r, "more symbols than 64:", f->num_symbols);
  if (!(f->extra = fc_graph_room(r->graph, (size_t)f->num_symbols, sizeof *f->extra))) return -1;
  for (int32_t i = 0; i < f->num_symbols; ++i) {
    if (!is_shown(f, i)) f->extra[f->num_extra++] = i;
  }
  return 0;
}

/* Two numbers that a call must find equal. */
static int read_pair(Reading* r, const TVMFFIAny* pair) {
  FcGraphFunction* f = r->function;
  int32_t n;
  const TVMFFIAny* both = items(pair, &n);
  if (n != 2) return -1;
  for (int k = 0; k < 2; ++k) {
    if (!read_number(&both[k], f->num_sizes, &f->numbers[f->num_numbers++])) return -1;
  }
  return 0;
}

static int read_values(Reading* r, const TVMFFIAny* map) {
  FcGraphFunction* f = r->function;
  const TVMFFIAny *all = items(member(map, "values"), &f->num_values), *nodes;
  int32_t num_nodes;
  if (!all) return wrong(r, "`values`", -1);
  nodes = items(member(map, "nodes"), &num_nodes);
  const size_t numbers = count_numbers(all, f->num_values, 1) + count_numbers(nodes, nodes ? num_nodes : 0, 3);
  const TVMFFIAny* equal = items(member(map, "equal"), &f->num_equal);
  if (numbers > 1 << 28) return wrong(r, "too many numbers", -1);
  f->values = fc_graph_room(r->graph, (size_t)f->num_values, sizeof *f->values);
  f->numbers = fc_graph_room(r->graph, numbers + 2 * (size_t)f->num_equal, sizeof *f->numbers);
  if (!f->values || !f->numbers) return -1;
  for (int32_t i = 0; i < f->num_values; ++i) {
    if (read_value(r, &all[i], i) != 0) return -1;
  }
  f->equal = f->num_numbers;
  for (int32_t i = 0; i < f->num_equal; ++i) {
    if (read_pair(r, &equal[i]) != 0) return wrong(r, "`equal`", i);
  }
  return read_arguments(r, map) || check_values(r) || find_extra(r) ? -1 : 0;
}

/* ---- nodes ---- */

static int find_op(const TVMFFIAny* name) {
  TVMFFIByteArray text;
  if (!fc_any_text(name, &text)) return -1;
  for (int32_t i = 0; i < fc_graph_num_ops; ++i) {
    const char* known = fc_graph_ops[i].name;
    if (strlen(known) == text.size && memcmp(known, text.data, text.size) == 0) return i;
  }
  return -1;
}

static FcGraphFunction* find_function(const Reading* r, const TVMFFIAny* name) {
  const TVMFFIAny* index = fc_map_find(r->indexes, name);
  return index ? &r->graph->functions[index->v_int64] : NULL;
}

static char* copy_text(FcGraph* graph, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  if (!fc_any_text(value, &text) || text.size > 4096 || memchr(text.data, 0, text.size)) return NULL;
  char* copy = fc_graph_room(graph, text.size + 1, 1);
  if (copy) memcpy(copy, text.data, text.size);
  return copy;
}

/*
 * The index of a declared import, or a name. Of its own functions, a graph calls only those before: there is no
 * recursion. Other names are imports'.
 */
static int read_callee(Reading* r, const TVMFFIAny* name, int32_t i, FcGraphNode* node) {
  FcGraph* graph = r->graph;
  if (is_index(name, graph->num_imports)) {
    node->callee = (int32_t)name->v_int64;
    const bool fits = node->num_outputs > 0 || !graph->callees[node->callee].workspace;
    return fits ? 0 : wrong(r, "no working memory for the callee of node", i);
  }
  FcGraphCallee* callee = &graph->callees[graph->num_callees];
  if (!(callee->name = copy_text(graph, name))) return wrong(r, "the callee of node", i);
  callee->function = find_function(r, name);
  node->callee = graph->num_callees++;
  return 0;
}

static int read_operands(Reading* r, const TVMFFIAny* list, int32_t i, bool written, uint8_t* n) {
  FcGraphFunction* f = r->function;
  int32_t count;
  const TVMFFIAny* all = items(list, &count);
  if (!all || count > 255) return wrong(r, "the operands of node", i);
  for (int32_t k = 0; k < count; ++k) {
    if (!is_index(&all[k], f->num_values)) return wrong(r, "an operand of node", i);
    if (written && !f->values[all[k].v_int64].writable) return wrong(r, "a write to an input or a constant: node", i);
    f->operands[f->num_operands++] = (int32_t)all[k].v_int64;
  }
  *n = (uint8_t)count;
  return 0;
}

/* [operator, inputs, outputs, numbers] or ["call", inputs, outputs, [], name]. */
static int read_node(Reading* r, const TVMFFIAny* value, int32_t i) {
  FcGraphFunction* f = r->function;
  FcGraphNode* node = &f->nodes[i];
  int32_t n, numbers;
  const TVMFFIAny* parts = items(value, &n);
  const int op = n >= 4 ? find_op(&parts[0]) : -1;
  if (op < 0 || n != (op == FC_GRAPH_CALL ? 5 : 4)) return wrong(r, "unknown operator or malformed: node", i);
  *node = (FcGraphNode){.op = (uint8_t)op, .values = f->num_operands, .numbers = f->num_numbers};
  if (read_operands(r, &parts[1], i, false, &node->num_inputs) != 0 ||
      read_operands(r, &parts[2], i, true, &node->num_outputs) != 0) {
    return -1;
  }
  const TVMFFIAny* all = items(&parts[3], &numbers);
  if (!all) return wrong(r, "the numbers of node", i);
  for (int32_t k = 0; k < numbers; ++k) {
    if (!read_number(&all[k], f->num_sizes, &f->numbers[f->num_numbers++])) return wrong(r, "the numbers of node", i);
  }
  node->num_numbers = numbers;
  if (op == FC_GRAPH_CALL) return read_callee(r, &parts[4], i, node);
  const bool fits = node->num_inputs >= fc_graph_ops[op].least && node->num_inputs <= fc_graph_ops[op].most;
  return fits && node->num_outputs == 1 ? 0 : wrong(r, "the number of operands of node", i);
}

static int read_nodes(Reading* r, const TVMFFIAny* map) {
  FcGraphFunction* f = r->function;
  const TVMFFIAny* all = items(member(map, "nodes"), &f->num_nodes);
  if (!all) return wrong(r, "`nodes`", -1);
  const size_t operands = count_numbers(all, f->num_nodes, 1) + count_numbers(all, f->num_nodes, 2);
  if (operands > 1 << 28) return wrong(r, "too many operands", -1);
  f->nodes = fc_graph_room(r->graph, (size_t)f->num_nodes, sizeof *f->nodes);
  f->operands = fc_graph_room(r->graph, operands, sizeof *f->operands);
  if (!f->nodes || !f->operands) return -1;
  for (int32_t i = 0; i < f->num_nodes; ++i) {
    if (read_node(r, &all[i], i) != 0) return -1;
  }
  return 0;
}

/* ---- imports ---- */

/* Frees with the graph; NULL: the member is not there, or no text. */
static char* text_member(FcGraph* graph, const TVMFFIAny* map, const char* name) {
  const TVMFFIAny* value = member(map, name);
  return value ? copy_text(graph, value) : NULL;
}

/* [dtype, shape, {"offset": n}]: a constant of an import, of any dtype. */
static int read_constant(Reading* r, const TVMFFIAny* value, int32_t i, DLTensor* out) {
  TVMFFIByteArray text;
  int32_t n;
  const TVMFFIAny* parts = items(value, &n);
  const TVMFFIAny *dims = n == 3 ? items(&parts[1], &out->ndim) : NULL,
                  *at = n == 3 ? member(&parts[2], "offset") : NULL;
  if (!dims || !at || out->ndim > MOST_DIMS || !fc_any_text(&parts[0], &text) ||
      !fc_dtype_parse(text.data, text.size, &out->dtype) || fc_is_scalable(out->dtype))
    return wrong(r, "constant", i);
  if (!(out->shape = fc_graph_room(r->graph, 2 * (size_t)out->ndim, sizeof *out->shape))) return -1;
  for (int32_t k = 0; k < out->ndim; ++k) {
    if (!is_index(&dims[k], INT64_MAX)) return wrong(r, "the shape of constant", i);
    out->shape[k] = dims[k].v_int64;
  }
  const int64_t bytes = fc_nbytes(out);
  if (bytes < 0) return -1;
  fc_row_major(out->ndim, out->shape, out->strides = out->shape + out->ndim);
  out->device = (DLDevice){kDLCPU, 0};
  out->data = at->type_index == kTVMFFIInt ? bytes_at(r->graph, at->v_int64, bytes) : NULL;
  return out->data ? 0 : wrong(r, "the offset of constant", i);
}

static int read_constants(Reading* r, const TVMFFIAny* map, FcGraphCallee* import) {
  const TVMFFIAny* list = member(map, "constants");
  const TVMFFIAny* all = items(list, &import->num_constants);
  if (!all) return list ? wrong(r, "`constants`", -1) : 0;
  if (!(import->constants = fc_graph_room(r->graph, (size_t)import->num_constants, sizeof(DLTensor)))) return -1;
  for (int32_t i = 0; i < import->num_constants; ++i) {
    if (read_constant(r, &all[i], i, &import->constants[i]) != 0) return -1;
  }
  return 0;
}

static int read_import(FcGraph* graph, const TVMFFIAny* map, int32_t i) {
  FcGraphCallee* import = &graph->callees[i];
  Reading r = {graph, NULL, "?", NULL};
  if (!(import->name = text_member(graph, map, "function"))) return wrong(&r, "the name of import", i);
  r.name = import->name;
  import->region = text_member(graph, map, "region");
  import->place = text_member(graph, map, "place");
  import->kind = text_member(graph, map, "kind");
  const TVMFFIAny* workspace = member(map, "workspace");
  import->workspace = workspace && workspace->type_index == kTVMFFIBool && workspace->v_int64;
  return read_constants(&r, map, import);
}

static int read_imports(FcGraph* graph, const TVMFFIAny* all) {
  for (int32_t i = 0; i < graph->num_imports; ++i) {
    if (read_import(graph, &all[i], i) != 0) return -1;
  }
  graph->num_callees = graph->num_imports;
  return 0;
}

/* ---- functions ---- */

/* A function whose shapes are numbers is resolved once, here. */
static int resolve(Reading* r) {
  FcGraphFunction* f = r->function;
  f->ready = f->num_constants == 0;
  if (f->num_sizes) return 0;
  f->resolved_numbers = fc_graph_room(r->graph, (size_t)f->num_numbers, sizeof *f->resolved_numbers);
  f->resolved = fc_graph_room(r->graph, (size_t)f->num_values, sizeof *f->resolved);
  if (!f->resolved_numbers || !f->resolved) return -1;
  return fc_graph_resolve(f, NULL, f->resolved_numbers, f->resolved);
}

static int read_function(FcGraph* graph, TVMFFIObject* indexes, const TVMFFIAny* name, const TVMFFIAny* map) {
  FcGraphFunction* f = &graph->functions[graph->num_functions];
  Reading r = {graph, f, "?", indexes};
  f->graph = graph;
  if (!(f->name = copy_text(graph, name))) return wrong(&r, "its name", -1);
  r.name = f->name;
  if (read_sizes(&r, map) != 0 || read_values(&r, map) != 0) return -1;
  const TVMFFIAny* workspace = member(map, "workspace");
  if (workspace && !read_number(workspace, f->num_sizes, &f->workspace)) return wrong(&r, "`workspace`", -1);
  return read_nodes(&r, map) != 0 ? -1 : resolve(&r);
}

static size_t count_functions(const TVMFFIAny* functions, size_t* calls) {
  FcMapCursor cursor = {.begun = false};
  size_t n = 0;
  while (fc_map_next(functions->v_obj, &cursor)) {
    int32_t nodes;
    ++n;
    if (items(member(cursor.value, "nodes"), &nodes)) *calls += (size_t)nodes;
  }
  return n;
}

static int read_each(FcGraph* graph, TVMFFIObject* indexes, const TVMFFIAny* functions) {
  FcMapCursor cursor = {.begun = false};
  while (fc_map_next(functions->v_obj, &cursor)) {
    TVMFFIAny name;
    if (read_function(graph, indexes, cursor.key, cursor.value) != 0) return -1;
    if (fc_any_to_owned(cursor.key, &name) != 0) return -1;
    if (fc_map_set(indexes, name, fc_any_int(graph->num_functions++)) != 0) return -1;
  }
  return 0;
}

static int read_functions(FcGraph* graph, const TVMFFIAny* root) {
  const Reading r = {graph, NULL, "", NULL};
  const TVMFFIAny *functions = member(root, "functions"), *order = member(root, "byteorder");
  const uint16_t one = 1;
  TVMFFIByteArray text;
  size_t calls = 0;
  if (order && (!fc_any_text(order, &text) || text.size == 0 || (text.data[0] == 'l') != *(const uint8_t*)&one)) {
    return wrong(&r, "its constants are in another byte order", -1);
  }
  if (!functions || functions->type_index != kTVMFFIMap) return wrong(&r, "no `functions`", -1);
  const TVMFFIAny *list = member(root, "imports"), *imports = items(list, &graph->num_imports);
  if (list && !imports) return wrong(&r, "`imports`", -1);
  const size_t n = count_functions(functions, &calls);
  graph->functions = fc_graph_room(graph, n, sizeof *graph->functions);
  graph->held = fc_graph_room(graph, n, sizeof(TVMFFIObject*));
  graph->callees = fc_graph_room(graph, calls + (size_t)graph->num_imports, sizeof *graph->callees);
  if (!graph->functions || !graph->callees || !graph->held || read_imports(graph, imports) != 0) return -1;
  TVMFFIObjectHandle indexes;
  if (fc_map_new(kTVMFFIMap, &indexes) != 0) return -1;
  const int rc = read_each(graph, indexes, functions);
  fc_decref(indexes);
  return rc;
}

int fc_graph_parse(FcGraph* graph) {
  const char* end = memchr(graph->payload, 0, graph->payload_size);
  TVMFFIAny root;
  graph->text = end ? (size_t)(end - graph->payload) : graph->payload_size;
  if (graph->text > MOST_TEXT) return wrong(&(Reading){graph, NULL, "", NULL}, "its text is larger than 64 MiB", -1);
  if (fc_json_parse(graph->payload, graph->text, &root) != 0) return -1;
  const int rc = read_functions(graph, &root);
  fc_any_clear(&root);
  return rc;
}
