/*
 * Loads a shared object as an image and calls one of its functions with floats: FILE FUNCTION DIM... < input > output.
 * Without a function, it only loads and unloads. Its exit status is 3 when the file was refused.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/image/posix/memory.h"

static uint8_t* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  uint8_t* data = NULL;
  *size = 0;
  for (size_t room = 0, got = 1; file && got; *size += got) {
    if (*size == room) data = realloc(data, room = room ? 2 * room : 1 << 16);
    got = fread(data + *size, 1, room - *size, file);
  }
  if (file) fclose(file);
  return data;
}

static int complain(void) {
  TVMFFIObject* error = fc_error_take();
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  fprintf(stderr, "%.*s: %.*s\n", (int)cell->kind.size, cell->kind.data, (int)cell->message.size, cell->message.data);
  fc_decref(error);
  return 3;
}

static int call(TVMFFIObject* module, const char* name, int ndim, char** dims) {
  int64_t shape[8], count = 1;
  TVMFFIObject* function = NULL;
  for (int i = 0; i < ndim; ++i) count *= shape[i] = atoll(dims[i]);
  float* data = malloc((size_t)count * sizeof *data);
  if (fread(data, sizeof *data, (size_t)count, stdin) != (size_t)count) return 2;
  DLTensor tensor = {data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMFFIAny arg = {.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensor}, result = {.type_index = kTVMFFINone};
  if (fc_module_get(module, name, strlen(name), true, &function) != 0 || !function) return 2;
  int rc = TVMFFIFunctionGetCellPtr(function)->safe_call(function, &arg, 1, &result);
  fc_decref(function);
  free(data);
  if (rc != 0) return complain();
  const DLTensor* out = fc_any_tensor(&result);
  fwrite((char*)out->data + out->byte_offset, 1, (size_t)fc_nbytes(out), stdout);
  fc_any_clear(&result);
  return 0;
}

int main(int argc, char** argv) {
  size_t size;
  uint8_t* data = read_file(argv[1], &size);
  TVMFFIObject* module = fc_image_module(data, size, "the image", fc_image_posix_memory(), 1 << 28);
  free(data);
  if (!module) return complain();
  int status = argc > 2 ? call(module, argv[2], argc - 3, argv + 3) : 0;
  fc_decref(module);
  return status;
}
