/*
 * The oracle for shared objects (native/runtime/image): any bytes are either refused with a problem, or are an image that
 * can be copied, relocated and searched without a read outside its bytes or a write outside its span. As a program
 * (FC_PROGRAM), it reads inputs from its standard input, each after its length in 4 bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/image/elf.h"
#include "runtime/image/machine.h"

enum { GUARD = 64, PAGE = 4096, MOST_SPAN = 1 << 22 };

static void require(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "image_target: %s\n", what);
  abort();
}

static void* find(void* context, const char* name) {
  (void)name;
  return context;
}

static int is_guard(const uint8_t* at) {
  for (int i = 0; i < GUARD; ++i) {
    if (at[i] != 0xa5) return 0;
  }
  return 1;
}

static void relocate(FcElf* elf) {
  uint8_t* all = malloc(elf->span + 2 * GUARD);
  memset(all, 0xa5, GUARD);
  memset(all + GUARD, 0, elf->span);
  memset(all + GUARD + elf->span, 0xa5, GUARD);
  for (uint32_t i = 0; i < elf->count; ++i) {
    const FcElfPart* part = &elf->parts[i];
    memcpy(all + GUARD + part->at, elf->data + part->file_at, part->in_file);
  }
  (void)fc_machine_relocate(elf, (char*)all + GUARD, find, all);
  require(is_guard(all) && is_guard(all + GUARD + elf->span), "wrote outside the span");
  for (uint32_t i = 0; i < elf->count; ++i) {
    const FcElfPart* part = &elf->parts[i];
    int same = memcmp(all + GUARD + part->at, elf->data + part->file_at, part->in_file) == 0;
    require((part->access & FC_ELF_WRITE) || same, "changed what is not writable");
  }
  free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FcElf elf, again;
  uint8_t* copy = malloc(size ? size : 1); /* its end is the end of the memory */
  memcpy(copy, data, size);
  bool good = fc_elf_read(&elf, copy, size, (FcElfLimits){PAGE, MOST_SPAN});
  require(good == fc_elf_read(&again, copy, size, (FcElfLimits){PAGE, MOST_SPAN}), "reads the same bytes otherwise");
  require(good == (elf.problem[0] == 0), "refuses without a problem");
  if (good) {
    require(elf.span <= MOST_SPAN + PAGE, "takes more than it may");
    relocate(&elf);
  }
  free(copy);
  return good;
}

#ifdef FC_PROGRAM
int main(void) {
  uint8_t head[4];
  unsigned good = 0;
  while (fread(head, 1, 4, stdin) == 4) {
    size_t size = head[0] | head[1] << 8 | head[2] << 16 | (size_t)head[3] << 24;
    uint8_t* data = malloc(size ? size : 1);
    require(fread(data, 1, size, stdin) == size, "the input ends too early");
    good += (unsigned)LLVMFuzzerTestOneInput(data, size);
    free(data);
  }
  printf("%u\n", good);
  return 0;
}
#endif
