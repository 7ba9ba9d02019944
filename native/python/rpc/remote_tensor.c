/* Remote tensors for Python: copies, views, and their devices. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/rpc/remote.h"

PyObject* fc_remote_place_text(DLDevice device) {
  char name[FC_NAME_MAX];
  FcEndpoint* ep = fc_device_is_remote(device) ? fc_remote_endpoint_of(device) : NULL;
  if (fc_device_is_remote(device) && !ep) fc_error_drop();
  fc_device_print(ep ? fc_remote_unmasked(device) : device, name);
  PyObject* text = PyUnicode_FromFormat("%s%s%s", name, ep ? " of " : "", ep ? ep->peer : "");
  if (ep) fc_endpoint_decref(ep);
  return text;
}

static PyObject* endpoint_empty(PyEndpoint* self, PyObject* args) {
  PyObject *dims, *dtype, *device;
  int64_t shape[FC_WIRE_MAX_NDIM];
  int32_t ndim;
  DLDataType type;
  DLDevice place;
  FcTensorObj* tensor;
  if (!PyArg_ParseTuple(args, "OOO:empty", &dims, &dtype, &device)) return NULL;
  if (fc_read_shape(dims, shape, &ndim) < 0 || fc_dtype_from_python(dtype, &type) < 0) return NULL;
  if (fc_device_from_python(device, &place) < 0) return NULL;
  if (fc_remote_own_device(self->ep, &place) < 0) return fc_raise_slot();
  Py_BEGIN_ALLOW_THREADS tensor = fc_remote_empty(self->ep, place, ndim, shape, type);
  Py_END_ALLOW_THREADS return tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
}

/* ---- copies between local and remote ---- */

/* As fc_args_begin of one argument, but bytes and other buffers become tensors. */
static int begin_one(FcArgs* args, PyObject* object, PyObject* name) {
  if (fc_args_begin(args, NULL, 0, name) != 0) return -1;
  int rc = fc_set_plain_buffer(args, 0, object);
  args->n = rc > 0;
  if (rc > 0) return 0;
  fc_args_end(args);
  return rc < 0 ? -1 : fc_args_begin(args, &object, 1, name);
}

/* The tensor behind any Python tensor, with `buffers` also one of a buffer, which may be read-only; FcArgs keeps it until
 * fc_args_end. */
static const DLTensor* local_tensor(FcArgs* args, PyObject* object, const char* what, bool buffers) {
  PyObject* name = PyUnicode_FromString(what);
  int rc = !name ? -1 : buffers ? begin_one(args, object, name) : fc_args_begin(args, &object, 1, name);
  Py_XDECREF(name);
  if (rc < 0) return NULL;
  const DLTensor* dl = fc_any_tensor(&args->any[0]);
  if (dl && dl->device.device_type == kDLCPU && dl->ndim <= FC_WIRE_MAX_NDIM) return dl;
  if (dl && fc_device_is_remote(dl->device)) {
    PyErr_Format(PyExc_ValueError,
                 "%s: the tensor is on a session already; session.copy copies among the tensors of one, "
                 "and .numpy() fetches it",
                 what);
  } else if (dl) {
    PyErr_Format(PyExc_ValueError,
                 "%s: expected a tensor on the CPU, of at most %d dims, got one of %d on device type %d; "
                 "move it to the CPU first",
                 what, FC_WIRE_MAX_NDIM, (int)dl->ndim, (int)dl->device.device_type);
  } else {
    PyErr_Format(PyExc_TypeError, "%s: expected a tensor, got `%s`; numpy.asarray makes one of numbers and lists", what,
                 Py_TYPE(object)->tp_name);
  }
  fc_args_end(args);
  return NULL;
}

