/* The kind of module of examplejson.py, in C: the loader that a library exports travels with it. */
#include <farcall/module.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

enum { MOST = 16, MOST_DIMS = 4 }; /* functions, nodes and outputs; dims of a tensor */

typedef struct {
  char name[32];
  int inputs, nodes, outputs;
  char operators[MOST];
  int left[MOST], right[MOST], output[MOST];
} Graph;

typedef struct {
  char* frame; /* for save */
  size_t frame_size;
  char* text; /* for source */
  int count;
  Graph graphs[MOST];
} State;

static int living;

static int fail(const char* kind, const char* message) {
  __farcall_runtime->error_set_raised_from_cstr(kind, message);
  return -1;
}

/* ---- the text ---- */

static int read_outputs(Graph* graph, const char* at) {
  int entry, used;
  while (graph->outputs < MOST && sscanf(at, "%d%n", &entry, &used) == 1) {
    if (entry < 0 || entry >= graph->inputs + graph->nodes) return -1;
    graph->output[graph->outputs++] = entry;
    at += used;
  }
  return 0;
}

static int read_node(Graph* graph, const char* word, const char* at) {
  int entries = graph->inputs + graph->nodes, i = graph->nodes;
  if (i == MOST || sscanf(at, "%d %d", &graph->left[i], &graph->right[i]) != 2) return -1;
  if (graph->left[i] < 0 || graph->left[i] >= entries || graph->right[i] < 0 || graph->right[i] >= entries) return -1;
  graph->operators[i] = strcmp(word, "add") == 0 ? '+' : strcmp(word, "sub") == 0 ? '-' : '*';
  ++graph->nodes;
  return 0;
}

static int read_line(State* state, const char* line) {
  char word[16];
  int used;
  if (sscanf(line, "%15s%n", word, &used) != 1) return -1;
  Graph* last = state->count ? &state->graphs[state->count - 1] : NULL;
  if (strcmp(word, "function") == 0) {
    Graph* graph = &state->graphs[state->count];
    if (state->count++ == MOST - 1) return -1;
    bool read = sscanf(line + used, "%31s %d", graph->name, &graph->inputs) == 2;
    return read && graph->inputs > 0 && graph->inputs <= MOST ? 0 : -1;
  }
  if (!last) return -1;
  return strcmp(word, "outputs") == 0 ? read_outputs(last, line + used) : read_node(last, word, line + used);
}

static int read_text(State* state) {
  for (const char* line = state->text; *line;) {
    if (read_line(state, line) != 0) return fail("ArtifactError", "a module of kind `examplejson`: a line is not one");
    const char* end = strchr(line, '\n');
    line = end ? end + 1 : "";
  }
  return 0;
}

/* ---- a call ---- */

typedef struct {
  char* data;
  int ndim;
  int64_t shape[MOST_DIMS], strides[MOST_DIMS]; /* in elements, aligned to the right: a missing dim is 1, stride 0 */
} View;

static View view_of(const DLTensor* tensor) {
  View view = {(char*)tensor->data + tensor->byte_offset, tensor->ndim, {1, 1, 1, 1}, {0}};
  int64_t stride = 1;
  for (int i = tensor->ndim - 1, k = MOST_DIMS - 1; i >= 0; --i, --k) {
    view.shape[k] = tensor->shape[i];
    view.strides[k] = tensor->shape[i] == 1 ? 0 : tensor->strides ? tensor->strides[i] : stride;
    stride *= tensor->shape[i];
  }
  return view;
}

static int64_t elements(const View* view) {
  return view->shape[0] * view->shape[1] * view->shape[2] * view->shape[3];
}

/* Where element `i` of a view of this shape is in another one. */
static int64_t place(const View* shape, int64_t i, const View* other) {
  int64_t at = 0;
  for (int k = MOST_DIMS - 1; k >= 0; i /= shape->shape[k--]) at += i % shape->shape[k] * other->strides[k];
  return at;
}

#define LOOP(type)                                                                                 \
  for (int64_t i = 0, n = elements(to); i < n; ++i) {                                              \
    type x = ((type*)a->data)[place(to, i, a)], y = ((type*)b->data)[place(to, i, b)];             \
    ((type*)to->data)[place(to, i, to)] = operator== '+' ? x + y : operator== '-' ? x - y : x * y; \
  }

static int compute(DLDataType dtype, char operator, const View* a, const View* b, View* to) {
  if (dtype.code == kDLFloat && dtype.bits == 32) {
    LOOP(float)
  } else if (dtype.code == kDLFloat && dtype.bits == 64) {
    LOOP(double)
  } else if (dtype.code == kDLInt && dtype.bits == 64) {
    LOOP(int64_t)
  } else {
    return fail("TypeError", "expected float32, float64 or int64");
  }
  return 0;
}

