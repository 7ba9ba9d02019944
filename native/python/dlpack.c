/* DLPack import: tensors of other frameworks, by capsules and by the C exchange API. */
#include "python/args.h"
#include "python/convert.h"
#include "python/errors.h"

/*
 * Turns a framework's refusal into a BufferError. torch (for sparse, meta and quantised tensors) and jax (for deleted
 * arrays and int4) raise RuntimeError or a subclass, whose first line gives the reason; the other lines are
 * addresses. Always returns -1.
 */
static FC_COLD int refused(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* text = value ? PyObject_Str(value) : NULL;
  PyObject* lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
  PyErr_Clear();
  bool theirs = type && PyErr_GivenExceptionMatches(type, PyExc_RuntimeError) &&
                !PyErr_GivenExceptionMatches(type, PyExc_RecursionError);
  if (type && !theirs) {
    PyErr_Restore(type, value, traceback);
    type = value = traceback = NULL;
  } else if (lines && PyList_GET_SIZE(lines)) {
    PyErr_Format(PyExc_BufferError, "the framework does not give the tensor's memory out: %U",
                 PyList_GET_ITEM(lines, 0));
  } else {
    PyErr_SetString(PyExc_BufferError, "the framework does not give the tensor's memory out");
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  Py_XDECREF(text);
  Py_XDECREF(lines);
  return -1;
}

/* ---- import of capsules ---- */

/* Calls __dlpack__ with max_version, and without it where the method does not accept that argument. */
static PyObject* capsule_of(PyObject* object) {
  PyObject* method = PyObject_GetAttrString(object, "__dlpack__");
  if (!method) return NULL;
  PyObject* none = PyTuple_New(0);
  PyObject* kwargs = Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  PyObject* capsule = none && kwargs ? PyObject_Call(method, none, kwargs) : NULL;
  if (!capsule && none && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(method);
  }
  if (!capsule) refused();
  Py_XDECREF(none);
  Py_XDECREF(kwargs);
  Py_DECREF(method);
  return capsule;
}

static FC_COLD int bad_capsule(PyObject* capsule) {
  const char* name = PyCapsule_CheckExact(capsule) ? PyCapsule_GetName(capsule) : NULL;
  if (name && strncmp(name, "used_", 5) == 0) {
    PyErr_SetString(PyExc_ValueError, "the DLPack capsule was consumed already; ask for a new one");
  } else {
    PyErr_Format(PyExc_TypeError, "expected a DLPack capsule, got %R", capsule);
  }
  return -1;
}

static int check_versioned(const DLManagedTensorVersioned* managed) {
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    PyErr_Format(PyExc_BufferError, "the tensor is described by DLPack %u.%u; farcall reads %d.x",
                 managed->version.major, managed->version.minor, DLPACK_MAJOR_VERSION);
    return -1;
  }
  if (managed->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) {
    PyErr_SetString(PyExc_BufferError, "tensors with padded sub-byte elements are not supported; pack them");
    return -1;
  }
  return 0;
}

/* The DLTensor inside a capsule, which stays its owner, and its DLPACK_FLAG_*. */
static int peek(PyObject* capsule, DLTensor** out, uint64_t* flags) {
  if (PyCapsule_IsValid(capsule, FC_CAPSULE)) {
    DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, FC_CAPSULE);
    *out = &managed->dl_tensor;
    *flags = managed->flags;
    return check_versioned(managed);
  }
  if (!PyCapsule_IsValid(capsule, FC_CAPSULE_LEGACY)) return bad_capsule(capsule);
  *flags = 0;
  *out = &((DLManagedTensor*)PyCapsule_GetPointer(capsule, FC_CAPSULE_LEGACY))->dl_tensor;
  return 0;
}

static TVMFFIObject* consume(PyObject* capsule) {
  DLTensor* dl;
  uint64_t flags;
  if (peek(capsule, &dl, &flags) != 0) return NULL;
  bool versioned = PyCapsule_IsValid(capsule, FC_CAPSULE);
  void* managed = PyCapsule_GetPointer(capsule, versioned ? FC_CAPSULE : FC_CAPSULE_LEGACY);
  FcTensorObj* tensor = versioned ? fc_tensor_from_managed(managed) : fc_tensor_from_legacy(managed);
  if (!tensor) return (TVMFFIObject*)fc_raise_slot();
  PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor");
  return &tensor->header;
}

/* ---- the exchange API of another framework ---- */

