/*
 * Memory of large tensors that nobody needs any more, kept for the next ones.
 *
 * A C library gives such memory back to the system, which clears each page of it when it is next used. For a function
 * with many large results, this took a quarter of the time of a call.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/blocks.h"

#include "platform/port.h"
#include "runtime/runtime.h"

enum {
  LEAST = 1 << 16, /* bytes of a block; a C library keeps smaller ones itself */
  MOST = 1 << 26,  /* bytes of all blocks together */
  COUNT = 64
};

typedef struct {
  void* memory;
  size_t size;
} Block;

/* From the oldest to the newest. Who finds the lock taken does without blocks: also the child of a process that was
   forked by one thread while another one had the lock. */
static struct {
  FcMutex mutex;
  int count;
  size_t total;
  Block blocks[COUNT];
} kept = {.mutex = FC_MUTEX_INIT};

static Block remove_block(int i) {
  const Block block = kept.blocks[i];
  memmove(&kept.blocks[i], &kept.blocks[i + 1], (size_t)(--kept.count - i) * sizeof block);
  kept.total -= block.size;
  return block;
}

/* The smallest block that holds so much, and at most an eighth more; -1: there is none. */
static int find_block(size_t size) {
  int found = -1;
  for (int i = 0; i < kept.count; ++i) {
    const size_t has = kept.blocks[i].size;
    if (has >= size && has - size <= size / 8 && (found < 0 || has < kept.blocks[found].size)) found = i;
  }
  return found;
}

static void free_all(void) {
  if (!fc_mutex_trylock(&kept.mutex)) return;
  while (kept.count) free(remove_block(0).memory);
  fc_mutex_unlock(&kept.mutex);
}

static void* take(size_t size, size_t* room) {
  *room = size;
  if (size < LEAST) return malloc(size);
  void* memory = NULL;
  if (fc_mutex_trylock(&kept.mutex)) {
    const int found = find_block(size);
    if (found >= 0) {
      const Block block = remove_block(found);
      memory = block.memory;
      *room = block.size;
    }
    fc_mutex_unlock(&kept.mutex);
  }
  if (!memory) memory = malloc(size);
  if (memory) return memory;
  free_all();
  return malloc(size);
}

static void give(void* memory, size_t room) {
  if (room < LEAST || room > MOST || !fc_mutex_trylock(&kept.mutex)) {
    free(memory);
    return;
  }
  while (kept.count == COUNT || kept.total + room > MOST) free(remove_block(0).memory);
  kept.blocks[kept.count++] = (Block){memory, room};
  kept.total += room;
  fc_mutex_unlock(&kept.mutex);
}

static const FcTensorHeap blocks = {take, give};

/* AddressSanitizer finds uses of memory that was freed; it would not see those of a block. */
#define SEES_FREED_MEMORY 0
#if defined(__SANITIZE_ADDRESS__)
#undef SEES_FREED_MEMORY
#define SEES_FREED_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef SEES_FREED_MEMORY
#define SEES_FREED_MEMORY 1
#endif
#endif

void fc_blocks_keep(void) {
  if (!SEES_FREED_MEMORY) fc_tensor_heap = &blocks;
}
