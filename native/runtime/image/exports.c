/* What images import from this program: the ABI's functions, and those of the C library that kernels use. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/image/image.h"

#if defined(__aarch64__) && defined(__linux__)
extern unsigned long getauxval(unsigned long type); /* of the C library; its header is one of the system */
#endif

typedef struct {
  const char* name;
  void (*function)(void);
} Export;

#define FC_IMAGE_EXPORT(name) {#name, (void (*)(void))name},
static const Export exports[] = {
#include "runtime/image/exports.inc"
};
#undef FC_IMAGE_EXPORT

static int compare(const void* name, const void* export) { return strcmp(name, ((const Export*)export)->name); }

void* fc_image_export(const char* name) {
  const Export* found = bsearch(name, exports, sizeof exports / sizeof *exports, sizeof *exports, compare);
  void* address = NULL;
  if (found) memcpy(&address, &found->function, sizeof address);
  return address;
}
