/*
 * Functions of the session bindings that the value bindings call for remote values. python/rpc/init.c fills the table
 * when the module is made, so that the files of this folder do not depend on sessions.
 */
#ifndef FARCALL_PYTHON_SESSION_HOOKS_H_
#define FARCALL_PYTHON_SESSION_HOOKS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

typedef struct {
  /* The name of a Function made without one. Never NULL; may be cut in the middle of a character. */
  const char* (*function_label)(TVMFFIObject* function);
  /* The peer that a Function runs on; NULL for a function of this process. */
  const char* (*function_peer)(TVMFFIObject* function);
  /* "cpu:0", or "cpu:0 of tcp://board:9090" for a device of a session. New reference, or NULL with an exception. */
  PyObject* (*place_text)(DLDevice device);
  /* The Python value of an object without a Python type. Takes ownership of the object, even on failure. */
  PyObject* (*wrap_object)(TVMFFIObject* object);
} FcSessionHooks;

extern FcSessionHooks fc_session_hooks;

#endif /* FARCALL_PYTHON_SESSION_HOOKS_H_ */
