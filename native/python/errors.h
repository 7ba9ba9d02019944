/* Errors of native code as Python exceptions, and back. */
#ifndef FARCALL_PYTHON_ERRORS_H_
#define FARCALL_PYTHON_ERRORS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

/* The thread's error (or the given one, whose reference moves in) -> Python exception. Always returns NULL. */
FC_COLD PyObject* fc_raise_error(TVMFFIObject* error);
FC_COLD PyObject* fc_raise_slot(void);
/* The current Python exception -> the thread's slot; the exception object itself travels along. */
FC_COLD void fc_error_from_python(void);
/* The lines of a backtrace as frames around those that the traceback of the current exception has already. */
FC_COLD void fc_traceback_add(TVMFFIByteArray lines);
/* The traceback of an exception as such lines: str, or NULL, without an exception, when there is none. */
FC_COLD PyObject* fc_traceback_lines(PyObject* exception);
/* An exception as an Error object, new reference. */
TVMFFIObject* fc_error_object(PyObject* exception);
/* The exception that is raised, as a new reference; nothing is raised any more. */
PyObject* fc_raised_as_value(void);

#endif /* FARCALL_PYTHON_ERRORS_H_ */
