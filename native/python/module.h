/* The Python object Module: what python/module.c and python/module_load.c share. */
#ifndef FARCALL_PYTHON_MODULE_H_
#define FARCALL_PYTHON_MODULE_H_

#include "python/types.h"
#include "runtime/module.h"

typedef struct {
  PyObject_HEAD TVMFFIObject* object; /* owned */
  PyObject* path;       /* str: the file, or what it is called in messages */
  PyObject* functions;  /* dict: name -> Function, of its own functions */
  PyObject* attributes; /* the same, of those that were reached by mod.name */
  PyObject* weakrefs;
} FcModule;

/* The Module around a module, whose reference moves in, on failure too: always the same one. path may be NULL. */
PyObject* fc_module_wrap_as(TVMFFIObject* module, PyObject* path);

/* Methods; the tables are in python/module_tree.c. */
PyObject* fc_module_function_names(PyObject* self, PyObject* unused);
PyObject* fc_module_get_function(PyObject* self, PyObject* args, PyObject* kwargs);
extern PyMethodDef fc_module_methods[];
extern PyGetSetDef fc_module_getset[];

#endif /* FARCALL_PYTHON_MODULE_H_ */
