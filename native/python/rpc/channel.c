/* farcall._core.Channel: channels for Python code, which runs handshakes over them and passes them to endpoints. */
#include "python/errors.h"
#include "python/rpc/channel.h"
#include "session/posix/channels.h"
#include "session/posix/mailbox.h"

#include <errno.h>

typedef struct {
  PyObject_HEAD FcChannel* channel;
} PyChannel;

static PyTypeObject Channel_Type, SharedChannel_Type, MemoryChannel_Type;

static PyObject* wrap(PyTypeObject* type, FcChannel* channel) {
  if (!channel) return fc_raise_slot();
  PyChannel* self = (PyChannel*)type->tp_alloc(type, 0);
  if (self) self->channel = channel;
  else fc_channel_decref(channel);
  return (PyObject*)self;
}

FcChannel* fc_channel_of(PyObject* object) {
  if (PyObject_TypeCheck(object, &Channel_Type)) {
    fc_channel_incref(((PyChannel*)object)->channel);
    return ((PyChannel*)object)->channel;
  }
  int fd = PyLong_Check(object) ? (int)PyLong_AsLong(object) : -1;
  if (!PyLong_Check(object)) PyErr_Format(PyExc_TypeError, "expected a Channel, got %s", Py_TYPE(object)->tp_name);
  if (PyErr_Occurred()) return NULL;
  FcChannel* channel = fc_channel_from_fds(fd, fd);
  if (!channel) fc_raise_slot();
  return channel;
}

/* ---- failures ---- */

static PyObject* failed(int error) {
  switch (error) {
    case EINTR: break; /* a signal handler raised, and its error is set */
    case ETIMEDOUT: fc_error_set("DeadlineExceededError", "the deadline of the transfer has passed"); break;
    case ECANCELED: fc_error_set("ConnectionLostError", "this process closed the channel"); break;
    case ECHILD: fc_error_set("ConnectionLostError", "the channel belongs to the process that forked this one"); break;
    case ECONNRESET: fc_error_set("ConnectionLostError", "the peer's process has ended"); break;
    case EPIPE: fc_error_set("ConnectionLostError", "the peer takes no more bytes: it has closed the channel"); break;
    case EAGAIN: fc_error_set("BlockingIOError", "the memory channel was fed no more bytes"); break;
    default: fc_error_format("ConnectionLostError", "the channel broke: %s", strerror(error));
  }
  return fc_raise_slot();
}

/* A deadline in seconds of time.monotonic(), or None. False with an exception. */
static bool read_deadline(PyObject* value, int64_t* out) {
  *out = 0;
  if (!value || value == Py_None) return true;
  double seconds = PyFloat_AsDouble(value);
  if (seconds == -1 && PyErr_Occurred()) return false;
  if (!(seconds < 9e9)) {
    PyErr_Format(PyExc_ValueError, "a deadline is a time of time.monotonic(), in seconds, got %R", value);
    return false;
  }
  *out = seconds * 1e9 > FC_AT_ONCE ? (int64_t)(seconds * 1e9) : FC_AT_ONCE;
  return true;
}

/* ---- transfers ---- */

static PyObject* channel_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"fd", "out", NULL};
  int in, out = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|i:Channel", names, &in, &out)) return NULL;
  return wrap(type, fc_channel_from_fds(in, out < 0 ? in : out));
}

