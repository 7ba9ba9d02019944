/* The functions of imported modules that a graph calls: found once, and given their constants. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/graph/graph.h"

/* Searches the imports, and not the graph's own functions, of which one may have the same name. New reference. */
static int search_imports(TVMFFIObject* module, const char* name, TVMFFIObject** found) {
  TVMFFIObject* imports = fc_module_imports(module);
  if (!imports) return -1;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(imports);
  int rc = 0;
  for (int64_t i = 0; rc == 0 && !*found && i < cell->size; ++i) {
    rc = fc_module_get(((TVMFFIAny*)cell->data)[i].v_obj, name, strlen(name), true, found);
  }
  fc_decref(imports);
  return rc;
}

static TVMFFIObject* find(const FcGraph* graph, const FcGraphCallee* callee, const char* name, const char* what) {
  TVMFFIObject* found = NULL;
  if (search_imports(graph->module, name, &found) != 0 || found) return found;
  if (callee->kind) {
    fc_error_format(
        "ArtifactError",
        "its module of kind `%s` has no function `%s`%s; its backend promised one: build the artifact again",
        callee->kind, name, what);
  } else {
    fc_error_format("RuntimeError",
                    "a graph calls the function `%s`, which no imported module has; load the module that has it", name);
  }
  return NULL;
}

/* ---- constants ---- */

static void drop_keeper(FcTensorObj* tensor) { fc_decref(tensor->context); }

/* A view of the payload, which keeps the library with it; a copy of a payload that is in no library. */
static FcTensorObj* constant_of(const FcGraph* graph, const DLTensor* constant) {
  if (!graph->keeper) return fc_tensor_compact(constant);
  FcTensorObj* tensor = fc_tensor_new(constant, drop_keeper, graph->keeper);
  if (tensor) fc_incref(graph->keeper);
  return tensor;
}

/* One Array of the Tensors of an import; NULL with an error. */
static TVMFFIObject* constants_of(const FcGraph* graph, const FcGraphCallee* callee) {
  TVMFFIAny* tensors = calloc((size_t)callee->num_constants, sizeof *tensors);
  if (!tensors) return fc_error_no_memory(), NULL;
  TVMFFIObjectHandle array = NULL;
  int32_t n = 0;
  for (; n < callee->num_constants; ++n) {
    FcTensorObj* tensor = constant_of(graph, &callee->constants[n]);
    if (!tensor) break;
    tensors[n] = fc_any_object(tensor);
  }
  if (n == callee->num_constants) {
    (void)fc_array_new(tensors, n, &array); /* takes the references */
  } else {
    while (n > 0) fc_any_clear(&tensors[--n]);
  }
  free(tensors);
  return array;
}

static int give_constants(const FcGraph* graph, const FcGraphCallee* callee) {
  char name[4096 + 8];
  snprintf(name, sizeof name, "__init_%s", callee->name);
  TVMFFIObject* init = find(graph, callee, name, ", which takes its constants");
  TVMFFIObject* array = init ? constants_of(graph, callee) : NULL;
  int rc = -1;
  if (array) {
    const TVMFFIAny arg = fc_any_object(array);
    TVMFFIAny result = fc_any_none();
    rc = TVMFFIFunctionGetCellPtr(init)->safe_call(init, &arg, 1, &result);
    if (rc == 0) fc_any_clear(&result);
    fc_decref(array);
  }
  if (init) fc_decref(init);
  return rc;
}

/* ---- finding ---- */

static TVMFFIObject* find_with_constants(const FcGraph* graph, const FcGraphCallee* callee) {
  TVMFFIObject* found = find(graph, callee, callee->name, "");
  if (found && callee->num_constants && give_constants(graph, callee) != 0) {
    fc_decref(found);
    found = NULL;
  }
  if (!found && callee->place) fc_error_add_place(callee->place);
  return found;
}

TVMFFIObject* fc_graph_import(FcGraph* graph, FcGraphCallee* callee) {
  TVMFFIObject* found = __atomic_load_n(&callee->import, __ATOMIC_ACQUIRE);
  if (FC_LIKELY(found)) return found;
  fc_mutex_lock(&graph->lock);
  found = callee->import;
  if (!found) {
    found = find_with_constants(graph, callee);
    if (found) __atomic_store_n(&callee->import, found, __ATOMIC_RELEASE);
  }
  fc_mutex_unlock(&graph->lock);
  return found;
}

int fc_graph_start(FcGraph* graph) {
  for (int32_t i = 0; i < graph->num_imports; ++i) {
    if (!fc_graph_import(graph, &graph->callees[i])) return -1;
  }
  return 0;
}
