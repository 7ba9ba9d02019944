/*
 * A heap in memory that the program gives: a list of free blocks in the order of their addresses. A block is taken from
 * the first that is large enough, and joins its neighbours when it is freed.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/bare/bare.h"

/* Blocks begin at multiples of ALIGN, behind a header of that size. */
enum { ALIGN = 16 };

typedef struct Block {
  size_t size; /* of the whole block */
  struct Block* next;
} Block;

static Block* unused;
static size_t used;

static size_t rounded(size_t size) { return (size + ALIGN - 1) / ALIGN * ALIGN; }
static uint8_t* end_of(const Block* block) { return (uint8_t*)block + block->size; }

void fc_heap_give(void* memory, size_t bytes) {
  uintptr_t begin = ((uintptr_t)memory + ALIGN - 1) / ALIGN * ALIGN, lost = begin - (uintptr_t)memory;
  used = 0;
  unused = NULL;
  if (bytes < lost + 4 * ALIGN) return;
  unused = (Block*)begin;
  *unused = (Block){(bytes - lost) / ALIGN * ALIGN, NULL};
}

size_t fc_heap_used(void) { return used; }

void* malloc(size_t size) {
  if (size > SIZE_MAX / 2) return NULL;
  size_t whole = rounded(size) + ALIGN;
  for (Block** at = &unused; *at; at = &(*at)->next) {
    Block* block = *at;
    if (block->size < whole) continue;
    if (block->size - whole > 2 * ALIGN) {
      Block* rest = (Block*)((uint8_t*)block + whole);
      *rest = (Block){block->size - whole, block->next};
      *at = rest;
      block->size = whole;
    } else {
      *at = block->next;
    }
    used += block->size;
    return (uint8_t*)block + ALIGN;
  }
  return NULL;
}

static void join_next(Block* block) {
  if (!block->next || end_of(block) != (uint8_t*)block->next) return;
  block->size += block->next->size;
  block->next = block->next->next;
}

void free(void* memory) {
  if (!memory) return;
  Block *block = (Block*)((uint8_t*)memory - ALIGN), *before = NULL;
  used -= block->size;
  for (Block* at = unused; at && at < block; at = at->next) before = at;
  block->next = before ? before->next : unused;
  if (before) before->next = block;
  else unused = block;
  join_next(block);
  if (before) join_next(before);
}

void* calloc(size_t count, size_t size) {
  size_t whole;
  if (__builtin_mul_overflow(count, size, &whole)) return NULL;
  void* memory = malloc(whole);
  return memory ? memset(memory, 0, whole) : NULL;
}

void* realloc(void* memory, size_t size) {
  size_t held = memory ? ((Block*)((uint8_t*)memory - ALIGN))->size - ALIGN : 0;
  if (memory && size <= held) return memory;
  void* moved = malloc(size);
  if (moved && memory) memcpy(moved, memory, held);
  if (moved) free(memory);
  return moved;
}

/* For more than ALIGN, the address must be a multiple inside a larger block: its front becomes a free block. */
void* aligned_alloc(size_t alignment, size_t size) {
  if (alignment <= ALIGN) return malloc(size);
  uint8_t* memory = size < SIZE_MAX / 4 ? malloc(size + alignment + 2 * ALIGN) : NULL;
  if (!memory) return NULL;
  uintptr_t address = ((uintptr_t)memory + 2 * ALIGN + alignment - 1) / alignment * alignment;
  if ((uintptr_t)memory % alignment == 0) return memory;
  Block *block = (Block*)(memory - ALIGN), *part = (Block*)(address - ALIGN);
  part->size = (size_t)(end_of(block) - (uint8_t*)part);
  block->size -= part->size;
  free(memory);
  return (void*)address;
}
