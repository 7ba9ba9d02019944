/* DLPack export: farcall's tensors for other frameworks, by capsules and by a C exchange API. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"

/* ---- export of capsules ---- */

/* A consumer renames the capsule when it takes ownership; a capsule with its first name still owns the tensor. */
static void versioned_destructor(PyObject* capsule) {
  DLManagedTensorVersioned* managed =
      PyCapsule_IsValid(capsule, FC_CAPSULE) ? PyCapsule_GetPointer(capsule, FC_CAPSULE) : NULL;
  if (managed && managed->deleter) managed->deleter(managed);
}

static void legacy_destructor(PyObject* capsule) {
  DLManagedTensor* managed =
      PyCapsule_IsValid(capsule, FC_CAPSULE_LEGACY) ? PyCapsule_GetPointer(capsule, FC_CAPSULE_LEGACY) : NULL;
  if (managed && managed->deleter) managed->deleter(managed);
}

static PyObject* versioned_capsule(TVMFFIObject* tensor) {
  DLManagedTensorVersioned* managed = fc_tensor_to_managed(tensor);
  if (!managed) return fc_raise_slot();
  PyObject* capsule = PyCapsule_New(managed, FC_CAPSULE, versioned_destructor);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

static PyObject* legacy_capsule(TVMFFIObject* tensor) {
  if (fc_tensor_flags(tensor) & DLPACK_FLAG_BITMASK_READ_ONLY) {
    PyErr_SetString(PyExc_BufferError,
                    "the tensor is read-only, and DLPack before 1.0 cannot say so; pass max_version=(1, 0)");
    return NULL;
  }
  DLManagedTensor* managed = fc_tensor_to_legacy(tensor);
  if (!managed) return fc_raise_slot();
  PyObject* capsule = PyCapsule_New(managed, FC_CAPSULE_LEGACY, legacy_destructor);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

static PyObject* copied(PyObject* self, PyObject* max_version) {
  DLDevice device = fc_tensor_view(self)->device;
  PyObject* shared = fc_device_is_remote(device) ? fc_remote_to_numpy(self) : PyObject_CallMethod(self, "numpy", NULL);
  PyObject* array = shared ? PyObject_CallMethod(shared, "copy", NULL) : NULL;
  PyObject* method = array ? PyObject_GetAttrString(array, "__dlpack__") : NULL;
  PyObject* none = PyTuple_New(0);
  PyObject* kwargs = max_version == Py_None ? NULL : Py_BuildValue("{sO}", "max_version", max_version);
  PyObject* capsule = method && none ? PyObject_Call(method, none, kwargs) : NULL;
  Py_XDECREF(shared);
  Py_XDECREF(array);
  Py_XDECREF(method);
  Py_XDECREF(none);
  Py_XDECREF(kwargs);
  return capsule;
}

/* A consumer may ask only for the device that holds the memory. */
static int check_device(PyObject* wanted, DLDevice device) {
  int type, id;
  if (wanted == Py_None) return 0;
  if (!PyArg_ParseTuple(wanted, "ii;dl_device must be (device_type, device_id)", &type, &id)) return -1;
  if (type == (int)device.device_type && id == device.device_id) return 0;
  PyErr_Format(PyExc_BufferError, "the tensor is on device (%d, %d), not on (%d, %d); copy it there first",
               (int)device.device_type, device.device_id, type, id);
  return -1;
}

PyObject* fc_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"stream", "max_version", "dl_device", "copy", NULL};
  PyObject *stream = Py_None, *max_version = Py_None, *wanted = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &wanted, &copy)) {
    return NULL;
  }
  DLTensor* dl = fc_tensor_view(self);
  int major = 0, minor = 0;
  if (!dl) return NULL;
  if (max_version != Py_None &&
      !PyArg_ParseTuple(max_version, "ii;max_version must be (major, minor)", &major, &minor)) {
    return NULL;
  }
  bool remote = fc_device_is_remote(dl->device);
  DLDevice device = remote ? (DLDevice){kDLCPU, 0} : dl->device;
  if (check_device(wanted, device) != 0) return NULL;
  if (remote || copy == Py_True) return copied(self, max_version);
  ((FcTensor*)self)->exported = 1;
  TVMFFIObject* tensor = ((FcTensor*)self)->object;
  return major >= 1 ? versioned_capsule(tensor) : legacy_capsule(tensor);
}

/* ---- farcall's exchange API, for fast reads by other frameworks ---- */

static int own_allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                        void (*set_error)(void*, const char*, const char*)) {
  FcTensorObj* tensor = prototype->device.device_type == kDLCPU ? fc_tensor_alloc(prototype) : NULL;
  *out = tensor ? fc_tensor_to_managed(&tensor->header) : NULL;
  if (tensor) fc_decref(tensor);
  if (*out) return 0;
  set_error(context, "MemoryError", "out of memory, or not a CPU device: farcall allocates on the CPU only");
  return -1;
}

static DLTensor* own_local(PyObject* object) {
  if (!Py_IS_TYPE(object, &FcTensor_Type)) {
    PyErr_Format(PyExc_TypeError, "expected a farcall.Tensor, got `%s`", Py_TYPE(object)->tp_name);
    return NULL;
  }
  DLTensor* dl = fc_tensor_view(object);
  if (!dl || !fc_device_is_remote(dl->device)) return dl;
  PyErr_SetString(PyExc_BufferError, "the tensor is on another machine; fetch it by .numpy()");
  return NULL;
}

static int own_from_python(void* object, DLManagedTensorVersioned** out) {
  if (!own_local(object)) return -1;
  *out = fc_tensor_to_managed(((FcTensor*)object)->object);
  ((FcTensor*)object)->exported = 1;
  return *out ? 0 : (fc_raise_slot(), -1);
}

static int own_to_python(DLManagedTensorVersioned* managed, void** out) {
  FcTensorObj* tensor = fc_tensor_from_managed(managed);
  *out = tensor ? fc_tensor_wrap(&tensor->header) : fc_raise_slot();
  return *out ? 0 : -1;
}

static int own_view(void* object, DLTensor* out) {
  DLTensor* dl = own_local(object);
  if (dl) *out = *dl;
  return dl ? 0 : -1;
}

static int own_stream(DLDeviceType device_type, int32_t device_id, void** out) {
  *out = TVMFFIEnvGetStream((int32_t)device_type, device_id);
  return 0;
}

static DLPackExchangeAPI own_api = {
    .header = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .prev_api = NULL},
    .managed_tensor_allocator = own_allocate,
    .managed_tensor_from_py_object_no_sync = own_from_python,
    .managed_tensor_to_py_object_no_sync = own_to_python,
    .dltensor_from_py_object_no_sync = own_view,
    .current_work_stream = own_stream,
};

int fc_dlpack_init(void) {
  PyObject* capsule = PyCapsule_New(&own_api, "dlpack_exchange_api", NULL);
  if (!capsule) return -1;
  int rc = PyDict_SetItemString(FcTensor_Type.tp_dict, "__dlpack_c_exchange_api__", capsule);
  Py_DECREF(capsule);
  PyType_Modified(&FcTensor_Type);
  return rc;
}
