/* Loading modules from files of the session: shared objects, by the loader of images. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/image/posix/memory.h"
#include "server/budget.h"
#include "server/posix/files.h"

/* ---- memory for code, which the budget counts as any other ---- */

static void* reserve(size_t size, size_t alignment) {
  if (!fc_budget_take(size)) return NULL;
  void* at = fc_image_posix_memory()->reserve(size, alignment);
  if (!at) fc_budget_give(size);
  return at;
}

static void release(void* at, size_t size) {
  fc_image_posix_memory()->release(at, size);
  fc_budget_give(size);
}

static const FcImageMemory* memory(void) {
  static FcImageMemory counted;
  counted = *fc_image_posix_memory();
  counted.reserve = reserve;
  counted.release = release;
  return &counted;
}

/* ---- files ---- */

static uint8_t* read_all(int fd, size_t size) {
  uint8_t* data = malloc(size ? size : 1);
  size_t done = 0;
  for (ssize_t got = 1; data && got > 0 && done < size; done += got > 0 ? (size_t)got : 0) {
    got = read(fd, data + done, size - done);
  }
  if (data && done == size) return data;
  free(data);
  return NULL;
}

uint8_t* fc_folder_read(const FcFolder* folder, TVMFFIByteArray name, size_t* out) {
  int64_t size = 0;
  int fd = fc_folder_open_file(folder, name, &size);
  if (fd < 0) return NULL;
  uint8_t* data = (uint64_t)size <= SIZE_MAX ? read_all(fd, (size_t)size) : NULL;
  close(fd);
  *out = (size_t)size;
  if (!data) {
    fc_error_format("MemoryError", "%.*s: no memory for its %lld bytes; start the server with a larger --memory",
                    (int)name.size, name.data, (long long)size);
  }
  return data;
}

int fc_folder_load_module(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcSession* session = self;
  TVMFFIByteArray name;
  size_t size;
  if (n != 1 || !fc_any_text(&args[0], &name)) {
    fc_error_set("TypeError", "load_module takes the name of a file that was uploaded");
    return -1;
  }
  uint8_t* data = fc_folder_read(session->client->folder, name, &size);
  if (!data) return -1;
  char what[FC_FILE_NAME + 1];
  snprintf(what, sizeof what, "%.*s", (int)name.size, name.data);
  TVMFFIObject* module = fc_image_module(data, size, what, memory(), (size_t)1 << 30);
  free(data);
  if (!module) return -1;
  *result = fc_any_object(module);
  return 0;
}
