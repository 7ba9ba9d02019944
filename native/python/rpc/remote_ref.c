/* farcall._core.RemoteRef: an object on the server that has no Python class in this process. */
#include "python/convert.h"
#include "python/rpc/remote.h"

/* Makes a more specific Python object of a new RemoteRef: set by farcall.rpc. */
static PyObject* hook;

static PyObject* make(PyTypeObject* type, FcRemoteObj* object) {
  PyRemoteRef* self = (PyRemoteRef*)type->tp_alloc(type, 0);
  if (self) self->object = object;
  else fc_decref(&object->header);
  return (PyObject*)self;
}

PyObject* fc_remote_wrap_object(TVMFFIObject* object) {
  if (object->type_index != fc_remote_object_index()) return fc_object_wrap(object);
  PyObject* ref = make(&FcRemoteRef_Type, (FcRemoteObj*)object);
  if (!ref || !hook) return ref;
  PyObject* better = PyObject_CallOneArg(hook, ref);
  Py_DECREF(ref);
  return better;
}

/* Makes a subclass instance from another RemoteRef, which a call returned. */
static PyObject* ref_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* other;
  (void)kwargs;
  if (PyTuple_GET_SIZE(args) < 1 || !PyObject_TypeCheck(PyTuple_GET_ITEM(args, 0), &FcRemoteRef_Type)) {
    return PyErr_Format(PyExc_TypeError, "a %s comes from a session; it cannot be made", type->tp_name);
  }
  other = PyTuple_GET_ITEM(args, 0);
  fc_incref(&((PyRemoteRef*)other)->object->header);
  return make(type, ((PyRemoteRef*)other)->object);
}

static int ref_init(PyObject* self, PyObject* args, PyObject* kwargs) {
  (void)self, (void)args, (void)kwargs;
  return 0;
}

static void ref_dealloc(PyObject* self) {
  FcRemoteObj* object = ((PyRemoteRef*)self)->object;
  if (object) fc_decref(&object->header);
  Py_TYPE(self)->tp_free(self); /* of a subclass, Python releases the type itself */
}

int fc_set_remote_ref(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  FcRemoteObj* native = ((PyRemoteRef*)object)->object;
  (void)setter, (void)i;
  if (fc_owned_mode(args)) fc_incref(&native->header);
  *out = fc_any_object(&native->header);
  return 0;
}

/* ---- the type ---- */

static PyObject* get_kind(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromLong(((PyRemoteRef*)self)->object->kind);
}

static PyObject* get_type_name(PyObject* self, void* closure) {
  (void)closure;
  return PyUnicode_FromString(fc_type_name(((PyRemoteRef*)self)->object->kind));
}

static PyObject* get_handle(PyObject* self, void* closure) {
  (void)closure;
  return PyLong_FromUnsignedLongLong(((PyRemoteRef*)self)->object->owned.handle);
}

static PyObject* get_endpoint(PyObject* self, void* closure) {
  (void)closure;
  PyEndpoint* endpoint = (PyEndpoint*)FcEndpoint_Type.tp_alloc(&FcEndpoint_Type, 0);
  if (!endpoint) return NULL;
  endpoint->ep = ((PyRemoteRef*)self)->object->owned.ep;
  fc_endpoint_incref(endpoint->ep);
  return (PyObject*)endpoint;
}

static PyObject* ref_repr(PyObject* self) {
  const FcRemoteObj* object = ((PyRemoteRef*)self)->object;
  return PyUnicode_FromFormat("<remote %s on %s>", fc_type_name(object->kind), object->owned.ep->peer);
}

static PyObject* set_hook(PyObject* module, PyObject* function) {
  (void)module;
  Py_XSETREF(hook, function == Py_None ? NULL : Py_NewRef(function));
  Py_RETURN_NONE;
}

PyMethodDef fc_remote_ref_functions[] = {
    {"set_remote_object_hook", set_hook, METH_O, "hook(ref: RemoteRef) makes the Python object of a remote one."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef getset[] = {
    {"type_index", get_kind, NULL, "The type index of the C ABI that the server states.", NULL},
    {"type_name", get_type_name, NULL, "The name of that type, such as ffi.Map.", NULL},
    {"handle", get_handle, NULL, "The server's handle of the object.", NULL},
    {"endpoint", get_endpoint, NULL, "The endpoint of the object's session.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PyTypeObject FcRemoteRef_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.RemoteRef",
    .tp_doc = "An object on the server, for its functions to take. Dropping the last reference releases it.",
    .tp_basicsize = sizeof(PyRemoteRef),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = ref_new,
    .tp_init = ref_init,
    .tp_dealloc = ref_dealloc,
    .tp_repr = ref_repr,
    .tp_getset = getset,
};
