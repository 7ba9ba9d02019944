/* Errors of native code as Python exceptions, and back. */
#ifndef FARCALL_PYTHON_ERRORS_H_
#define FARCALL_PYTHON_ERRORS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

/* The thread's error, or a given one, of which it takes ownership -> Python exception. Always returns NULL. */
FC_COLD PyObject* fc_raise_error(TVMFFIObject* error);
FC_COLD PyObject* fc_raise_slot(void);
/* The current Python exception -> the thread's slot, which then holds the exception object too. */
FC_COLD void fc_error_from_python(void);
/* Adds the lines of a backtrace as outer frames to the traceback of the current exception. */
FC_COLD void fc_traceback_add(TVMFFIByteArray lines);
/* The traceback of an exception as such lines: a str, or NULL without an exception if it has no traceback. */
FC_COLD PyObject* fc_traceback_lines(PyObject* exception);
/* An exception as an Error object, new reference. */
TVMFFIObject* fc_error_object(PyObject* exception);
/* Clears the current exception, and returns it as a new reference. */
PyObject* fc_raised_as_value(void);

#endif /* FARCALL_PYTHON_ERRORS_H_ */
