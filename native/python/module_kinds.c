/* Loaders of modules that installed packages offer: farcall.ffi._kinds finds them. */
#include "python/errors.h"
#include "python/gil.h"
#include "python/init.h"
#include "runtime/module.h"

static int add_names(PyObject* names, FcText* kinds) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
    if (!name) return -1;
    fc_text_format(kinds, "%s`%s`", i ? ", " : "", name);
  }
  return 0;
}

static int ask(TVMFFIByteArray kind, FcText* kinds) {
  PyObject* module = PyImport_ImportModule("farcall.ffi._kinds");
  PyObject* names = module ? PyObject_CallMethod(module, "offered", "s#", kind.data, (Py_ssize_t)kind.size) : NULL;
  int rc = names && PyList_Check(names) ? add_names(names, kinds) : -1;
  if (rc != 0) fc_error_from_python();
  Py_XDECREF(names);
  Py_XDECREF(module);
  return rc;
}

static int plugins(TVMFFIByteArray kind, FcText* kinds) {
  PyGILState_STATE state;
  int rc;
  if (!fc_gil_take(&state)) return 0;
  FC_BEGIN_STOP_UNWINDING;
  rc = ask(kind, kinds);
  PyGILState_Release(state);
  FC_END_STOP_UNWINDING;
  return rc;
}

void fc_module_kinds_init(void) { fc_module_plugins = plugins; }
