/* Opaque: passes a Python object through native code as a reference; the same object comes back. */
#include "python/args.h"
#include "python/errors.h"
#include "python/gil.h"

typedef struct {
  PyObject_HEAD PyObject* value;
} FcOpaque;

int fc_set_opaque(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  PyObject* value = ((FcOpaque*)object)->value;
  TVMFFIObjectHandle opaque;
  (void)setter, (void)i;
  if (fc_opaque_new(Py_NewRef(value), kTVMFFIOpaquePyObject, fc_drop_anywhere, &opaque) == 0) {
    return fc_give_object(args, opaque, out);
  }
  Py_DECREF(value);
  fc_raise_slot();
  return -1;
}

static PyObject* opaque_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", NULL};
  PyObject* value;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Opaque", names, &value)) return NULL;
  FcOpaque* self = (FcOpaque*)type->tp_alloc(type, 0);
  if (self) self->value = Py_NewRef(value);
  return (PyObject*)self;
}

static int opaque_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((FcOpaque*)self)->value);
  return 0;
}

/* No tp_clear: the value is never NULL, and a cycle through it contains other objects that can be cleared. */
static void opaque_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_DECREF(((FcOpaque*)self)->value);
  Py_TYPE(self)->tp_free(self);
}

static PyObject* opaque_repr(PyObject* self) {
  return PyUnicode_FromFormat("farcall.Opaque(%R)", ((FcOpaque*)self)->value);
}

static PyObject* get_value(PyObject* self, void* closure) {
  (void)closure;
  return Py_NewRef(((FcOpaque*)self)->value);
}

static PyGetSetDef getset[] = {
    {"value", get_value, NULL, "The object.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FcOpaque_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Opaque",
    .tp_doc =
        "Opaque(value, /)\n--\n\n"
        "Wraps any Python object as an argument: native code holds a reference, and returns the same object.",
    .tp_basicsize = sizeof(FcOpaque),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = opaque_new,
    .tp_dealloc = opaque_dealloc,
    .tp_traverse = opaque_traverse,
    .tp_repr = opaque_repr,
    .tp_getset = getset,
};
