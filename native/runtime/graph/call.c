/* Calling a function of a graph: its arguments, its memory, its nodes. */
#include <stdlib.h>

#include "runtime/graph/graph.h"
#include "runtime/text.h"
#include "runtime/trace.h"

enum { STACK = 2048, ALIGNMENT = 64, FEW = 12 };

/* ---- what is wrong with an argument ---- */

static FC_COLD int bad_argument(const FcGraphFunction* f, int32_t i, const FcGraphValue* value, const DLTensor* got,
                                const char* what) {
  FcText text = {0};
  fc_text_format(&text, "argument %d of `%s`: expected a row-major ", (int)i + 1, f->name);
  fc_text_type(&text, fc_graph_dtypes[value->dtype].dlpack, value->rank, value->dims);
  fc_text_put(&text, " on the CPU, got ");
  if (got && what) fc_text_put(&text, what);
  if (!got) fc_text_put(&text, "another value");
  if (got && !what) fc_text_type(&text, got->dtype, got->ndim, got->shape);
  fc_text_raise(&text, got && !what ? "ValueError" : "TypeError");
  return -1;
}

static FC_COLD int bad_count(const FcGraphFunction* f, int32_t n) {
  fc_error_format("TypeError",
                  "`%s`: expected %d inputs, optionally %d outputs and working memory, and %d sizes; got %d arguments",
                  f->name, (int)f->num_inputs, (int)f->num_outputs, (int)f->num_extra, (int)n);
  return -1;
}

/* ---- the memory of a call ---- */

typedef struct {
  const FcGraphFunction* function;
  const TVMFFIAny* args;
  int32_t tensors; /* arguments that are tensors */
  const TVMFFIAny* extra;
  char* workspace; /* of the caller; or NULL */
  FcGraphValue* values;
  int64_t *sizes, *numbers;
  bool copies; /* an input must be made row-major */
} Call;

static size_t frame_size(const FcGraphFunction* f) {
  size_t size = (size_t)f->num_values * sizeof(FcGraphValue);
  if (f->num_sizes) size += ((size_t)f->num_sizes + (size_t)f->num_numbers) * sizeof(int64_t);
  return size;
}

/* Finds the parts of an argument list: inputs, perhaps outputs, perhaps working memory, sizes. */
static int split_arguments(Call* call, int32_t n) {
  const FcGraphFunction* f = call->function;
  const int32_t all = f->num_inputs + f->num_outputs;
  call->tensors = n == f->num_inputs + f->num_extra ? f->num_inputs : all;
  int32_t at = call->tensors;
  if (n == all + f->num_extra + 1 && call->args[all].type_index == kTVMFFIOpaquePtr)
    call->workspace = call->args[at++].v_ptr;
  call->extra = call->args + at;
  return n == at + f->num_extra ? 0 : bad_count(f, n);
}

/* ---- sizes ---- */

static int bind_symbols(const Call* call) {
  const FcGraphFunction* f = call->function;
  for (int32_t i = 0; i < f->num_symbols; ++i) call->sizes[i] = -1;
  for (int32_t i = 0; i < f->num_inputs; ++i) {
    const FcGraphValueInfo* info = &f->values[f->arguments[i]];
    const DLTensor* tensor = fc_any_tensor(&call->args[i]);
    for (int k = 0; tensor && k < info->rank && k < tensor->ndim; ++k) {
      const FcGraphNumber dim = f->numbers[info->dims + k];
      if (dim < FC_GRAPH_SIZE + f->num_symbols && call->sizes[dim - FC_GRAPH_SIZE] < 0)
        call->sizes[dim - FC_GRAPH_SIZE] = tensor->shape[k];
    }
  }
  for (int32_t i = 0; i < f->num_extra; ++i) {
    if (call->extra[i].type_index != kTVMFFIInt || call->extra[i].v_int64 < 0) {
      fc_error_format("TypeError", "`%s`: expected a size as its argument behind the tensors", f->name);
      return -1;
    }
    call->sizes[f->extra[i]] = call->extra[i].v_int64;
  }
  return 0;
}

static int find_sizes(const Call* call) {
  const FcGraphFunction* f = call->function;
  if (f->resolved) return memcpy(call->values, f->resolved, (size_t)f->num_values * sizeof *f->resolved), 0;
  if (bind_symbols(call) != 0 || fc_graph_sizes(f, call->sizes) != 0) return -1;
  return fc_graph_resolve(f, call->sizes, call->numbers, call->values);
}

/* ---- arguments ---- */

