/* Numbers of the native core that Python code shares, as read-only mappings of farcall._core. */
#ifndef FARCALL_PYTHON_CONSTANTS_H_
#define FARCALL_PYTHON_CONSTANTS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
  const char* name; /* NULL ends a table */
  long long value;
} FcNumber;

/* Adds the mapping `name` to the module. 0, or -1 with an exception. */
int fc_add_numbers(PyObject* module, const char* name, const FcNumber* numbers);

/* Adds the numbers of the runtime. */
int fc_runtime_constants(PyObject* module);

#endif /* FARCALL_PYTHON_CONSTANTS_H_ */
