/*
 * The questions that value bindings ask about values behind a session. The session bindings (python/rpc/init.c) fill
 * the table when the module is made, so the files beside this one use nothing of a session.
 */
#ifndef FARCALL_PYTHON_SESSION_HOOKS_H_
#define FARCALL_PYTHON_SESSION_HOOKS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

typedef struct {
  /* The name of a Function that was made without one. Never NULL; it may end in the middle of a character. */
  const char* (*function_label)(TVMFFIObject* function);
  /* The peer that a Function runs on; NULL for a function of this process. */
  const char* (*function_peer)(TVMFFIObject* function);
  /* "cpu:0", or "cpu:0 of tcp://board:9090" for a device behind a session. New reference, or NULL with an exception. */
  PyObject* (*place_text)(DLDevice device);
  /* The Python value of an object whose type has none of its own. Takes ownership of the object, even on failure. */
  PyObject* (*wrap_object)(TVMFFIObject* object);
} FcSessionHooks;

extern FcSessionHooks fc_session_hooks;

#endif /* FARCALL_PYTHON_SESSION_HOOKS_H_ */