static void channel_dealloc(PyChannel* self) {
  if (self->channel) fc_channel_decref(self->channel);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

static PyObject* channel_receive_into(PyChannel* self, PyObject* args) {
  PyObject* deadline = NULL;
  int64_t until;
  Py_buffer buffer;
  ptrdiff_t got = 0;
  if (!PyArg_ParseTuple(args, "w*|O:receive_into", &buffer, &deadline)) return NULL;
  bool valid = read_deadline(deadline, &until);
  if (valid && buffer.len != 0) {
    Py_BEGIN_ALLOW_THREADS got = fc_channel_receive(self->channel, buffer.buf, (size_t)buffer.len, until);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&buffer);
  if (!valid) return NULL;
  return got < 0 ? failed((int)-got) : PyLong_FromSsize_t(got);
}

static PyObject* channel_receive(PyChannel* self, PyObject* args) {
  Py_ssize_t size;
  PyObject* deadline = Py_None;
  if (!PyArg_ParseTuple(args, "n|O:receive", &size, &deadline)) return NULL;
  if (size <= 0) return PyErr_Format(PyExc_ValueError, "receive takes a number of bytes above 0, got %zd", size);
  PyObject* data = PyByteArray_FromStringAndSize(NULL, size);
  PyObject* got = data ? PyObject_CallMethod((PyObject*)self, "receive_into", "OO", data, deadline) : NULL;
  Py_ssize_t n = got ? PyLong_AsSsize_t(got) : 0;
  PyObject* result = got ? PyBytes_FromStringAndSize(PyByteArray_AS_STRING(data), n) : NULL;
  Py_XDECREF(got);
  Py_XDECREF(data);
  return result;
}

static PyObject* channel_send(PyChannel* self, PyObject* args) {
  PyObject* deadline = NULL;
  int64_t until;
  Py_buffer buffer;
  int rc = 0;
  if (!PyArg_ParseTuple(args, "y*|O:send", &buffer, &deadline)) return NULL;
  bool valid = read_deadline(deadline, &until);
  if (valid) {
    FcPart part = {buffer.buf, (size_t)buffer.len};
    Py_BEGIN_ALLOW_THREADS rc = fc_channel_send(self->channel, &part, buffer.len != 0, until);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&buffer);
  if (!valid) return NULL;
  if (rc < 0) return failed(-rc);
  Py_RETURN_NONE;
}

static PyObject* channel_finish(PyChannel* self, PyObject* Py_UNUSED(none)) {
  int rc = fc_channel_finish(self->channel);
  if (rc < 0) return failed(-rc);
  Py_RETURN_NONE;
}

static PyObject* channel_close(PyChannel* self, PyObject* Py_UNUSED(none)) {
  Py_BEGIN_ALLOW_THREADS fc_channel_close(self->channel);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject* get_closed(PyChannel* self, void* Py_UNUSED(closure)) {
  return PyBool_FromLong(fc_channel_is_closed(self->channel));
}

static PyMethodDef channel_methods[] = {{"receive", (PyCFunction)channel_receive, METH_VARARGS, NULL},
                                        {"receive_into", (PyCFunction)channel_receive_into, METH_VARARGS, NULL},
                                        {"send", (PyCFunction)channel_send, METH_VARARGS, NULL},
                                        {"finish", (PyCFunction)channel_finish, METH_NOARGS, NULL},
                                        {"close", (PyCFunction)channel_close, METH_NOARGS, NULL},
                                        {NULL, NULL, 0, NULL}};

static PyGetSetDef channel_getset[] = {{"closed", (getter)get_closed, NULL, "Whether this process closed it.", NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};

static PyTypeObject Channel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.Channel",
    .tp_basicsize = sizeof(PyChannel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "A byte stream in both directions: over a socket, or over one descriptor to read and one to write.",
    .tp_new = channel_new,
    .tp_dealloc = (destructor)channel_dealloc,
    .tp_methods = channel_methods,
    .tp_getset = channel_getset,
};

/* ---- shared memory ---- */

static PyObject* shared_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"line", "memory", "accepting", NULL};
  PyChannel* line;
  int memory, accepting = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!i|$p:SharedChannel", names, &Channel_Type, &line, &memory,
                                   &accepting)) {
    return NULL;
  }
  if (fc_channel_fd(line->channel) < 0) return PyErr_Format(PyExc_TypeError, "line: expected a socket's channel");
  return wrap(type, fc_shared_channel_new(line->channel, memory, accepting));
}

static PyTypeObject SharedChannel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.SharedChannel",
    .tp_basicsize = sizeof(PyChannel),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A channel over two rings in a memory file; `line` is the socket over which the file was sent.",
    .tp_base = &Channel_Type,
    .tp_new = shared_new,
};

/* ---- memory ---- */

static PyObject* memory_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {NULL};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":MemoryChannel", names)) return NULL;
  return wrap(type, fc_memory_channel_new());
}

static PyObject* memory_feed(PyChannel* self, PyObject* data) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE) < 0) return NULL;
  int rc = fc_memory_channel_feed(self->channel, buffer.buf, (size_t)buffer.len);
  PyBuffer_Release(&buffer);
  if (rc < 0) return fc_raise_slot();
  Py_RETURN_NONE;
}