/* The result of a node: the shapes of its operands, broadcast, in memory of its own. */
static int make_result(const View* a, const View* b, int bytes, View* out) {
  int64_t stride = 1;
  for (int k = MOST_DIMS - 1; k >= 0; --k) {
    int64_t n = a->shape[k] == 1 ? b->shape[k] : a->shape[k];
    if (b->shape[k] != 1 && b->shape[k] != n) return fail("ValueError", "the shapes do not broadcast");
    out->shape[k] = n;
    out->strides[k] = n == 1 ? 0 : stride;
    stride *= n;
  }
  out->data = malloc((size_t)(stride * bytes) + 1);
  return out->data ? 0 : fail("MemoryError", "out of memory");
}

static void copy(const View* from, View* to, int bytes) {
  for (int64_t i = 0, n = elements(to); i < n; ++i)
    memcpy(to->data + place(to, i, to) * bytes, from->data + place(to, i, from) * bytes, (size_t)bytes);
}

static const DLTensor* tensor_of(const TVMFFIAny* any) {
  if (any->type_index == kTVMFFIDLTensorPtr) return any->v_ptr;
  return any->type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(any->v_obj) : NULL;
}

/* The entries are the call's own, so that calls may run at the same time. */
static int run_nodes(const Graph* graph, DLDataType dtype, View* entries) {
  for (int i = 0; i < graph->nodes; ++i) {
    const View *a = &entries[graph->left[i]], *b = &entries[graph->right[i]];
    View* to = &entries[graph->inputs + i];
    if (make_result(a, b, dtype.bits / 8, to) != 0 || compute(dtype, graph->operators[i], a, b, to) != 0) return -1;
  }
  return 0;
}

static int run(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const Graph* graph = self;
  View entries[2 * MOST] = {{0}};
  (void)result;
  if (n != graph->inputs + graph->outputs) return fail("TypeError", "expected the inputs and the outputs");
  for (int i = 0; i < n; ++i) {
    const DLTensor* tensor = tensor_of(&args[i]);
    if (!tensor || tensor->ndim > MOST_DIMS) return fail("TypeError", "expected tensors of up to 4 dims");
    if (i < graph->inputs) entries[i] = view_of(tensor);
  }
  DLDataType dtype = tensor_of(&args[0])->dtype;
  int rc = run_nodes(graph, dtype, entries);
  for (int i = 0; rc == 0 && i < graph->outputs; ++i) {
    View to = view_of(tensor_of(&args[graph->inputs + i]));
    copy(&entries[graph->output[i]], &to, dtype.bits / 8);
  }
  for (int i = 0; i < graph->nodes; ++i) free(entries[graph->inputs + i].data);
  return rc;
}

/* ---- the module ---- */

static int save(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)args, (void)n;
  TVMFFIByteArray bytes = {((State*)self)->frame, ((State*)self)->frame_size};
  return TVMFFIBytesFromByteArray(&bytes, result);
}

static int source(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)args, (void)n;
  TVMFFIByteArray text = {((State*)self)->text, strlen(((State*)self)->text)};
  return TVMFFIStringFromByteArray(&text, result);
}

static void destroy(void* self) {
  State* state = self;
  __atomic_fetch_sub(&living, 1, __ATOMIC_RELAXED);
  free(state->frame);
  free(state->text);
  free(state);
}

static State* new_state(const TVMFFIAny* bytes, struct FarcallBlob blob) {
  const TVMFFIByteArray* frame = bytes->v_ptr; /* farcall passes bytes as tag 9 */
  State* state = calloc(1, sizeof *state);
  __atomic_fetch_add(&living, 1, __ATOMIC_RELAXED);
  state->frame = malloc(frame->size);
  state->frame_size = frame->size;
  memcpy(state->frame, frame->data, frame->size);
  state->text = strndup(blob.data, blob.size);
  return state;
}

FARCALL_MODULE_LOADER(examplejson) {
  const struct FarcallModuleKind kind = {"examplejson", 1, 1, NULL};
  struct FarcallModuleFunction functions[MOST];
  struct FarcallBlob blob;
  TVMFFIObjectHandle module;
  if (__farcall_runtime->blob_read(&kind, args, &blob) != 0) return -1;
  State* state = new_state(args, blob);
  if (read_text(state) != 0) return destroy(state), -1;
  for (int i = 0; i < state->count; ++i)
    functions[i] = (struct FarcallModuleFunction){state->graphs[i].name, run, &state->graphs[i]};
  const struct FarcallModuleSpec spec = {sizeof spec, "examplejson", functions, state->count,
                                         state,       destroy,       save,      source};
  if (__farcall_runtime->module_create(&spec, &module) != 0) return -1;
  *result = (TVMFFIAny){.type_index = kTVMFFIModule, .v_obj = module};
  return 0;
}

FARCALL_KERNEL(living) {
  *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = __atomic_load_n(&living, __ATOMIC_RELAXED)};
  return 0;
}

/* Makes the same loader the global one, for files. */
FARCALL_KERNEL(register_loader) {
  TVMFFIByteArray name = {"ffi.Module.load_from_bytes.examplejson", 38};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionCreate(NULL, __farcall_load_examplejson, NULL, &function) != 0) return -1;
  int rc = TVMFFIFunctionSetGlobal(&name, function, 1);
  TVMFFIObjectDecRef(function);
  return rc;
}
