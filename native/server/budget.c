/*
 * Counts what the program allocates, and refuses what exceeds the budget. The linker sends every call of malloc() and
 * its kin here (--wrap), those of loaded code and of the C library, too. A limit of the operating system would not do:
 * emulators ignore it, and boards may have none.
 */
#include "server/budget.h"

#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <string.h>

#include "platform/port.h"

enum {
  OVERHEAD = 16, /* bytes that an allocator needs beside each block */
  LARGE = 1 << 22
};

static uint64_t limit = UINT64_MAX, used;
static FC_TLS bool inside; /* the C library's calloc() may call malloc(): that is one block */

void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* block, size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void* block);

void fc_budget_limit(uint64_t bytes) { limit = bytes; }
uint64_t fc_budget_used(void) { return __atomic_load_n(&used, __ATOMIC_RELAXED); }

static uint64_t charge(void* block) { return block ? malloc_usable_size(block) + OVERHEAD : 0; }

/* Whether `size` bytes more fit, where `instead` bytes are given back. */
static bool fits(size_t size, uint64_t instead) {
  uint64_t held = fc_budget_used() - instead;
  if (held <= limit && size <= limit - held) return true;
  errno = ENOMEM;
  return false;
}

bool fc_budget_take(uint64_t bytes) {
  if (bytes > SIZE_MAX || !fits((size_t)bytes, 0)) return false;
  __atomic_fetch_add(&used, bytes, __ATOMIC_RELAXED);
  return true;
}

void fc_budget_give(uint64_t bytes) { __atomic_fetch_sub(&used, bytes, __ATOMIC_RELAXED); }

static void* take(void* block) {
  if (!inside) __atomic_fetch_add(&used, charge(block), __ATOMIC_RELAXED);
  return block;
}

void* __wrap_malloc(size_t size);
void* __wrap_malloc(size_t size) { return fits(size, 0) ? take(__real_malloc(size)) : NULL; }

/* musl's calloc() writes to all of a large block; in large pages, that and all later copies cost half. */
static void* zeroed(size_t size) {
  if (size < LARGE) return __real_calloc(1, size);
  void* block = __real_malloc(size);
  if (!block) return NULL;
  fc_advise_large_pages(block, size);
  return memset(block, 0, size);
}

void* __wrap_calloc(size_t count, size_t size);
void* __wrap_calloc(size_t count, size_t size) {
  size_t whole;
  if (__builtin_mul_overflow(count, size, &whole) || !fits(whole, 0)) return NULL;
  bool outer = inside;
  inside = true;
  void* block = zeroed(whole);
  inside = outer;
  return take(block);
}

void* __wrap_realloc(void* block, size_t size);
void* __wrap_realloc(void* block, size_t size) {
  uint64_t before = charge(block);
  if (!fits(size, before)) return NULL;
  bool outer = inside;
  inside = true;
  void* moved = __real_realloc(block, size);
  inside = outer;
  if (moved) __atomic_fetch_sub(&used, before, __ATOMIC_RELAXED);
  return take(moved);
}

void* __wrap_aligned_alloc(size_t alignment, size_t size);
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  if (!fits(size, 0)) return NULL;
  bool outer = inside;
  inside = true;
  void* block = __real_aligned_alloc(alignment, size);
  inside = outer;
  return take(block);
}

int __wrap_posix_memalign(void** out, size_t alignment, size_t size);
int __wrap_posix_memalign(void** out, size_t alignment, size_t size) {
  void* block = __wrap_aligned_alloc(alignment, size);
  if (block) *out = block;
  return block ? 0 : ENOMEM;
}

void __wrap_free(void* block);
void __wrap_free(void* block) {
  __atomic_fetch_sub(&used, charge(block), __ATOMIC_RELAXED);
  __real_free(block);
}