static bool is_as_expected(const DLTensor* tensor, const FcGraphValue* value) {
  const DLDataType dtype = fc_graph_dtypes[value->dtype].dlpack;
  if (tensor->ndim != value->rank || tensor->dtype.code != dtype.code || tensor->dtype.bits != dtype.bits ||
      tensor->dtype.lanes != 1)
    return false;
  for (int i = 0; i < value->rank; ++i) {
    if (tensor->shape[i] != value->dims[i]) return false;
  }
  return true;
}

static int take_argument(Call* call, int32_t i) {
  const FcGraphFunction* f = call->function;
  FcGraphValue* value = &call->values[f->arguments[i]];
  const DLTensor* tensor = fc_any_tensor(&call->args[i]);
  if (FC_UNLIKELY(!tensor)) return bad_argument(f, i, value, NULL, NULL);
  if (FC_UNLIKELY(!is_as_expected(tensor, value))) return bad_argument(f, i, value, tensor, NULL);
  if (FC_UNLIKELY(tensor->device.device_type != kDLCPU))
    return bad_argument(f, i, value, tensor, "memory of another device");
  value->data = (char*)tensor->data + tensor->byte_offset;
  if (FC_LIKELY(fc_is_contiguous(tensor) && (uintptr_t)value->data % fc_graph_size(value) == 0)) {
    return tensor->data || value->count == 0 ? 0 : bad_argument(f, i, value, tensor, "no data");
  }
  if (i >= f->num_inputs) return bad_argument(f, i, value, tensor, "other strides or alignment");
  call->copies = true;
  return 0;
}

/* Results are new tensors, which the caller's framework allocates. */
static int make_results(Call* call, TVMFFIAny* results) {
  const FcGraphFunction* f = call->function;
  for (int32_t i = 0; i < f->num_outputs; ++i) {
    FcGraphValue* value = &call->values[f->arguments[f->num_inputs + i]];
    DLTensor like = {.device = {kDLCPU, 0},
                     .ndim = value->rank,
                     .dtype = fc_graph_dtypes[value->dtype].dlpack,
                     .shape = (int64_t*)value->dims};
    TVMFFIObjectHandle made;
    if (TVMFFIEnvTensorAlloc(&like, &made) != 0) return -1;
    results[i] = fc_any_object(made);
    value->data = (char*)fc_tensor_dl(made)->data + fc_tensor_dl(made)->byte_offset;
  }
  return 0;
}

/* ---- calls of other functions ---- */

static int call_import(FcGraph* graph, FcGraphCallee* callee, const TVMFFIAny* args, int32_t n) {
  TVMFFIAny result = fc_any_none();
  TVMFFIObject* import = fc_graph_import(graph, callee);
  const int rc = import ? TVMFFIFunctionGetCellPtr(import)->safe_call(import, args, n, &result) : -1;
  if (rc == 0) fc_any_clear(&result);
  if (FC_UNLIKELY(rc != 0) && import && callee->place) fc_error_add_place(callee->place);
  return rc;
}

static int call_tensors(FcGraph* graph, FcGraphCallee* callee, const TVMFFIAny* args, int32_t n, int32_t tensors) {
  const int64_t begin = fc_trace_region_begin();
  TVMFFIAny result;
  const int rc =
      callee->function ? fc_graph_call(callee->function, args, n, &result) : call_import(graph, callee, args, n);
  if (FC_UNLIKELY(begin != 0))
    fc_trace_region_end(callee->region ? callee->region : callee->name, args, tensors, begin);
  return rc;
}

/* The memory of a node's arguments, with strides for each, as DLPack has them. */
typedef struct {
  DLTensor tensors[FEW];
  TVMFFIAny args[FEW];
  int64_t strides[FEW * FC_GRAPH_RANK];
} FewArguments;

typedef struct {
  DLTensor* tensors;
  TVMFFIAny* args;
  int64_t* strides;
} Arguments;

static void fill_tensor(const Arguments* to, int32_t i, const FcGraphValue* value) {
  int64_t* strides = to->strides + (size_t)i * FC_GRAPH_RANK;
  fc_row_major(value->rank, value->dims, strides);
  to->tensors[i] = (DLTensor){.data = value->data,
                              .device = {kDLCPU, 0},
                              .ndim = value->rank,
                              .dtype = fc_graph_dtypes[value->dtype].dlpack,
                              .shape = (int64_t*)value->dims,
                              .strides = strides};
  to->args[i] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &to->tensors[i]};
}

