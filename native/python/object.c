/* Object: a native object of a type without a Python class, which can be held, compared and passed back. */
#include "python/args.h"
#include "python/convert.h"

PyObject* fc_object_wrap(TVMFFIObject* object) {
  FcObject* self = PyObject_New(FcObject, &FcObject_Type);
  if (self) {
    self->object = object;
  } else {
    fc_decref(object);
  }
  return (PyObject*)self;
}

int fc_set_object(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  (void)setter, (void)i;
  *out = fc_any_object(((FcObject*)object)->object);
  if (fc_owned_mode(args)) fc_incref(out->v_obj);
  return 0;
}

static void object_dealloc(PyObject* self) {
  fc_decref(((FcObject*)self)->object);
  PyObject_Free(self);
}

static PyObject* get_type_key(PyObject* self, void* closure) {
  (void)closure;
  return PyUnicode_FromString(fc_type_name(((FcObject*)self)->object->type_index));
}

static PyObject* object_repr(PyObject* self) {
  TVMFFIObject* object = ((FcObject*)self)->object;
  return PyUnicode_FromFormat("<farcall.Object %s at %p>", fc_type_name(object->type_index), (void*)object);
}

static PyMethodDef methods[] = {
    FC_SAME_AS_METHOD,
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"type_key", get_type_key, NULL, "The name under which native code registered the type.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FcObject_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Object",
    .tp_doc = "A native object of a type without a Python class. Two are equal if they are the same native object.",
    .tp_basicsize = sizeof(FcObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_dealloc = object_dealloc,
    .tp_repr = object_repr,
    .tp_richcompare = fc_identity_compare,
    .tp_hash = fc_identity_hash,
    .tp_methods = methods,
    .tp_getset = getset,
};
