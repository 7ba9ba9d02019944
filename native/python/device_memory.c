/*
 * Device memory whose functions are methods of a Python object (farcall.ffi.DeviceMemory): a driver written in Python,
 * or the fake accelerator of farcall.testing.
 */
#include "runtime/device_memory.h"

#include <stdlib.h>

#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"

/* ---- calls of the object's methods, with or without the GIL ---- */

/* Ends a method call: takes ownership of the result, or returns -1 with the method's exception as an error. */
static int finish(PyObject* result, PyGILState_STATE state) {
  int rc = result ? 0 : -1;
  if (!result) fc_error_from_python();
  Py_XDECREF(result);
  PyGILState_Release(state);
  return rc;
}

static int attribute(void* context, int32_t index, int32_t kind, TVMFFIAny* out) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* value = PyObject_CallMethod(context, "attribute", "ii", (int)index, (int)kind);
  if (value && fc_any_from_python(value, out) != 0) Py_CLEAR(value);
  return finish(value, state);
}

static int allocate(void* context, int32_t index, uint64_t nbytes, void** address) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* value = PyObject_CallMethod(context, "allocate", "iK", (int)index, (unsigned long long)nbytes);
  if (value) *address = (void*)(uintptr_t)PyLong_AsUnsignedLongLong(value);
  if (value && PyErr_Occurred()) Py_CLEAR(value);
  return finish(value, state);
}

/* The last reference may be released after the interpreter has ended; the device has ended with it. */
static void release(void* context, int32_t index, void* address) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject* result = PyObject_CallMethod(context, "release", "iK", (int)index, (unsigned long long)(uintptr_t)address);
  if (!result) PyErr_WriteUnraisable(context);
  Py_XDECREF(result);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
}

/* `bytes` are the caller's: the method must have released its view of them when it returns. */
static PyObject* call_with_bytes(void* context, const char* method, int32_t index, uintptr_t address, void* bytes,
                                 uint64_t nbytes, int access) {
  PyObject* view = PyMemoryView_FromMemory(bytes, (Py_ssize_t)nbytes, access);
  if (!view) return NULL;
  PyObject* result = PyObject_CallMethod(context, method, "iKO", (int)index, (unsigned long long)address, view);
  PyObject* released = result ? PyObject_CallMethod(view, "release", NULL) : Py_NewRef(Py_None);
  if (!released) Py_CLEAR(result);
  Py_XDECREF(released);
  Py_DECREF(view);
  return result;
}

static int write_memory(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  PyGILState_STATE state = PyGILState_Ensure();
  return finish(call_with_bytes(context, "write", index, (uintptr_t)to, (void*)from, nbytes, PyBUF_READ), state);
}

static int read_memory(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  PyGILState_STATE state = PyGILState_Ensure();
  return finish(call_with_bytes(context, "read", index, (uintptr_t)from, to, nbytes, PyBUF_WRITE), state);
}

static int copy_memory(void* context, int32_t index, void* to, const void* from, uint64_t nbytes) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* result = PyObject_CallMethod(context, "copy", "iKKK", (int)index, (unsigned long long)(uintptr_t)to,
                                         (unsigned long long)(uintptr_t)from, (unsigned long long)nbytes);
  return finish(result, state);
}

static int synchronize(void* context, int32_t index) {
  PyGILState_STATE state = PyGILState_Ensure();
  return finish(PyObject_CallMethod(context, "synchronize", "i", (int)index), state);
}

/* ---- for Python ---- */

/* Never freed, nor is its object: tensors outlive a removal from the registry. */
static const FcDeviceMemory* memory_of(PyObject* object) {
  FcDeviceMemory* memory = malloc(sizeof *memory);
  if (!memory) return PyErr_NoMemory(), NULL;
  *memory = (FcDeviceMemory){.attribute = attribute,
                             .allocate = allocate,
                             .release = release,
                             .write = write_memory,
                             .read = read_memory,
                             .copy = copy_memory,
                             .synchronize = synchronize,
                             .context = Py_NewRef(object)};
  return memory;
}

static PyObject* set_device_memory(PyObject* module, PyObject* args) {
  int type;
  PyObject* object;
  (void)module;
  if (!PyArg_ParseTuple(args, "iO:set_device_memory", &type, &object)) return NULL;
  const FcDeviceMemory* memory = object == Py_None ? NULL : memory_of(object);
  if (object != Py_None && !memory) return NULL;
  if (fc_device_memory_set(type, memory) != 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

static PyObject* device_attribute(PyObject* module, PyObject* args) {
  PyObject* object;
  DLDevice device;
  int kind;
  TVMFFIAny out = fc_any_none();
  (void)module;
  if (!PyArg_ParseTuple(args, "Oi:device_attribute", &object, &kind)) return NULL;
  if (fc_device_from_python(object, &device) != 0) return NULL;
  const FcDeviceMemory* memory = fc_device_memory_of(device);
  if (kind == FC_DEVICE_EXISTS) return PyLong_FromLong(fc_device_is_here(device));
  if (!memory) Py_RETURN_NONE;
  if (memory->attribute(memory->context, device.device_id, kind, &out) != 0) return fc_raise_slot();
  return fc_any_to_python(&out);
}

static PyObject* synchronize_device(PyObject* module, PyObject* object) {
  DLDevice device;
  (void)module;
  if (fc_device_from_python(object, &device) != 0) return NULL;
  if (fc_device_check(device) != 0) return fc_raise_slot();
  const FcDeviceMemory* memory = fc_device_memory_of(device);
  if (memory && memory->synchronize(memory->context, device.device_id) != 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

PyMethodDef fc_device_memory_functions[] = {
    {"set_device_memory", set_device_memory, METH_VARARGS,
     "set_device_memory(device_type, memory, /)\n--\n\n"
     "Set the memory driver of a device type; None removes it. See farcall.ffi.register_device_memory."},
    {"device_attribute", device_attribute, METH_VARARGS,
     "device_attribute(device, kind, /)\n--\n\nAn attribute of a device of this process, by its number in "
     "kDevGetAttr;\nNone if the device does not have it."},
    {"synchronize_device", synchronize_device, METH_O,
     "synchronize_device(device, /)\n--\n\nWait until a device of this process has finished its work."},
    {NULL, NULL, 0, NULL}};