/* Returns the number of arguments that are tensors. */
static int32_t fill_arguments(const Call* call, const FcGraphNode* node, const int64_t* numbers, const Arguments* to) {
  const FcGraphFunction* f = call->function;
  const int32_t n = node->num_inputs + node->num_outputs;
  const bool workspace = f->graph->callees[node->callee].workspace;
  for (int32_t i = 0; i < n; ++i) fill_tensor(to, i, &call->values[f->operands[node->values + i]]);
  if (workspace) to->args[n - 1] = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr, .v_ptr = to->tensors[n - 1].data};
  for (int32_t i = 0; i < node->num_numbers; ++i) to->args[n + i] = fc_any_int(numbers[node->numbers + i]);
  return n - workspace;
}

static int call_node(const Call* call, const FcGraphNode* node, const int64_t* numbers) {
  FcGraph* graph = call->function->graph;
  const size_t n = (size_t)node->num_inputs + node->num_outputs, all = n + (size_t)node->num_numbers;
  const size_t each = sizeof(DLTensor) + FC_GRAPH_RANK * sizeof(int64_t);
  FewArguments few;
  char* many = all > FEW ? malloc(n * each + all * sizeof(TVMFFIAny)) : NULL;
  if (all > FEW && !many) return fc_error_no_memory(), -1;
  Arguments to = {few.tensors, few.args, few.strides};
  if (many) to = (Arguments){(DLTensor*)many, (TVMFFIAny*)(many + n * each), (int64_t*)(many + n * sizeof(DLTensor))};
  const int32_t tensors = fill_arguments(call, node, numbers, &to);
  const int rc = call_tensors(graph, &graph->callees[node->callee], to.args, (int32_t)all, tensors);
  free(many);
  return rc;
}

/* ---- running ---- */

static void set_places(const Call* call) {
  const FcGraphFunction* f = call->function;
  for (int32_t i = 0; i < f->num_values; ++i) {
    const FcGraphValueInfo* info = &f->values[i];
    if (info->place == FC_GRAPH_ARGUMENT) continue;
    if (info->place == FC_GRAPH_WORKSPACE) {
      call->values[i].data = call->workspace + fc_graph_number(info->from, call->sizes);
    } else {
      call->values[i].data = info->place == FC_GRAPH_ALIAS ? call->values[info->from].data : info->data;
    }
  }
}

static int run_nodes(const Call* call) {
  const FcGraphFunction* f = call->function;
  const int64_t* numbers = f->resolved ? f->resolved_numbers : call->numbers;
  for (int32_t i = 0; i < f->num_nodes; ++i) {
    const FcGraphNode* node = &f->nodes[i];
    if (node->op == FC_GRAPH_CALL) {
      if (call_node(call, node, numbers) != 0) return -1;
      continue;
    }
    const FcGraphStep step = fc_graph_step(f, node, call->values, numbers);
    if (fc_graph_ops[node->op].run(&step) != 0) return -1;
  }
  return 0;
}

