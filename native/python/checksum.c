/* The checksum of artifacts, of buffers one after another. */
#include "runtime/checksum.h"

#include "python/init.h"

static int add(FcChecksum* sum, PyObject* piece) {
  Py_buffer view;
  if (PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE) != 0) return -1;
  Py_BEGIN_ALLOW_THREADS;
  fc_checksum_add(sum, view.buf, (size_t)view.len);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  return 0;
}

static PyObject* checksum(PyObject* module, PyObject* const* pieces, Py_ssize_t count) {
  (void)module;
  FcChecksum sum;
  unsigned char out[FC_CHECKSUM_SIZE];
  fc_checksum_begin(&sum);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (add(&sum, pieces[i]) != 0) return NULL;
  }
  fc_checksum_end(&sum, out);
  return PyBytes_FromStringAndSize((const char*)out, sizeof out);
}

PyMethodDef fc_checksum_functions[] = {
    {"checksum", (PyCFunction)(void (*)(void))checksum, METH_FASTCALL,
     "checksum(*pieces)\n--\n\n"
     "The checksum of an artifact (docs/spec/artifact.md), 16 bytes, of buffers as if they were one."},
    {NULL, NULL, 0, NULL},
};