static PyObject* endpoint_tensor(PyEndpoint* self, PyObject* args) {
  PyObject *object, *device;
  FcArgs held;
  DLDevice place;
  FcTensorObj* tensor;
  int rc = -1;
  if (!PyArg_ParseTuple(args, "OO:tensor", &object, &device) || fc_device_from_python(device, &place) < 0) return NULL;
  if (fc_remote_own_device(self->ep, &place) < 0) return fc_raise_slot();
  const DLTensor* dl = local_tensor(&held, object, "tensor", true);
  if (!dl) return NULL;
  Py_BEGIN_ALLOW_THREADS tensor = fc_remote_empty(self->ep, place, dl->ndim, dl->shape, dl->dtype);
  if (tensor) rc = fc_remote_copy_in(self->ep, &tensor->dl, dl);
  Py_END_ALLOW_THREADS fc_args_end(&held);
  if (rc == 0) return fc_tensor_wrap(&tensor->header);
  if (tensor) fc_decref(&tensor->header);
  return fc_raise_slot();
}

/* The endpoint of a row-major remote tensor, as a new reference; NULL with an exception. */
static FcEndpoint* endpoint_of(PyObject* object, DLTensor** remote) {
  if (!PyObject_TypeCheck(object, &FcTensor_Type)) {
    return (FcEndpoint*)PyErr_Format(PyExc_TypeError, "expected a farcall Tensor, got `%s`", Py_TYPE(object)->tp_name);
  }
  *remote = fc_tensor_view(object);
  if (!*remote) return NULL;
  if (!fc_is_contiguous(*remote)) {
    return (FcEndpoint*)PyErr_Format(PyExc_ValueError, "a remote tensor must be row-major to be copied");
  }
  FcEndpoint* ep = fc_remote_endpoint_of((*remote)->device);
  if (!ep) fc_raise_slot();
  return ep;
}

static PyObject* fetch_remote(PyObject* Py_UNUSED(module), PyObject* object) {
  DLTensor* remote;
  FcEndpoint* ep = endpoint_of(object, &remote);
  if (!ep) return NULL;
  DLTensor like = *remote;
  like.device = (DLDevice){kDLCPU, 0};
  like.byte_offset = 0;
  FcTensorObj* local = NULL;
  int rc = -1;
  Py_BEGIN_ALLOW_THREADS local = fc_tensor_alloc(&like);
  if (local) rc = fc_remote_copy_out(ep, remote, local->dl.data);
  fc_endpoint_decref(ep);
  Py_END_ALLOW_THREADS if (rc == 0) return fc_tensor_wrap(&local->header);
  if (local) fc_decref(&local->header);
  return fc_raise_slot();
}

/* Whether one may be copied into the other; false with an exception. */
static bool same_layout(const DLTensor* source, const DLTensor* target) {
  bool same = source->ndim == target->ndim && fc_dtype_equal(source->dtype, target->dtype);
  for (int32_t i = 0; same && i < source->ndim; ++i) same = source->shape[i] == target->shape[i];
  if (same) return true;
  PyObject* from = fc_tensor_type_text(source);
  PyObject* to = from ? fc_tensor_type_text(target) : NULL;
  if (to) PyErr_Format(PyExc_ValueError, "copy: the target is %U, the source is %U; they must agree", to, from);
  Py_XDECREF(from);
  Py_XDECREF(to);
  return false;
}

