/* The runtime's time evaluator for Python. */
#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"
#include "runtime/evaluator.h"

static TVMFFIObject* function_of(PyObject* object) {
  if (Py_IS_TYPE(object, &FcFunction_Type) && ((FcFunction*)object)->object) return ((FcFunction*)object)->object;
  PyErr_Format(PyExc_TypeError, "time_evaluator: expected a Function, got `%s`", Py_TYPE(object)->tp_name);
  return NULL;
}

static PyObject* time_evaluator(PyObject* module, PyObject* args) {
  PyObject *function, *before;
  FcEvaluator wanted = {0};
  (void)module;
  if (!PyArg_ParseTuple(args, "OOLLLLLLL:time_evaluator", &function, &before, &wanted.number, &wanted.repeat,
                        &wanted.min_repeat_ms, &wanted.zero_limit, &wanted.cooldown_ms, &wanted.repeats_to_cooldown,
                        &wanted.flush_bytes)) {
    return NULL;
  }
  wanted.function = function_of(function);
  if (wanted.function && before != Py_None) wanted.before = function_of(before);
  if (!wanted.function || (before != Py_None && !wanted.before)) return NULL;
  TVMFFIObjectHandle made = NULL;
  if (fc_evaluator_new(&wanted, &made) != 0) return fc_raise_slot();
  PyObject* name = PyUnicode_FromFormat("time of %U", ((FcFunction*)function)->name);
  PyObject* wrapped = name ? fc_function_wrap(made, name) : NULL;
  Py_XDECREF(name);
  return wrapped;
}

PyMethodDef fc_timing_functions[] = {
    {"time_evaluator", time_evaluator, METH_VARARGS,
     "time_evaluator(function, before, number, repeat, min_repeat_ms, limit_zero_time_iterations, "
     "cooldown_interval_ms,\n               repeats_to_cooldown, cache_flush_bytes, /)\n--\n\n"
     "A Function that times `function` with its arguments, and returns seconds per call as bytes of doubles."},
    {NULL, NULL, 0, NULL}};
