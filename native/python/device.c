/* Device: the device that owns memory. */
#include "python/convert.h"

#include <structmember.h>

PyObject* fc_device_new(DLDevice value) {
  FcDevice* device = PyObject_New(FcDevice, &FcDevice_Type);
  if (device) device->value = value;
  return (PyObject*)device;
}

static int device_from_text(PyObject* text, DLDevice* out) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (!data) return -1;
  if (fc_device_parse(data, (size_t)size, out)) return 0;
  PyErr_Format(
      PyExc_ValueError,
      "unknown device `%U`; write name or name:index, such as cpu, cuda:1, rocm, metal, vulkan, opencl, hexagon", text);
  return -1;
}

int fc_device_from_python(PyObject* object, DLDevice* out) {
  if (Py_IS_TYPE(object, &FcDevice_Type)) {
    *out = ((FcDevice*)object)->value;
    return 0;
  }
  if (PyUnicode_Check(object)) return device_from_text(object, out);
  if (PyTuple_Check(object)) {
    int type, id;
    if (!PyArg_ParseTuple(object, "ii;a device as a tuple is (device_type, device_id)", &type, &id)) return -1;
    *out = (DLDevice){(DLDeviceType)type, id};
    return 0;
  }
  if (!fc_type_is(Py_TYPE(object), "torch", "device")) {
    PyErr_Format(PyExc_TypeError, "expected a Device, torch.device or a name such as cuda:0, got `%s`",
                 Py_TYPE(object)->tp_name);
    return -1;
  }
  PyObject* text = PyObject_Str(object);
  int rc = text ? device_from_text(text, out) : -1;
  Py_XDECREF(text);
  return rc;
}

/* The argument `index` beside a name; "cuda:1" has an index already. */
static int set_index(PyObject* object, DLDevice* device) {
  Py_ssize_t index = PyNumber_AsSsize_t(object, NULL);
  if (index == -1 && PyErr_Occurred()) return -1;
  if (index < 0 || index > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "Device: an index is between 0 and 2**31 - 1, got %R", object);
    return -1;
  }
  if (device->device_id != 0 && device->device_id != index) {
    PyErr_Format(PyExc_ValueError, "Device: the index is %d by name, and %zd beside it", device->device_id, index);
    return -1;
  }
  device->device_id = (int32_t)index;
  return 0;
}

static PyObject* device_make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"", "index", NULL};
  PyObject *object, *index = Py_None;
  DLDevice value;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Device", names, &object, &index)) return NULL;
  if (PyLong_Check(object)) {
    value = (DLDevice){(DLDeviceType)PyLong_AsLong(object), 0};
    if (PyErr_Occurred()) return NULL;
  } else if (fc_device_from_python(object, &value) != 0) {
    return NULL;
  }
  if (index != Py_None && set_index(index, &value) != 0) return NULL;
  return fc_device_new(value);
}

static PyObject* device_str(PyObject* self) {
  char text[FC_NAME_MAX];
  fc_device_print(((FcDevice*)self)->value, text);
  return PyUnicode_FromString(text);
}

static PyObject* device_repr(PyObject* self) {
  char text[FC_NAME_MAX];
  fc_device_print(((FcDevice*)self)->value, text);
  return PyUnicode_FromFormat("farcall.Device('%s')", text);
}

static Py_hash_t device_hash(PyObject* self) {
  PyObject* text = device_str(self);
  Py_hash_t hash = text ? PyObject_Hash(text) : -1;
  Py_XDECREF(text);
  return hash;
}

static PyObject* device_compare(PyObject* self, PyObject* other, int op) {
  DLDevice mine = ((FcDevice*)self)->value, value;
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  if (fc_device_from_python(other, &value) != 0) {
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
  }
  bool same = mine.device_type == value.device_type && mine.device_id == value.device_id;
  return PyBool_FromLong(same == (op == Py_EQ));
}

/* "cuda" of "cuda:1"; the name of a session's device includes the session. */
static PyObject* get_type(PyObject* self, void* closure) {
  char text[FC_NAME_MAX];
  (void)closure;
  fc_device_print(((FcDevice*)self)->value, text);
  return PyUnicode_FromStringAndSize(text, strrchr(text, ':') - text);
}

static PyObject* dlpack_device_type(PyObject* self, PyObject* unused) {
  (void)unused;
  return PyLong_FromLong((long)((FcDevice*)self)->value.device_type);
}

/* __reduce__, for copy and pickle. */
static PyObject* device_reduce(PyObject* self, PyObject* unused) {
  DLDevice value = ((FcDevice*)self)->value;
  (void)unused;
  return Py_BuildValue("O(ii)", Py_TYPE(self), (int)value.device_type, value.device_id);
}

static PyMethodDef methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, NULL},
    {"dlpack_device_type", dlpack_device_type, METH_NOARGS,
     "dlpack_device_type($self, /)\n--\n\nThe DLPack number of the kind of device."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"index", T_INT, offsetof(FcDevice, value.device_id), READONLY, "The index among the devices of its kind, from 0."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"type", get_type, NULL, "The name of the kind of device, such as \"cuda\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FcDevice_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall.Device",
    .tp_doc =
        "Device(x, /, index=None)\n--\n\nThe device that holds memory: from 'cuda:1', from 'cuda' and 1, or from a "
        "torch.device.",
    .tp_basicsize = sizeof(FcDevice),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = device_make,
    .tp_repr = device_repr,
    .tp_str = device_str,
    .tp_hash = device_hash,
    .tp_richcompare = device_compare,
    .tp_methods = methods,
    .tp_members = members,
    .tp_getset = getset,
};
