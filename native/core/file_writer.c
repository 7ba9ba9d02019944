/* The function by which a server stores a file that it was sent: from the packet to the disk without a copy. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core.h"

static int failed(const char* what, const char* name) {
  int error = errno;
  fc_error_format("OSError", "%s of file '%.80s': %s", what, name, strerror(error));
  return -1;
}

/* Part of a file of `total` bytes: all of it, or what comes at `offset`. */
typedef struct Piece {
  const char* name; /* for messages */
  TVMFFIByteArray data;
  int64_t offset, total;
} Piece;

static int write_all(int fd, const Piece* piece) {
  const char* data = piece->data.data;
  size_t left = piece->data.size;
  off_t at = piece->offset;
  while (left != 0) {
    ssize_t written = pwrite(fd, data, left, at);
    if (written < 0 && errno != EINTR) return failed("writing", piece->name);
    if (written < 0) continue;
    data += written;
    at += written;
    left -= (size_t)written;
  }
  return 0;
}

/* Beside, and renamed with the last piece: a library that is loaded keeps its old file. */
static int store(const char* path, const Piece* piece) {
  const char* slash = strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash - path) + 1 : 0, room = strlen(path) + 8;
  char* beside = malloc(room);
  if (!beside) {
    fc_error_no_memory();
    return -1;
  }
  snprintf(beside, room, "%.*s.%s.part", (int)folder, path, path + folder);
  int fd = open(beside, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (piece->offset == 0 ? O_TRUNC : 0), 0700);
  int rc = fd < 0 ? failed("opening", piece->name) : write_all(fd, piece);
  if (fd >= 0 && close(fd) < 0 && rc == 0) rc = failed("closing", piece->name);
  bool last = piece->offset + (int64_t)piece->data.size == piece->total;
  if (rc == 0 && last && rename(beside, path) < 0) rc = failed("renaming", piece->name);
  if (rc != 0 && fd >= 0) unlink(beside);
  free(beside);
  return rc;
}

static bool read_bytes(const TVMFFIAny* any, TVMFFIByteArray* out) { return fc_any_bytes(any, out) || fc_any_text(any, out); }

/* (name, bytes), or (name, offset, total, bytes) */
static bool read_piece(const TVMFFIAny* args, int32_t n, Piece* out) {
  TVMFFIByteArray name;
  bool whole = n == 2;
  if ((!whole && n != 4) || !fc_any_text(&args[0], &name) || !read_bytes(&args[n - 1], &out->data)) return false;
  out->name = name.data;
  out->offset = whole ? 0 : args[1].v_int64;
  out->total = whole ? (int64_t)out->data.size : args[2].v_int64;
  bool ints = whole || (args[1].type_index == kTVMFFIInt && args[2].type_index == kTVMFFIInt);
  return ints && out->offset >= 0 && out->offset <= out->total && out->data.size <= (uint64_t)(out->total - out->offset);
}

/* self: the Function that answers where a name lies. */
static int write_file(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIByteArray text;
  TVMFFIAny path = fc_any_none();
  TVMFFIObject* place = self;
  Piece piece;
  (void)result;
  if (!read_piece(args, n, &piece)) {
    fc_error_set("TypeError", "an upload is (name, bytes), or (name, offset, total, bytes) with the bytes inside");
    return -1;
  }
  int rc = TVMFFIFunctionGetCellPtr(place)->safe_call(place, args, 1, &path);
  if (rc == 0 && fc_any_text(&path, &text)) rc = store(text.data, &piece);
  fc_any_clear(&path);
  return rc;
}

static void drop_place(void* self) { fc_decref(self); }

static PyObject* file_writer(PyObject* module, PyObject* place) {
  TVMFFIObjectHandle made = NULL;
  (void)module;
  if (!PyCallable_Check(place)) return PyErr_Format(PyExc_TypeError, "file_writer: expected a callable");
  TVMFFIObject* function = fc_callback_new(place);
  if (!function) return NULL;
  if (fc_function_new(function, write_file, drop_place, &made) != 0) {
    fc_decref(function);
    return fc_raise_slot();
  }
  PyObject* name = PyUnicode_FromString("upload");
  PyObject* wrapped = name ? fc_function_wrap(made, name) : NULL;
  Py_XDECREF(name);
  return wrapped;
}

PyMethodDef fc_file_functions[] = {
    {"file_writer", file_writer, METH_O,
     "file_writer(place, /)\n--\n\nA Function (name, bytes), or (name, offset, total, bytes) for a piece, that writes a file at\nplace(name): beside, then renamed."},
    {NULL, NULL, 0, NULL}};
