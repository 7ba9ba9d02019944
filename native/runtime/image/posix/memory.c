/* Memory for code, from a POSIX system: anonymous mappings. */
#include "runtime/image/posix/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_POPULATE
#define MAP_POPULATE 0 /* pages come one by one, as they are written */
#endif

/* Takes more than it needs for a strict alignment, and gives back what is left over. */
static void* reserve(size_t size, size_t alignment) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), extra = alignment > page ? alignment : 0;
  if (size > PTRDIFF_MAX - extra) return NULL;
  char* all =
      mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (extra ? 0 : MAP_POPULATE), -1, 0);
  if (all == MAP_FAILED) return NULL;
  size_t before = extra ? (alignment - (uintptr_t)all % alignment) % alignment : 0;
  if (before) munmap(all, before);
  if (extra - before) munmap(all + before + size, extra - before);
  return all + before;
}

/* The instruction caches of some machines do not see what was written as data. The others need nothing. */
static void flush_instructions(char* begin, size_t size) {
#if defined(__aarch64__) || defined(__arm__) || defined(__riscv)
  __builtin___clear_cache(begin, begin + size);
#elif defined(__hexagon__)
  for (size_t at = 0; at < size; at += 32)
    __asm__ volatile("dccleana(%0)\n\ticinva(%0)" : : "r"(begin + at) : "memory");
  __asm__ volatile("isync" : : : "memory");
#else
  (void)begin, (void)size; /* x86-64 and s390x keep them coherent */
#endif
}

static bool protect(void* at, size_t size, uint32_t access) {
  int flags = PROT_READ | (access & FC_ELF_WRITE ? PROT_WRITE : 0) | (access & FC_ELF_EXECUTE ? PROT_EXEC : 0);
  if (access & FC_ELF_EXECUTE) flush_instructions(at, size);
  return mprotect(at, size, flags) == 0;
}

static void release(void* at, size_t size) { munmap(at, size); }

const FcImageMemory* fc_image_posix_memory(void) {
  static FcImageMemory memory = {0, reserve, protect, release};
  memory.page = (size_t)sysconf(_SC_PAGESIZE);
  return &memory;
}