/* (remote tensor, local tensor): one into the other. */
static PyObject* copy_between(PyObject* args, bool in) {
  PyObject *there, *here;
  DLTensor* remote;
  FcArgs held;
  if (!PyArg_ParseTuple(args, "OO", &there, &here)) return NULL;
  FcEndpoint* ep = endpoint_of(there, &remote);
  const DLTensor* local = ep ? local_tensor(&held, here, "copy", in) : NULL;
  int rc = -1;
  if (local && same_layout(in ? local : remote, in ? remote : local) && !in && !fc_is_contiguous(local)) {
    PyErr_SetString(PyExc_ValueError, "copy: the local target must be row-major");
  } else if (local && !PyErr_Occurred()) {
    Py_BEGIN_ALLOW_THREADS rc = in ? fc_remote_copy_in(ep, remote, local)
                                   : fc_remote_copy_out(ep, remote, (uint8_t*)local->data + local->byte_offset);
    Py_END_ALLOW_THREADS if (rc < 0) fc_raise_slot();
  }
  if (local) fc_args_end(&held);
  if (ep) fc_endpoint_decref(ep);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* copy_to_remote(PyObject* Py_UNUSED(module), PyObject* args) { return copy_between(args, true); }
static PyObject* copy_from_remote(PyObject* Py_UNUSED(module), PyObject* args) { return copy_between(args, false); }

static PyObject* copy_among_remote(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *source, *target;
  DLTensor *from, *to;
  if (!PyArg_ParseTuple(args, "OO", &source, &target)) return NULL;
  FcEndpoint* ep = endpoint_of(source, &from);
  FcEndpoint* other = ep ? endpoint_of(target, &to) : NULL;
  int rc = -1;
  if (other && other != ep) PyErr_SetString(PyExc_ValueError, "copy: the tensors live on different sessions");
  if (other == ep && other && same_layout(from, to)) {
    Py_BEGIN_ALLOW_THREADS rc = fc_remote_copy_among(ep, from, to);
    Py_END_ALLOW_THREADS if (rc < 0) fc_raise_slot();
  }
  if (ep) fc_endpoint_decref(ep);
  if (other) fc_endpoint_decref(other);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

/* copy_runs(run, offsets, local, to_remote): see fc_remote_copy_runs; the offsets are bytes of int64. */
static PyObject* copy_runs(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *there, *here;
  Py_buffer offsets;
  int in, rc = -1;
  DLTensor* run;
  FcArgs held;
  if (!PyArg_ParseTuple(args, "Oy*Op:copy_runs", &there, &offsets, &here, &in)) return NULL;
  FcEndpoint* ep = endpoint_of(there, &run);
  const DLTensor* local = ep ? local_tensor(&held, here, "copy", false) : NULL;
  if (local) {
    Py_BEGIN_ALLOW_THREADS rc = fc_remote_copy_runs(ep, run, offsets.buf, offsets.len / 8, local, in);
    Py_END_ALLOW_THREADS if (rc < 0) fc_raise_slot();
    fc_args_end(&held);
  }
  if (ep) fc_endpoint_decref(ep);
  PyBuffer_Release(&offsets);
  if (rc < 0) return NULL;
  Py_RETURN_NONE;
}

/* ---- computations ---- */

static TVMFFIObject* session_function(PyObject* object) {
  TVMFFIObject* function = Py_IS_TYPE(object, &FcFunction_Type) ? ((FcFunction*)object)->object : NULL;
  if (function && fc_remote_function_of(function)) return function;
  return (TVMFFIObject*)PyErr_Format(PyExc_TypeError, "expected a Function of a session, got %R", object);
}

/* The tensor behind a farcall Tensor on the CPU, or on a session. */
static const DLTensor* operand(PyObject* object, bool remote) {
  const DLTensor* dl = PyObject_TypeCheck(object, &FcTensor_Type) ? fc_tensor_view(object) : NULL;
  if (dl && fc_device_is_remote(dl->device) == remote && fc_is_contiguous(dl)) return dl;
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "expected a row-major Tensor, got %R", object);
  return NULL;
}

/* Reads a tuple of pairs (there, here or None). */
static int read_operands(PyObject* pairs, FcRemoteOperand* out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject *there, *here;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "OO:compute_remote", &there, &here)) return -1;
    out[i] = (FcRemoteOperand){operand(there, true), here == Py_None ? NULL : operand(here, false)};
    if (!out[i].there || (here != Py_None && !out[i].here)) return -1;
  }
  return 0;
}