/* The exchange table of a class, if farcall reads its version; else NULL without an exception. */
static const DLPackExchangeAPI* exchange_of(PyTypeObject* type) {
  PyObject* capsule = PyObject_GetAttrString((PyObject*)type, "__dlpack_c_exchange_api__");
  const DLPackExchangeAPI* api = NULL;
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  }
  PyErr_Clear();
  Py_XDECREF(capsule); /* a class never frees its table */
  while (api && api->header.version.major != DLPACK_MAJOR_VERSION) api = (const DLPackExchangeAPI*)api->header.prev_api;
  return api && api->managed_tensor_from_py_object_no_sync ? api : NULL;
}

/*
 * torch conjugates and negates lazily, by a bit on the tensor that its DLTensor does not show. Only complex tensors
 * can have the first bit, and only views of imaginary parts the second. In such a view no elements are adjacent: if
 * the innermost axis with more than one element has a stride of 1, the tensor is not one.
 */
static int check_bit(PyObject* object, const char* method, const char* cure) {
  PyObject* answer = PyObject_CallMethod(object, method, NULL);
  int bit = answer ? PyObject_IsTrue(answer) : 0;
  Py_XDECREF(answer);
  PyErr_Clear(); /* another framework, without such bits */
  if (bit <= 0) return 0;
  PyErr_Format(PyExc_BufferError, "the tensor's values differ from its memory (%s); pass x.%s()", method, cure);
  return -1;
}

static FC_COLD int check_bits(PyObject* object, const DLTensor* dl) {
  if (dl->dtype.code == kDLComplex) return check_bit(object, "is_conj", "resolve_conj");
  return dl->dtype.code == kDLFloat ? check_bit(object, "is_neg", "resolve_neg") : 0;
}

static inline int check_lazy(PyObject* object, const DLTensor* dl) {
  int32_t d = dl->ndim - 1;
  while (d >= 0 && dl->shape[d] == 1) --d;
  bool dense = d >= 0 && (!dl->strides || dl->strides[d] == 1);
  return FC_LIKELY(dense && dl->dtype.code != kDLComplex) ? 0 : check_bits(object, dl);
}

static TVMFFIObject* exchange_import(const DLPackExchangeAPI* api, PyObject* object) {
  DLManagedTensorVersioned* managed = NULL;
  if (api->managed_tensor_from_py_object_no_sync(object, &managed) != 0 || !managed) {
    refused();
    return NULL;
  }
  bool good = check_versioned(managed) == 0 && check_lazy(object, &managed->dl_tensor) == 0;
  FcTensorObj* tensor = good ? fc_tensor_from_managed(managed) : NULL;
  if (tensor) return &tensor->header;
  if (managed->deleter) managed->deleter(managed);
  return PyErr_Occurred() ? NULL : (TVMFFIObject*)fc_raise_slot();
}

TVMFFIObject* fc_tensor_import(PyObject* object) {
  if (Py_IS_TYPE(object, &FcTensor_Type)) {
    if (!fc_tensor_view(object)) return NULL;
    fc_incref(((FcTensor*)object)->object);
    return ((FcTensor*)object)->object;
  }
  if (PyCapsule_CheckExact(object)) return consume(object);
  FcSetter made;
  const FcSetter* setter = fc_setter_of(object, &made); /* knows the type's exchange API */
  if (!setter) PyErr_Clear();
  if (setter && setter->exchange) return exchange_import(setter->exchange, object);
  if (fc_numpy_is_array(object)) return fc_numpy_import(object);
  if (PyErr_Occurred()) return NULL;
  PyObject* capsule = capsule_of(object);
  TVMFFIObject* tensor = capsule ? consume(capsule) : NULL;
  Py_XDECREF(capsule);
  if (tensor && setter && setter->immutable) ((FcTensorObj*)tensor)->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  if (!tensor && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Format(
        PyExc_TypeError,
        "from_dlpack: expected a tensor or a DLPack capsule, got `%s`; numpy.asarray makes an array of numbers, "
        "lists and buffers",
        Py_TYPE(object)->tp_name);
  }
  return tensor;
}

/* ---- setters ---- */

/* Producers before DLPack 1.2 leave out the strides of row-major tensors; kernels may rely on them. */
static int fill_strides(FcArgs* args, int32_t i, DLTensor* dl) {
  if (dl->strides || dl->ndim == 0) return 0;
  if (dl->ndim > FC_INLINE_DIMS) {
    PyErr_Format(PyExc_ValueError, "a tensor of %d dims without strides is not supported", dl->ndim);
    return -1;
  }
  dl->strides = fc_dims_of(args, i);
  fc_row_major(dl->ndim, dl->shape, dl->strides);
  return 0;
}

