/* The session's part of farcall._core. No other file depends on this one. */
#include "python/init.h"
#include "python/rpc/channel.h"
#include "python/rpc/remote.h"

static int add_functions(PyObject* module) {
  PyMethodDef* const tables[] = {fc_endpoint_functions,   fc_remote_functions,     fc_remote_tensor_functions,
                                 fc_call_functions,       fc_remote_ref_functions, fc_file_functions,
                                 fc_dispatcher_functions, fc_handshake_functions,  fc_trace_functions};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    if (PyModule_AddFunctions(module, tables[i]) != 0) return -1;
  }
  return 0;
}

static int add_types(PyObject* module) {
  PyTypeObject* const types[] = {&FcEndpoint_Type, &FcDispatcher_Type, &FcRemoteRef_Type, &FcCall_Type,
                                 &FcPipeline_Type};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (PyModule_AddType(module, types[i]) != 0) return -1;
  }
  return fc_channel_types_init(module);
}

int fc_sessions_init(PyObject* module) {
  fc_session_hooks =
      (FcSessionHooks){fc_function_label, fc_remote_function_peer, fc_remote_place_text, fc_remote_wrap_object};
  if (add_types(module) != 0 || fc_endpoint_add_client() != 0 || fc_session_constants(module) != 0) return -1;
  return add_functions(module);
}
