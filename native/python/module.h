/* The Python type Module, for python/module.c, module_load.c and module_tree.c. */
#ifndef FARCALL_PYTHON_MODULE_H_
#define FARCALL_PYTHON_MODULE_H_

#include "python/types.h"
#include "runtime/module.h"

typedef struct {
  PyObject_HEAD TVMFFIObject* object; /* owned */
  PyObject* path;       /* str: the file, or its name in messages */
  PyObject* functions;  /* dict: name -> Function, of the module's own functions */
  PyObject* attributes; /* the same, of the functions read as mod.name */
  PyObject* weakrefs;
  int threads; /* of its functions: see FcFunction */
} FcModule;

/* The Module of a module object, always the same one. Takes ownership of the reference, even on failure. path may be
 * NULL. */
PyObject* fc_module_wrap_as(TVMFFIObject* module, PyObject* path);

/* Methods; the tables are in python/module_tree.c. */
PyObject* fc_module_function_names(PyObject* self, PyObject* unused);
PyObject* fc_module_get_function(PyObject* self, PyObject* args, PyObject* kwargs);
extern PyMethodDef fc_module_methods[];
extern PyGetSetDef fc_module_getset[];

#endif /* FARCALL_PYTHON_MODULE_H_ */