static inline void note_exchange(FcArgs* args, const DLPackExchangeAPI* api) {
  args->seen |= FC_SEEN_EXCHANGE;
  if (FC_UNLIKELY(args->exchange && args->exchange != api)) args->seen |= FC_SEEN_OTHER;
  args->exchange = api;
}

static int set_imported(FcArgs* args, const DLPackExchangeAPI* api, PyObject* object, TVMFFIAny* out) {
  TVMFFIObject* tensor = exchange_import(api, object);
  return tensor ? fc_give_object(args, tensor, out) : -1;
}

/* Copies the dims: the framework may change its tensor's, and a Tensor object's must not change. */
static int lend_exchange(FcArgs* args, const DLPackExchangeAPI* api, PyObject* object, TVMFFIAny* out) {
  FcTensorObj* tensor = fc_pool_take();
  if (FC_UNLIKELY(!tensor)) return -1;
  DLTensor* dl = &tensor->dl;
  if (FC_UNLIKELY(api->dltensor_from_py_object_no_sync(object, dl) != 0 || dl->ndim > FC_INLINE_DIMS)) {
    fc_pool_put(tensor);
    return PyErr_Occurred() ? refused() : set_imported(args, api, object, out);
  }
  if (FC_UNLIKELY(check_lazy(object, dl) != 0)) {
    fc_pool_put(tensor);
    return -1;
  }
  int64_t* shape = fc_pool_dims(tensor);
  int64_t* strides = shape + FC_INLINE_DIMS;
  for (int32_t d = 0; d < dl->ndim; ++d) shape[d] = dl->shape[d];
  if (FC_UNLIKELY(!dl->strides)) {
    fc_row_major(dl->ndim, shape, strides);
  } else {
    for (int32_t d = 0; d < dl->ndim; ++d) strides[d] = dl->strides[d];
  }
  dl->shape = shape;
  dl->strides = strides;
  tensor->flags = 0;
  return fc_lend(args, tensor, object, out);
}

static int set_exchange(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  const DLPackExchangeAPI* api = setter->exchange;
  note_exchange(args, api);
  if (FC_UNLIKELY(fc_owned_mode(args) || !api->dltensor_from_py_object_no_sync)) {
    return set_imported(args, api, object, out);
  }
  if (!fc_wants_view(args, i)) return lend_exchange(args, api, object, out);
  DLTensor* dl = &args->slots[i].dl;
  if (FC_UNLIKELY(api->dltensor_from_py_object_no_sync(object, dl) != 0)) return refused();
  if (FC_UNLIKELY(check_lazy(object, dl) != 0)) return -1;
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = dl;
  return FC_LIKELY(dl->strides != NULL) ? 0 : fill_strides(args, i, dl);
}

int fc_set_dlpack(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  fc_note_importer(args, setter->importer);
  if (fc_check_writes(args, i, setter->immutable) != 0) return -1;
  if (fc_owned_mode(args) || !fc_wants_view(args, i)) {
    TVMFFIObject* tensor = fc_tensor_import(object);
    return tensor ? fc_give_object(args, tensor, out) : -1;
  }
  PyObject* capsule = capsule_of(object);
  DLTensor* dl = NULL;
  uint64_t flags = 0;
  if (!capsule) return -1;
  if (fc_args_keep(args, fc_release_python, capsule) != 0 || peek(capsule, &dl, &flags) != 0) return -1;
  if (fc_check_writes(args, i, flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) return -1;
  args->slots[i].dl = *dl;
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = &args->slots[i].dl;
  return fill_strides(args, i, &args->slots[i].dl);
}

/* The importer of results: from_dlpack of the class's array API namespace (jax, cupy, and others). */
static PyObject* importer_of(PyObject* object) {
  PyObject* space = PyObject_CallMethod(object, "__array_namespace__", NULL);
  PyObject* importer = space ? PyObject_GetAttrString(space, "from_dlpack") : NULL;
  PyErr_Clear();
  Py_XDECREF(space);
  return importer;
}

/* jax arrays must not be written to, which neither jax's capsules nor the array API say. */
static bool is_immutable(PyTypeObject* type) {
  return strncmp(type->tp_name, "jax.", 4) == 0 || strncmp(type->tp_name, "jaxlib.", 7) == 0;
}

int fc_choose_tensor(PyTypeObject* type, PyObject* object, FcSetter* out) {
  out->exchange = exchange_of(type);
  if (out->exchange) {
    out->set = set_exchange;
    return 1;
  }
  if (!PyObject_HasAttrString((PyObject*)type, "__dlpack__")) return 0;
  out->importer = importer_of(object);
  out->immutable = is_immutable(type);
  out->set = fc_buffer_setter(type);
  if (!out->set) out->set = fc_set_dlpack;
  return 1;
}
