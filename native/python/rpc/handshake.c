/* The handshake for Python: include/farcall/handshake.h, with its outcome by name. */
#include <farcall/handshake.h>

#include "python/init.h"

static const char* const outcomes[] = {
    [FC_HANDSHAKE_DONE] = "done",           [FC_HANDSHAKE_MORE] = "more",
    [FC_HANDSHAKE_E_MAGIC] = "magic",       [FC_HANDSHAKE_E_SIZE] = "size",
    [FC_HANDSHAKE_E_PREFIX] = "prefix",     [FC_HANDSHAKE_E_TIMEOUT] = "timeout",
    [FC_HANDSHAKE_E_MISMATCH] = "mismatch", [FC_HANDSHAKE_E_DUPLICATE] = "duplicate",
};

static PyObject* read_hello(PyObject* Py_UNUSED(module), PyObject* args) {
  const char* bytes;
  Py_ssize_t n, max_key;
  size_t need;
  fc_hello hello = {.timeout_ns = 0};
  if (!PyArg_ParseTuple(args, "y#n:read_hello", &bytes, &n, &max_key)) return NULL;
  fc_handshake_status status = fc_hello_read((const uint8_t*)bytes, (size_t)n, (size_t)max_key, &need, &hello);
  return Py_BuildValue("(sny#y#y#L)", outcomes[status], (Py_ssize_t)need, hello.key.data, (Py_ssize_t)hello.key.size,
                       hello.token.data, (Py_ssize_t)hello.token.size, hello.timeout.data,
                       (Py_ssize_t)hello.timeout.size, (long long)hello.timeout_ns);
}

static PyObject* read_welcome(PyObject* Py_UNUSED(module), PyObject* args) {
  const char* bytes;
  Py_ssize_t n, max_key;
  size_t need;
  fc_handshake_text key = {"", 0};
  if (!PyArg_ParseTuple(args, "y#n:read_welcome", &bytes, &n, &max_key)) return NULL;
  fc_handshake_status status = fc_welcome_read((const uint8_t*)bytes, (size_t)n, (size_t)max_key, &need, &key);
  return Py_BuildValue("(sny#)", outcomes[status], (Py_ssize_t)need, key.data, (Py_ssize_t)key.size);
}

PyMethodDef fc_handshake_functions[] = {
    {"read_hello", read_hello, METH_VARARGS,
     "read_hello(data, max_key_bytes, /)\n--\n\n"
     "Read a connector's hello: (outcome, bytes needed in all, key, token, timeout, timeout in ns)."},
    {"read_welcome", read_welcome, METH_VARARGS,
     "read_welcome(data, max_key_bytes, /)\n--\n\nRead an acceptor's answer: (outcome, bytes needed in all, key)."},
    {NULL, NULL, 0, NULL}};
