/* Seconds for loading an image and unloading it, or for copying its bytes: FILE load|fresh|warm TIMES. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/image/posix/memory.h"

enum { MOST = 1 << 26 };
static uint8_t data[MOST], place[MOST];

static void load(size_t size) {
  FcImage* image = fc_image_load(data, size, "image", fc_image_posix_memory(), MOST);
  if (!image) exit(1);
  fc_image_free(image);
}

static void copy_to_new_memory(size_t size) {
  const FcImageMemory* memory = fc_image_posix_memory();
  size_t whole = (size + memory->page - 1) & ~(memory->page - 1);
  void* at = memory->reserve(whole, memory->page);
  memcpy(at, data, size);
  memory->release(at, whole);
}

static void copy_to_warm_memory(size_t size) {
  memcpy(place, data, size);
  __asm__ volatile("" : : "r"(place) : "memory"); /* so that the copy is made */
}

int main(int argc, char** argv) {
  FILE* file = argc == 4 ? fopen(argv[1], "rb") : NULL;
  size_t size = file ? fread(data, 1, MOST, file) : 0;
  int times = file ? atoi(argv[3]) : 0;
  memset(place, 1, size);
  int64_t begin = fc_now_ns();
  for (int i = 0; i < times; ++i) {
    if (argv[2][0] == 'l') load(size);
    if (argv[2][0] == 'f') copy_to_new_memory(size);
    if (argv[2][0] == 'w') copy_to_warm_memory(size);
  }
  printf("%.9f\n", (double)(fc_now_ns() - begin) / 1e9 / times);
  return times == 0;
}
