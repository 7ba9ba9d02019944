/* Modules of the kind `farcall.json`: their functions, and the loader. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/builtins.h"
#include "runtime/frame.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/graph.h"

enum { ALIGNMENT = 64, VERSION = 2 }; /* of the kind; version 1 has no imports */

/* ---- the graph ---- */

static void free_graph(FcGraph* graph) {
  for (int32_t i = 0; i < graph->num_callees; ++i) {
    if (graph->callees[i].import) fc_decref(graph->callees[i].import);
  }
  for (int32_t i = 0; i < graph->num_functions; ++i) {
    if (graph->held[i]) fc_decref(graph->held[i]);
  }
  TVMFFIObject* keeper = graph->keeper;
  for (void *block = graph->blocks, *next; block; block = next) {
    next = *(void**)block;
    free(block);
  }
  fc_mutex_destroy(&graph->lock);
  free(graph);
  if (keeper) fc_decref(keeper);
}

static void drop_graph(FcGraph* graph) {
  if (__atomic_sub_fetch(&graph->references, 1, __ATOMIC_ACQ_REL) == 0) free_graph(graph);
}

/* The payload: the data of a frame, or bytes without a frame. */
static int find_payload(FcGraph* graph) {
  static const TVMFFIByteArray kind = {"farcall.json", 12};
  FcFrame frame;
  graph->payload = graph->bytes;
  graph->payload_size = graph->size;
  if (!fc_frame_begins(graph->bytes, graph->size)) return 0;
  if (fc_frame_read(kind, graph->bytes, graph->size, &frame) != 0) return -1;
  graph->payload = frame.data.data;
  graph->payload_size = frame.data.size;
  if (frame.version >= 1 && frame.version <= VERSION && frame.feature_count == 0) return 0;
  fc_error_format(
      "ArtifactError",
      "a module of kind `farcall.json` has version %u and needs %u features, and this farcall reads versions 1 "
      "to %d without any; install a newer farcall, or build it again with this one",
      frame.version, frame.feature_count, VERSION);
  return -1;
}

static bool is_aligned(const FcGraph* graph) { return (uintptr_t)graph->payload % ALIGNMENT == 0; }

/* Bytes of its own, whose payload is aligned. */
static int copy_bytes(FcGraph* graph) {
  char* room = fc_graph_room(graph, graph->size + ALIGNMENT, 1);
  const size_t head = (size_t)(graph->payload - graph->bytes) % ALIGNMENT;
  if (!room) return -1;
  room += (ALIGNMENT - head) % ALIGNMENT;
  memcpy(room, graph->bytes, graph->size);
  graph->payload = room + (graph->payload - graph->bytes);
  graph->bytes = room;
  return 0;
}

/* Borrows bytes that their library keeps in place and aligned; copies others. */
static int take_bytes(FcGraph* graph) {
  if (!fc_thread.embedder || !is_aligned(graph)) return copy_bytes(graph);
  graph->keeper = fc_thread.embedder;
  fc_incref(graph->keeper);
  return 0;
}

static FcGraph* new_graph(TVMFFIByteArray bytes) {
  FcGraph* graph = calloc(1, sizeof *graph);
  if (!graph) return fc_error_no_memory(), NULL;
  fc_mutex_init_recursive(&graph->lock);
  graph->references = 1;
  graph->bytes = bytes.data;
  graph->size = bytes.size;
  if (find_payload(graph) == 0 && take_bytes(graph) == 0 && fc_graph_parse(graph) == 0) return graph;
  drop_graph(graph);
  return NULL;
}

/* ---- functions ---- */

/* A function keeps the module, and with it the graph and the imports that it calls. */
static void drop_module(void* self) { fc_decref(((FcGraphFunction*)self)->graph->module); }

static int call_init(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  static const TVMFFIAny none;
  *result = fc_any_none();
  return fc_graph_init(self, n == 1 ? args : &none);
}

/* The module's source, a Function, has the graph. */
static int make_function(FcModuleObj* module, const TVMFFIAny* entry, TVMFFIObject** out) {
  FcGraph* graph = ((FcFunctionObj*)module->source)->self;
  FcGraphFunction* f = &graph->functions[entry->v_int64 / 2];
  fc_incref(&module->header);
  if (fc_function_new(f, entry->v_int64 % 2 ? call_init : fc_graph_call, drop_module, (TVMFFIObjectHandle*)out) == 0) {
    return 0;
  }
  fc_decref(&module->header);
  return -1;
}

/* The entry is twice the function's index, and one more for `__init_`. */
static int add_name(const FcGraphFunction* f, const char* prefix, int64_t entry, TVMFFIObject* functions) {
  TVMFFIAny key;
  char name[4096 + 8];
  snprintf(name, sizeof name, "%s%s", prefix, f->name);
  if (fc_any_from_bytes(kTVMFFIStr, name, strlen(name), &key) != 0) return -1;
  return fc_map_set(functions, key, fc_any_int(entry));
}

static int add_names(const FcGraph* graph, FcModuleObj* module) {
  if (fc_map_new(kTVMFFIMap, (TVMFFIObjectHandle*)&module->functions) != 0) return -1;
  for (int32_t i = 0; i < graph->num_functions; ++i) {
    const FcGraphFunction* f = &graph->functions[i];
    if (add_name(f, "", 2 * (int64_t)i, module->functions) != 0) return -1;
    if (f->num_constants && add_name(f, "__init_", 2 * (int64_t)i + 1, module->functions) != 0) return -1;
  }
  module->make = make_function;
  return 0;
}

/* ---- the source ---- */

static void drop_shared_graph(void* self) { drop_graph(self); }

static int tell_source(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcGraph* graph = self;
  (void)args;
  (void)n;
  return fc_any_from_bytes(kTVMFFIStr, graph->payload, graph->text, result);
}

static int tell_bytes(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcGraph* graph = self;
  (void)args;
  (void)n;
  return fc_any_from_bytes(kTVMFFIBytes, graph->bytes, graph->size, result);
}

static int add_teller(FcGraph* graph, TVMFFISafeCallType call, TVMFFIObject** out) {
  if (fc_function_new(graph, call, drop_shared_graph, (TVMFFIObjectHandle*)out) != 0) return -1;
  __atomic_add_fetch(&graph->references, 1, __ATOMIC_RELAXED);
  return 0;
}

/* ---- the module ---- */

static int start(FcModuleObj* module) { return fc_graph_start(((FcFunctionObj*)module->source)->self); }

static TVMFFIObject* module_of(FcGraph* graph) {
  TVMFFIObject* handle = fc_module_new("farcall.json", FC_MODULE_TO_BYTES | FC_MODULE_RUNNABLE);
  if (!handle) return NULL;
  FcModuleObj* module = fc_module_of(handle);
  graph->module = handle;
  module->start = start;
  if (add_names(graph, module) == 0 && add_teller(graph, tell_source, &module->source) == 0 &&
      add_teller(graph, tell_bytes, &module->save) == 0) {
    return handle;
  }
  fc_decref(handle);
  return NULL;
}

static int load(const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray bytes;
  (void)n;
  if (!fc_any_bytes(&args[0], &bytes)) return fc_bad_argument(0, "bytes", &args[0]), -1;
  FcGraph* graph = new_graph(bytes);
  TVMFFIObject* module = graph ? module_of(graph) : NULL;
  if (graph) drop_graph(graph);
  if (module) *result = fc_any_object(module);
  return module ? 0 : -1;
}

const FcBuiltin fc_graph_builtins[] = {{"ffi.Module.load_from_bytes.farcall.json", load, 1, 1}, {NULL, NULL, 0, 0}};