/* compute_remote(compute, function, inputs, pairs): see fc_remote_compute. */
static PyObject* compute_remote(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *helper, *called, *pairs;
  int inputs, rc;
  if (!PyArg_ParseTuple(args, "OOiO!:compute_remote", &helper, &called, &inputs, &PyTuple_Type, &pairs)) return NULL;
  TVMFFIObject *compute = session_function(helper), *function = compute ? session_function(called) : NULL;
  const Py_ssize_t n = PyTuple_GET_SIZE(pairs);
  if (!function) return NULL;
  if (inputs < 0 || inputs > n || n > INT32_MAX) return PyErr_Format(PyExc_ValueError, "there are %zd operands", n);
  FcRemoteOperand* operands = PyMem_Calloc((size_t)n + 1, sizeof *operands);
  if (!operands) return PyErr_NoMemory();
  if (read_operands(pairs, operands) != 0) return PyMem_Free(operands), NULL;
  Py_BEGIN_ALLOW_THREADS rc = fc_remote_compute(compute, function, operands, inputs, (int32_t)n);
  Py_END_ALLOW_THREADS PyMem_Free(operands);
  if (rc < 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

/* ---- views ---- */

/* A view of a remote tensor: its data is a handle, so only byte_offset can say where it begins. Without a dtype, that of
 * the base. */
static PyObject* remote_view(PyObject* Py_UNUSED(module), PyObject* args) {
  PyObject *base, *dims, *steps, *dtype = NULL;
  long long byte_offset;
  int64_t shape[FC_WIRE_MAX_NDIM], strides[FC_WIRE_MAX_NDIM];
  DLTensor view;
  if (!PyArg_ParseTuple(args, "O!O!O!L|O:remote_view", &FcTensor_Type, &base, &PyTuple_Type, &dims, &PyTuple_Type,
                        &steps, &byte_offset, &dtype)) {
    return NULL;
  }
  DLTensor* whole = fc_tensor_view(base);
  if (!whole) return NULL;
  view = *whole;
  if (dtype && fc_dtype_from_python(dtype, &view.dtype) != 0) return NULL;
  if (fc_read_shape(dims, shape, &view.ndim) < 0) return NULL;
  if (PyTuple_GET_SIZE(steps) != view.ndim) return PyErr_Format(PyExc_ValueError, "one stride for each dim");
  for (int32_t i = 0; i < view.ndim; ++i) {
    strides[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps, i));
    if (strides[i] == -1 && PyErr_Occurred()) return NULL;
  }
  view.shape = shape;
  view.strides = strides;
  view.byte_offset = (uint64_t)((int64_t)whole->byte_offset + byte_offset);
  FcTensorObj* tensor = fc_remote_view(((FcTensor*)base)->object, &view);
  return tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
}

PyMethodDef fc_remote_tensor_methods[] = {{"empty", (PyCFunction)endpoint_empty, METH_VARARGS, NULL},
                                          {"tensor", (PyCFunction)endpoint_tensor, METH_VARARGS, NULL},
                                          {NULL, NULL, 0, NULL}};

PyMethodDef fc_remote_tensor_functions[] = {
    {"fetch_remote", fetch_remote, METH_O, "Copy a remote Tensor into a new local one."},
    {"copy_to_remote", copy_to_remote, METH_VARARGS, "copy_to_remote(remote, local): copy local into remote."},
    {"copy_from_remote", copy_from_remote, METH_VARARGS, "copy_from_remote(remote, local): copy remote into local."},
    {"copy_among_remote", copy_among_remote, METH_VARARGS, "copy_among_remote(source, target), of one session."},
    {"copy_runs", copy_runs, METH_VARARGS, "copy_runs(run, offsets, local, to_remote): copy parts of remote memory."},
    {"compute_remote", compute_remote, METH_VARARGS,
     "compute_remote(compute, function, inputs, pairs): compute outputs on a session, in one round trip."},
    {"remote_view", remote_view, METH_VARARGS,
     "remote_view(base, shape, strides, byte_offset, dtype=None): view a remote Tensor."},
    {NULL, NULL, 0, NULL}};
