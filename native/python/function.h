/* Function: its call, and the description of its parameters. */
#ifndef FARCALL_PYTHON_FUNCTION_H_
#define FARCALL_PYTHON_FUNCTION_H_

#include "python/args.h"

/*
 * Looks for the library's description of the function: `find` returns the exported symbol of a name, or NULL. The
 * texts are read at their first use.
 */
typedef TVMFFISafeCallType (*FcFindSymbol)(PyObject* module, const char* name);
int fc_function_describe(PyObject* function, PyObject* module, FcFindSymbol find);
/* describe_by(function, source): the metadata of a function of a server, which source() returns as a str, or None. It is
 * called once, when a call has keywords or inspect.signature asks: it may take a while. */
PyObject* fc_function_describe_by(PyObject* module, PyObject* args);
/* Imports what fc_params_resolve will need. 0, or -1 with an exception. */
int fc_params_prepare(void);
/* The name of a callable in messages. New reference, or NULL with an exception. */
PyObject* fc_callable_name(PyObject* callable);
/* Reads the description, once. 0, or -1 with an exception. */
int fc_params_resolve(FcFunction* function);
/* "argument 2 `x` of `f`: expected float" if the function has a description; else NULL without an exception. */
PyObject* fc_params_place(const FcFunction* function, int32_t i);
/* A call with keywords, or with more or fewer arguments than parameters. */
PyObject* fc_params_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames);
/* The native call itself, after fc_args_begin_for with this function. */
int fc_function_invoke(FcFunction* function, FcArgs* args, TVMFFIAny* result);
/* A call with exactly these arguments. */
PyObject* fc_function_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n);
/* The description of the function has changed: its next call chooses the path anew. */
void fc_function_reset(FcFunction* function);

/*
 * observe(function, around): each call of the function from Python begins with `parent, end = around(function, waits)`,
 * and ends with `end(exception or None, when)`. `parent` is the traceparent that travels with the call, or None.
 * `waits`: the thread waits for the result. `when`: the call's end (CLOCK_MONOTONIC, ns), 0 is now. A function that
 * nobody observes pays nothing for this.
 */
PyObject* fc_function_observe(PyObject* module, PyObject* args);
typedef struct FcObserved {
  PyObject* answer; /* owns both */
  const char* outer;
} FcObserved;
/* Begins an observed call, whose parent travels with this thread's calls until fc_observed_sent. -1 with an
 * exception. */
int fc_observed_begin(FcFunction* function, bool waits, FcObserved* out);
/* The request was sent, or will not be. Returns `end`, a new reference. */
PyObject* fc_observed_sent(FcObserved* observed);
/* Calls `end` with the current exception or None, and releases it. Returns the value; NULL with an exception. */
PyObject* fc_observed_end(PyObject* end, PyObject* value);
/* The number of parameters; -1 if unknown. */
Py_ssize_t fc_params_count(const FcFunction* function);
/* One of the fields below, borrowed; NULL without an exception if there is no description. */
PyObject* fc_params_field(const FcFunction* function, Py_ssize_t field);
/* farcall.ffi._describe's "signature" or "document" of the function. */
PyObject* fc_params_ask(FcFunction* function, const char* question);
enum {
  FC_PARAM_NAMES,
  FC_PARAM_DEFAULTS,
  FC_PARAM_TYPES,
  FC_PARAM_VIEWS,
  FC_PARAM_WRITES,
  FC_PARAM_TEXT,
  FC_PARAM_FIELDS
};

/* The state of the thread that holds the GIL; from Python 3.12 on this thread's, if it does. Public since 3.13. */
static inline PyThreadState* fc_current_state(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked();
#else
  return _PyThreadState_UncheckedGet();
#endif
}

/* ---- methods and the registry ---- */

extern PyMethodDef fc_function_methods[]; /* of the class: see python/function_address.c */
/* Registers a callable as a global function; -1 with an exception. */
int fc_register_global(PyObject* name, PyObject* callable, bool override);

#endif /* FARCALL_PYTHON_FUNCTION_H_ */
