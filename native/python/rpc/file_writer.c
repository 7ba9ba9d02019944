/*
 * Writes uploaded files from the packet to the disk without a copy. Python code chooses the path, but does not handle
 * the bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "python/convert.h"
#include "python/errors.h"
#include "python/init.h"

/* A whole file of `total` bytes, or the piece of it at `offset`. */
typedef struct Piece {
  TVMFFIAny name;
  TVMFFIByteArray text, data; /* the text of the name, and the bytes */
  int64_t offset, total;
} Piece;

/* The Functions of the store: begin(name, offset, size, total) -> descriptor, end(name, whether it succeeded). */
typedef struct Writer {
  TVMFFIObject *begin, *end;
} Writer;

static int write_all(int fd, const Piece* piece) {
  const char* data = piece->data.data;
  size_t left = piece->data.size;
  off_t at = piece->offset;
  while (left != 0) {
    ssize_t written = pwrite(fd, data, left, at);
    if (written < 0 && errno != EINTR) {
      fc_error_format("OSError", "writing of file '%.80s': %s", piece->text.data, strerror(errno));
      return -1;
    }
    if (written < 0) continue;
    data += written;
    at += written;
    left -= (size_t)written;
  }
  return 0;
}

static bool read_bytes(const TVMFFIAny* any, TVMFFIByteArray* out) {
  return fc_any_bytes(any, out) || fc_any_text(any, out);
}

/* (name, bytes), or (name, offset, total, bytes) */
static bool read_piece(const TVMFFIAny* args, int32_t n, Piece* out) {
  bool whole = n == 2;
  if ((!whole && n != 4) || !fc_any_text(&args[0], &out->text) || !read_bytes(&args[n - 1], &out->data)) return false;
  out->name = args[0];
  out->offset = whole ? 0 : args[1].v_int64;
  out->total = whole ? (int64_t)out->data.size : args[2].v_int64;
  bool ints = whole || (args[1].type_index == kTVMFFIInt && args[2].type_index == kTVMFFIInt);
  return ints && out->offset >= 0 && out->offset <= out->total &&
         out->data.size <= (uint64_t)(out->total - out->offset);
}

static int call(TVMFFIObject* function, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  return TVMFFIFunctionGetCellPtr(function)->safe_call(function, args, n, result);
}

/* After the last piece, or a failed one, whose error it keeps. */
static int end_file(const Writer* writer, const Piece* piece, int rc) {
  TVMFFIObject* error = rc != 0 ? fc_error_take() : NULL;
  TVMFFIAny none = fc_any_none(), args[2] = {piece->name, {.type_index = kTVMFFIBool, .v_int64 = rc == 0}};
  int ended = call(writer->end, args, 2, &none);
  fc_any_clear(&none);
  if (error) fc_error_raise(error);
  return rc != 0 ? rc : ended;
}

static int write_file(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const Writer* writer = self;
  Piece piece;
  TVMFFIAny fd = fc_any_none();
  (void)result;
  if (!read_piece(args, n, &piece)) {
    fc_error_set("TypeError", "an upload is (name, bytes), or (name, offset, total, bytes) with the bytes inside");
    return -1;
  }
  TVMFFIAny about[] = {piece.name, fc_any_int(piece.offset), fc_any_int((int64_t)piece.data.size),
                       fc_any_int(piece.total)};
  if (call(writer->begin, about, 4, &fd) != 0) return -1;
  int rc = write_all((int)fd.v_int64, &piece);
  bool last = piece.offset + (int64_t)piece.data.size == piece.total;
  return rc != 0 || last ? end_file(writer, &piece, rc) : 0;
}

static void drop_writer(void* self) {
  Writer* writer = self;
  if (writer->begin) fc_decref(writer->begin);
  if (writer->end) fc_decref(writer->end);
  free(writer);
}

static Writer* new_writer(PyObject* begin, PyObject* end) {
  Writer* writer = calloc(1, sizeof *writer);
  if (!writer) return (Writer*)PyErr_NoMemory();
  writer->begin = fc_callback_new(begin);
  writer->end = writer->begin ? fc_callback_new(end) : NULL;
  if (writer->end) return writer;
  drop_writer(writer);
  return NULL;
}

static PyObject* file_writer(PyObject* module, PyObject* args) {
  PyObject *begin, *end;
  TVMFFIObjectHandle made = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "OO:file_writer", &begin, &end)) return NULL;
  Writer* writer = new_writer(begin, end);
  if (!writer) return NULL;
  if (fc_function_new(writer, write_file, drop_writer, &made) != 0) {
    drop_writer(writer);
    return fc_raise_slot();
  }
  PyObject* name = PyUnicode_FromString("upload");
  PyObject* wrapped = name ? fc_function_wrap(made, name) : NULL;
  Py_XDECREF(name);
  return wrapped;
}

/* ---- whether a file may be overwritten ---- */

/* Whether the file system's lease check counts mappings as well as open descriptors. (overlayfs does not: there a
 * mapping belongs to the file of the lower layer.) */
static bool counts_users(int fd) {
  static const unsigned long known[] = {0xEF53 /* ext */, 0x58465342 /* xfs */, 0x9123683E /* btrfs */,
                                        0x01021994 /* tmpfs */, 0xF2F52010 /* f2fs */};
  struct statfs about;
  if (fstatfs(fd, &about) < 0) return false;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if ((unsigned long)about.f_type == known[i]) return true;
  }
  return false;
}

/* The kernel grants a write lease only if no other descriptor or mapping of the file exists; fcntl(2). */
static bool is_alone(int fd) {
  /* An open during the lease sends a signal: SIGURG, which is ignored by default, in place of SIGIO, which kills. */
  if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0) return false;
  return fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

static PyObject* file_is_ours(PyObject* module, PyObject* number) {
  long fd = PyLong_AsLong(number);
  struct stat about;
  (void)module;
  if (fd == -1 && PyErr_Occurred()) return NULL;
  bool plain = fstat((int)fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 1;
  return PyBool_FromLong(plain && counts_users((int)fd) && is_alone((int)fd));
}

PyMethodDef fc_file_functions[] = {
    {"file_writer", file_writer, METH_VARARGS,
     "file_writer(begin, end, /)\n--\n\n"
     "A Function that writes a file from (name, bytes), or a piece of it from (name, offset, total, bytes)."},
    {"file_is_ours", file_is_ours, METH_O,
     "file_is_ours(fd, /)\n--\n\nWhether an open file has no other name, descriptor or mapping."},
    {NULL, NULL, 0, NULL}};
