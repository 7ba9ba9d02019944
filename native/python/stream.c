/*
 * Streams. TVMFFIEnvGetStream returns the stream that was set for the device (use_stream), else the current stream of
 * the framework of the call's tensors, else the default stream (NULL).
 */
#include "python/convert.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/init.h"

/* Takes the GIL, because the framework may raise; calls whose kernel does not ask pay nothing. */
static TVMFFIStreamHandle framework_stream(int32_t device_type, int32_t device_id) {
  const DLPackExchangeAPI* exchange = fc_thread.exchange;
  void* stream = NULL;
  PyGILState_STATE state;
  if (!exchange->current_work_stream || !fc_gil_take(&state)) return NULL;
  FC_BEGIN_STOP_UNWINDING;
  if (exchange->current_work_stream((DLDeviceType)device_type, device_id, &stream) != 0) {
    PyErr_Clear(); /* the framework does not know the device: use the default stream */
    stream = NULL;
  }
  PyGILState_Release(state);
  FC_END_STOP_UNWINDING;
  return stream;
}

void fc_streams_init(void) { fc_framework_stream = framework_stream; }

static PyObject* get_stream(PyObject* module, PyObject* object) {
  DLDevice device;
  (void)module;
  if (fc_device_from_python(object, &device) != 0) return NULL;
  return PyLong_FromVoidPtr(TVMFFIEnvGetStream((int32_t)device.device_type, device.device_id));
}

static PyObject* set_stream(PyObject* module, PyObject* args) {
  PyObject *object, *handle;
  DLDevice device;
  TVMFFIStreamHandle old = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "OO:set_stream", &object, &handle)) return NULL;
  if (fc_device_from_python(object, &device) != 0) return NULL;
  TVMFFIStreamHandle stream = PyLong_AsVoidPtr(handle);
  if (!stream && PyErr_Occurred()) return NULL;
  if (TVMFFIEnvSetStream((int32_t)device.device_type, device.device_id, stream, &old) != 0) return fc_raise_slot();
  return PyLong_FromVoidPtr(old);
}

PyMethodDef fc_stream_functions[] = {
    {"get_stream", get_stream, METH_O,
     "get_stream(device, /)\n--\n\nThe handle of the stream that this thread set for a device; 0 if it set none."},
    {"set_stream", set_stream, METH_VARARGS,
     "set_stream(device, handle, /)\n--\n\n"
     "Set this thread's stream of a device, and return the handle of the previous one. Prefer use_stream()."},
    {NULL, NULL, 0, NULL},
};
