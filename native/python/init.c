/* The extension module farcall._core. */
#include "python/abi/abi.h"
#include "python/constants.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/init.h"
#include "python/rpc/remote.h"
#include "runtime/blocks.h"
#include "runtime/graph/functions.h"
#include "runtime/dl/dl.h"
#include "runtime/pool.h"

static int check_signals(void) {
  PyGILState_STATE state;
  if (!fc_gil_take(&state)) return 0;
  int rc;
  FC_BEGIN_STOP_UNWINDING;
  rc = PyErr_CheckSignals();
  if (rc != 0) fc_error_from_python();
  PyGILState_Release(state);
  FC_END_STOP_UNWINDING;
  return rc;
}

/* The order matters: a class with __tvm_ffi_object__ may also have __dlpack__ or be callable. */
static const FcChooser choosers[] = {fc_choose_value, fc_choose_remote, fc_choose_object_protocol,
                                     fc_choose_numpy, fc_choose_tensor, fc_choose_protocol,
                                     fc_choose_other};

static int add_types(PyObject* module) {
  PyTypeObject* const types[] = {&FcFunction_Type, &FcTensor_Type,  &FcDType_Type,  &FcDevice_Type, &FcShape_Type,
                                 &FcModule_Type,   &FcProgram_Type, &FcOpaque_Type, &FcObject_Type};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (PyModule_AddType(module, types[i]) != 0) return -1;
  }
  return 0;
}

static void start_runtime(void) {
  const FcBuiltin* const tables[] = {fc_registry_builtins, fc_container_builtins, fc_map_builtins,
                                     fc_module_builtins,   fc_whole_builtins,     fc_graph_builtins};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) fc_builtins_add(tables[i]);
  fc_blocks_keep();
  fc_dl_start();
  fc_pool_start();
}

static int fill(PyObject* module) {
  PyMethodDef* const functions[] = {fc_module_functions,        fc_registry_functions, fc_error_functions,
                                    fc_tensor_functions,        fc_stream_functions,   fc_timing_functions,
                                    fc_device_memory_functions, fc_threads_functions,  fc_checksum_functions};
  start_runtime();
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    if (PyModule_AddFunctions(module, functions[i]) != 0) return -1;
  }
  if (fc_args_init(choosers, sizeof choosers / sizeof *choosers) != 0) return -1;
  if (fc_errors_init() != 0 || fc_callbacks_init() != 0) return -1;
  if (add_types(module) != 0 || fc_dlpack_init() != 0) return -1;
  fc_streams_init();
  fc_module_kinds_init();
  fc_check_signals = check_signals;
  if (fc_runtime_constants(module) != 0 || fc_program_constants(module) != 0) return -1;
  return fc_sessions_init(module);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "farcall._core",
    .m_doc = "The native core: functions, tensors, modules, and calls between them. Use farcall.ffi.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__core(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module && fill(module) != 0) Py_CLEAR(module);
  return module;
}
