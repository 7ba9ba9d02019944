/* How a call says on how many threads it computes: python/threads.c. */
#ifndef FARCALL_PYTHON_THREADS_H_
#define FARCALL_PYTHON_THREADS_H_

#include "python/function.h"

/* A number of threads; 0 for None; -1 with an exception. */
int fc_threads_from_python(PyObject* value);
PyObject* fc_threads_to_python(int count);
/* The place of the keyword `threads`, which is not a parameter of the function; -1: there is none. */
Py_ssize_t fc_threads_keyword(FcFunction* function, PyObject* kwnames);
/* The call without that keyword, on so many threads. */
PyObject* fc_threads_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames,
                          Py_ssize_t place);

#endif /* FARCALL_PYTHON_THREADS_H_ */