static int run_in_workspace(Call* call) {
  const int64_t bytes = fc_graph_number(call->function->workspace, call->sizes);
  _Alignas(ALIGNMENT) char small[STACK];
  char* large = NULL;
  if (bytes && !call->workspace) {
    if (bytes > (int64_t)sizeof small && (uint64_t)bytes < SIZE_MAX - ALIGNMENT)
      large = aligned_alloc(ALIGNMENT, ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    call->workspace = large ? large : small;
    if (bytes > (int64_t)sizeof small && !large) {
      fc_error_format("MemoryError", "`%s`: no memory for intermediate values, %lld bytes; pass smaller arguments",
                      call->function->name, (long long)bytes);
      return -1;
    }
  }
  set_places(call);
  const int rc = run_nodes(call);
  free(large);
  return rc;
}

/* Calls again with row-major copies of the inputs. */
static FC_COLD int call_with_copies(const Call* call, int32_t n, TVMFFIAny* result) {
  const FcGraphFunction* f = call->function;
  TVMFFIAny* args = malloc((size_t)n * sizeof *args);
  FcTensorObj** copies = calloc((size_t)f->num_inputs + 1, sizeof *copies);
  int rc = args && copies ? 0 : (fc_error_no_memory(), -1);
  if (rc == 0) memcpy(args, call->args, (size_t)n * sizeof *args);
  for (int32_t i = 0; rc == 0 && i < f->num_inputs; ++i) {
    if (!(copies[i] = fc_tensor_compact(fc_any_tensor(&args[i])))) rc = -1;
    if (rc == 0) args[i] = fc_any_object(copies[i]);
  }
  if (rc == 0) rc = fc_graph_call((void*)f, args, n, result);
  for (int32_t i = 0; copies && i < f->num_inputs; ++i) {
    if (copies[i]) fc_decref(copies[i]);
  }
  free(copies);
  free(args);
  return rc;
}

static int return_results(const Call* call, TVMFFIAny* results, TVMFFIAny* result) {
  const int32_t n = call->function->num_outputs;
  TVMFFIObjectHandle list;
  if (n == 1) return *result = results[0], 0;
  if (fc_array_new(results, n, &list) != 0) return -1;
  *result = fc_any_object(list);
  return 0;
}

static FC_COLD int run_with_results(Call* call, TVMFFIAny* result) {
  const int32_t n = call->function->num_outputs;
  TVMFFIAny* results = calloc((size_t)n + 1, sizeof *results);
  if (!results) return fc_error_no_memory(), -1;
  int rc = make_results(call, results);
  if (rc == 0) rc = run_in_workspace(call);
  if (rc == 0) rc = return_results(call, results, result);
  for (int32_t i = 0; rc != 0 && i < n; ++i) fc_any_clear(&results[i]);
  free(results);
  return rc;
}

static int run(Call* call, int32_t n, TVMFFIAny* result) {
  if (find_sizes(call) != 0) return -1;
  for (int32_t i = 0; i < call->tensors; ++i) {
    if (take_argument(call, i) != 0) return -1;
  }
  if (FC_UNLIKELY(call->copies)) return call_with_copies(call, n, result);
  return call->tensors == call->function->num_inputs && call->function->num_outputs ? run_with_results(call, result)
                                                                                    : run_in_workspace(call);
}

int fc_graph_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcGraphFunction* f = self;
  const size_t size = frame_size(f);
  _Alignas(8) char small[STACK];
  Call call = {.function = f, .args = args};
  *result = fc_any_none();
  if (FC_UNLIKELY(!__atomic_load_n(&f->ready, __ATOMIC_ACQUIRE))) {
    fc_error_format("RuntimeError", "`%s` has no constants yet; call `__init_%s` with them first", f->name, f->name);
    return -1;
  }
  if (split_arguments(&call, n) != 0) return -1;
  char* frame = size <= sizeof small ? small : malloc(size);
  if (!frame) return fc_error_no_memory(), -1;
  call.values = (FcGraphValue*)frame;
  call.sizes = (int64_t*)(call.values + f->num_values);
  call.numbers = call.sizes + f->num_sizes;
  const int rc = run(&call, n, result);
  if (frame != small) free(frame);
  return rc;
}

/* ---- constants ---- */

static int take_constant(FcGraphFunction* f, FcGraphValueInfo* info, const TVMFFIAny* constant) {
  const FcGraphValue value = {NULL, f->numbers + info->dims, 0, info->rank, info->dtype};
  const DLTensor* tensor = fc_any_tensor(constant);
  if (!tensor) return bad_argument(f, (int32_t)info->from, &value, NULL, NULL);
  if (!is_as_expected(tensor, &value)) return bad_argument(f, (int32_t)info->from, &value, tensor, NULL);
  char* data = (char*)tensor->data + tensor->byte_offset;
  const bool lies_well =
      tensor->device.device_type == kDLCPU && fc_is_contiguous(tensor) && (uintptr_t)data % fc_graph_size(&value) == 0;
  if (!lies_well) return bad_argument(f, (int32_t)info->from, &value, tensor, "other strides, alignment or device");
  info->data = data;
  return 0;
}

int fc_graph_init(FcGraphFunction* f, const TVMFFIAny* constants) {
  static FcMutex lock = FC_MUTEX_INIT;
  const TVMFFISeqCell* cell = constants->type_index == kTVMFFIArray ? TVMFFISeqGetCellPtr(constants->v_obj) : NULL;
  if (!cell || cell->size != f->num_constants) {
    fc_error_format("TypeError", "`__init_%s`: expected an Array of %d tensors", f->name, (int)f->num_constants);
    return -1;
  }
  fc_mutex_lock(&lock);
  int rc = 0;
  for (int32_t i = 0; rc == 0 && !f->ready && i < f->num_values; ++i) {
    FcGraphValueInfo* info = &f->values[i];
    if (info->place == FC_GRAPH_CONSTANT) rc = take_constant(f, info, (const TVMFFIAny*)cell->data + info->from);
  }
  if (rc == 0 && !f->ready) {
    fc_incref(constants->v_obj);
    f->graph->held[f - f->graph->functions] = constants->v_obj;
    __atomic_store_n(&f->ready, true, __ATOMIC_RELEASE);
  }
  fc_mutex_unlock(&lock);
  return rc;
}
