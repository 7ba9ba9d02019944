/*
 * Handles: the slot in the low half, its generation in the high half. Freeing a handle gives its slot the next
 * generation, so a stale handle, a forged one or one of another session is not valid. A handle is never an address.
 */
#include <stdio.h>
#include <stdlib.h>

#include "session/server/serve.h"

enum { FIRST_CAPACITY = 64, NUMBERS_AT_ONCE = FC_RANDOM_AT_ONCE / sizeof(uint32_t) };

/* 30 bits, never 0: the two bits above have other meanings (FC_PROMISE_BIT, FC_CLIENT_BIT), and a null pointer is not a
 * handle. */
#define GENERATIONS UINT32_C(0x3FFFFFFF)

static int fill_from_system(void* context, void* out, size_t size) {
  (void)context;
  if (fc_entropy(out, size)) return 0;
  fc_error_set("OSError", "the system gives no random numbers; without them, handles could be guessed");
  return -1;
}

const FcRandom fc_system_random = {fill_from_system, NULL};

/* First generations are random, so that handles of another session cannot be guessed. */
static int draw_generations(const FcRandom* random, FcEntry* entries, uint32_t n) {
  uint32_t numbers[NUMBERS_AT_ONCE];
  for (uint32_t i = 0; i < n; ++i) {
    if (i % NUMBERS_AT_ONCE == 0 && random->fill(random->context, numbers, sizeof numbers) != 0) return -1;
    entries[i] = (FcEntry){.generation = numbers[i % NUMBERS_AT_ONCE] % GENERATIONS + 1};
  }
  return 0;
}

static int grow(FcHandles* table) {
  uint32_t capacity = table->capacity ? table->capacity * 2 : FIRST_CAPACITY;
  if (capacity > table->limit || capacity < table->capacity) capacity = table->limit;
  FcEntry* entries = realloc(table->entries, (size_t)capacity * sizeof *entries);
  if (entries) table->entries = entries;
  uint32_t* unused = entries ? realloc(table->unused, (size_t)capacity * sizeof *unused) : NULL;
  if (!unused) {
    fc_error_no_memory();
    return -1;
  }
  table->unused = unused;
  if (draw_generations(&table->random, table->entries + table->capacity, capacity - table->capacity) != 0) return -1;
  table->capacity = capacity;
  return 0;
}

static FC_COLD uint64_t full(const FcHandles* table) {
  fc_error_format("MemoryError", "the session holds %u handles, which is the limit; free some", (unsigned)table->limit);
  return 0;
}

uint64_t fc_handles_add(FcHandles* table, FcEntry entry) {
  uint32_t slot;
  if (table->unused_count != 0) {
    slot = table->unused[--table->unused_count];
  } else {
    if (table->size == table->limit) return full(table);
    if (table->size == table->capacity && grow(table) != 0) return 0;
    slot = table->size++;
  }
  entry.generation = table->entries[slot].generation;
  table->entries[slot] = entry;
  return (uint64_t)entry.generation << 32 | slot;
}

static FC_COLD void name_kinds(uint32_t kinds, char out[96]) {
  static const char* const names[] = {"function",   "module", "object",  "tensor",  "returned tensor",
                                      "allocation", "stream", "pointer", "function"};
  size_t used = 0;
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    if (kinds >> i & 1) used += (size_t)snprintf(out + used, 96 - used, "%s%s", used ? " or " : "", names[i]);
  }
}

FC_COLD static FcEntry* invalid(uint64_t handle, uint32_t kinds) {
  char words[96] = "";
  name_kinds(kinds, words);
  fc_error_format("InvalidHandleError",
                  "handle 0x%llx is not valid in this session (expected: %s); it was freed, or never given out",
                  (unsigned long long)handle, words);
  return NULL;
}

FcEntry* fc_handles_get(const FcHandles* table, uint64_t handle, uint32_t kinds) {
  FcEntry* entry = fc_handles_find(table, handle, kinds);
  return FC_LIKELY(entry != NULL) ? entry : invalid(handle, kinds);
}

bool fc_handles_remove(FcHandles* table, uint64_t handle, uint32_t kinds, FcEntry* out) {
  FcEntry* entry = fc_handles_get(table, handle, kinds);
  if (!entry) return false;
  *out = *entry;
  entry->kind = 0;
  entry->generation = entry->generation % GENERATIONS + 1;
  table->unused[table->unused_count++] = (uint32_t)handle;
  return true;
}

void fc_handles_free(FcHandles* table) {
  free(table->entries);
  free(table->unused);
  *table = (FcHandles){.limit = table->limit, .random = table->random};
}
