/*
 * Modules that a library embeds as bytes in the symbol `__tvm_ffi__library_bin`.
 *
 * The format (all numbers 64 bits, little endian): the number of bytes that follow; the tree of imports, as the index
 * into a list at which each module's children begin, and one more for the end; the list of children; and for each
 * module its kind and its bytes. The kind `_lib` has no bytes and means the library itself. Module 0 is the root.
 *
 * The bytes are not trusted to be well-formed: each read is checked against the number of bytes left.
 */
#include <stdlib.h>

#include "runtime/module.h"

typedef struct {
  const char* at;
  size_t left;
} Reader;

static int malformed(const char* what, const Reader* reader) {
  fc_error_format("ArtifactError",
                  "the modules that the library embeds (__tvm_ffi__library_bin) are malformed: %s, with "
                  "%zu bytes left; build it again",
                  what, reader->left);
  return -1;
}

static int read_u64(Reader* reader, uint64_t* out) {
  if (reader->left < 8) return malformed("a number is cut off", reader);
  *out = 0;
  for (int i = 0; i < 8; ++i) *out |= (uint64_t)(uint8_t)reader->at[i] << (8 * i);
  reader->at += 8;
  reader->left -= 8;
  return 0;
}

static int read_bytes(Reader* reader, TVMFFIByteArray* out) {
  uint64_t size = 0;
  if (read_u64(reader, &size) != 0) return -1;
  if (size > reader->left) return malformed("a text is longer than the remaining bytes", reader);
  *out = (TVMFFIByteArray){reader->at, (size_t)size};
  reader->at += size;
  reader->left -= (size_t)size;
  return 0;
}

/* Borrows the numbers from the data. */
static int read_list(Reader* reader, Reader* list) {
  uint64_t count = 0;
  if (read_u64(reader, &count) != 0) return -1;
  if (count > reader->left / 8) return malformed("a list is longer than the remaining bytes", reader);
  *list = (Reader){reader->at, (size_t)count * 8};
  reader->at += list->left;
  reader->left -= list->left;
  return 0;
}

static uint64_t list_item(const Reader* list, size_t i) {
  Reader at = {list->at + i * 8, 8};
  uint64_t value = 0;
  read_u64(&at, &value);
  return value;
}

/* ---- the tree ---- */

static bool is_library(TVMFFIByteArray kind) { return kind.size == 4 && memcmp(kind.data, "_lib", 4) == 0; }

static int read_modules(Reader* reader, TVMFFIObject* library, TVMFFIObject** modules, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    TVMFFIByteArray kind = {"", 0}, bytes = {"", 0};
    if (read_bytes(reader, &kind) != 0) return -1;
    if (is_library(kind)) {
      fc_incref(library);
      modules[i] = library;
      continue;
    }
    if (read_bytes(reader, &bytes) != 0) return -1;
    modules[i] = fc_module_from_bytes(kind, bytes, fc_module_of(library));
    if (!modules[i]) return -1;
  }
  return 0;
}

/* A library that is the root imports the modules: if these kept it, none of them would ever be freed. */
static bool is_root(const Reader* reader) {
  Reader first = *reader;
  TVMFFIByteArray kind = {"", 0};
  return first.left >= 8 && read_bytes(&first, &kind) == 0 && is_library(kind);
}

static int import_children(const Reader* reader, TVMFFIObject** modules, size_t n, const Reader* begins,
                           const Reader* children) {
  for (size_t i = 0; i < n; ++i) {
    uint64_t begin = list_item(begins, i), end = list_item(begins, i + 1);
    if (begin > end || end > children->left / 8) return malformed("a module's children are not in the list", reader);
    for (uint64_t k = begin; k < end; ++k) {
      uint64_t child = list_item(children, (size_t)k);
      if (child >= n) return malformed("a child is not a module", reader);
      if (fc_module_import(modules[i], modules[child]) != 0) return -1;
    }
  }
  return 0;
}

TVMFFIObject* fc_module_from_bin(const char* data, size_t size, TVMFFIObject* library) {
  Reader reader = {data, size}, begins = {data, 0}, children = {data, 0};
  uint64_t nbytes = 0;
  if (read_u64(&reader, &nbytes) != 0) return NULL;
  if (nbytes > reader.left) return malformed("it claims to be longer than its symbol", &reader), NULL;
  reader.left = (size_t)nbytes;
  if (read_list(&reader, &begins) != 0 || read_list(&reader, &children) != 0) return NULL;
  /* Each module takes at least 8 bytes. */
  size_t n = begins.left / 8;
  if (n < 2 || n - 1 > reader.left / 8) return malformed("the number of modules does not fit", &reader), NULL;
  TVMFFIObject** modules = calloc(--n, sizeof *modules);
  TVMFFIObject* root = NULL;
  if (!modules) {
    fc_error_no_memory();
    return NULL;
  }
  TVMFFIObject* const embedder = fc_thread.embedder;
  fc_thread.embedder = is_root(&reader) ? NULL : library;
  const int rc = read_modules(&reader, library, modules, n);
  fc_thread.embedder = embedder;
  if (rc == 0 && import_children(&reader, modules, n, &begins, &children) == 0) {
    root = modules[0];
    fc_incref(root);
  }
  for (size_t i = 0; i < n; ++i) {
    if (modules[i]) fc_decref(modules[i]);
  }
  free(modules);
  return root;
}

size_t fc_module_bin_size(const char* data) {
  Reader reader = {data, 8};
  uint64_t behind = 0;
  read_u64(&reader, &behind);
  return behind > SIZE_MAX - 8 ? SIZE_MAX : (size_t)behind + 8;
}