static PyObject* memory_feed_end(PyChannel* self, PyObject* Py_UNUSED(none)) {
  fc_memory_channel_feed_end(self->channel);
  Py_RETURN_NONE;
}

static PyObject* memory_take(PyChannel* self, PyObject* Py_UNUSED(none)) {
  size_t n;
  uint8_t* data = fc_memory_channel_take(self->channel, &n);
  PyObject* bytes = PyBytes_FromStringAndSize((const char*)data, (Py_ssize_t)n);
  free(data);
  return bytes;
}

static PyMethodDef memory_methods[] = {{"feed", (PyCFunction)memory_feed, METH_O, NULL},
                                       {"feed_end", (PyCFunction)memory_feed_end, METH_NOARGS, NULL},
                                       {"take", (PyCFunction)memory_take, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static PyTypeObject MemoryChannel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.MemoryChannel",
    .tp_basicsize = sizeof(PyChannel),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A channel in memory: receive() returns the bytes of feed(), and take() returns those of send().",
    .tp_base = &Channel_Type,
    .tp_new = memory_new,
    .tp_methods = memory_methods,
};

/* ---- mailboxes ---- */

typedef struct {
  PyObject_HEAD FcMailbox* box;
} PyMailbox;

static PyObject* mailbox_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"path", "serving", NULL};
  PyObject* path;
  int serving = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|$p:Mailbox", names, PyUnicode_FSConverter, &path, &serving)) {
    return NULL;
  }
  FcMailbox* box = fc_mailbox_open(PyBytes_AS_STRING(path), serving);
  Py_DECREF(path);
  if (!box) return fc_raise_slot();
  PyMailbox* self = (PyMailbox*)type->tp_alloc(type, 0);
  if (self) self->box = box;
  else fc_mailbox_decref(box);
  return (PyObject*)self;
}

static void mailbox_dealloc(PyMailbox* self) {
  if (self->box) fc_mailbox_decref(self->box);
  Py_TYPE(self)->tp_free((PyObject*)self);
}

static PyObject* mailbox_meet(PyMailbox* self, PyObject* args) {
  PyObject* deadline = NULL;
  int64_t until;
  int rc;
  if (!PyArg_ParseTuple(args, "|O:meet", &deadline) || !read_deadline(deadline, &until)) return NULL;
  Py_BEGIN_ALLOW_THREADS rc = fc_mailbox_meet(self->box, until);
  Py_END_ALLOW_THREADS if (rc == 0) return wrap(&Channel_Type, fc_mailbox_channel(self->box));
  if (rc == -ECONNREFUSED) fc_error_set("ConnectError", "no server has the mailbox open");
  else if (rc == -EBUSY) fc_error_set("ConnectTimeoutError", "another client uses the mailbox");
  else return failed(-rc);
  return fc_raise_slot();
}

static PyObject* mailbox_interrupt(PyMailbox* self, PyObject* Py_UNUSED(none)) {
  fc_mailbox_interrupt(self->box);
  Py_RETURN_NONE;
}

static PyObject* mailbox_remove(PyMailbox* self, PyObject* path) {
  PyObject* name;
  if (!PyUnicode_FSConverter(path, &name)) return NULL;
  fc_mailbox_remove(self->box, PyBytes_AS_STRING(name));
  Py_DECREF(name);
  Py_RETURN_NONE;
}

static PyMethodDef mailbox_methods[] = {{"meet", (PyCFunction)mailbox_meet, METH_VARARGS, NULL},
                                        {"interrupt", (PyCFunction)mailbox_interrupt, METH_NOARGS, NULL},
                                        {"remove", (PyCFunction)mailbox_remove, METH_O, NULL},
                                        {NULL, NULL, 0, NULL}};

static PyTypeObject Mailbox_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "farcall._core.Mailbox",
    .tp_basicsize = sizeof(PyMailbox),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A file through which a server and its clients, one after another, exchange the bytes of sessions.",
    .tp_new = mailbox_new,
    .tp_dealloc = (destructor)mailbox_dealloc,
    .tp_methods = mailbox_methods,
};

int fc_channel_types_init(PyObject* module) {
  PyTypeObject* const types[] = {&Channel_Type, &SharedChannel_Type, &MemoryChannel_Type, &Mailbox_Type};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (PyModule_AddType(module, types[i]) != 0) return -1;
  }
  return 0;
}
