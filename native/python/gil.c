#include "python/gil.h"

#include <time.h>

bool fc_interpreter_runs(void) { return Py_IsInitialized() && !FC_IS_FINALIZING; }

void fc_wait_for_exit(void* unused) {
  (void)unused;
  while (!fc_interpreter_runs()) nanosleep(&(struct timespec){.tv_sec = 3600}, NULL);
}

bool fc_gil_take(PyGILState_STATE* state) {
  if (!fc_interpreter_runs()) return false;
  FC_BEGIN_STOP_UNWINDING;
  *state = PyGILState_Ensure();
  FC_END_STOP_UNWINDING;
  return true;
}

void fc_drop_anywhere(void* object) {
  PyGILState_STATE state;
  if (!fc_gil_take(&state)) return;
  FC_BEGIN_STOP_UNWINDING; /* the object's __del__ may be Python code */
  Py_DECREF((PyObject*)object);
  PyGILState_Release(state);
  FC_END_STOP_UNWINDING;
}

void fc_drop_context(FcTensorObj* tensor) { fc_drop_anywhere(tensor->context); }
