/* Promises: results that the server keeps under a number that the client chose, for later calls of the same
 * pipeline. */
#include <stdlib.h>

#include "session/server/serve.h"

/*
 * A table with open addressing; capacity is a power of two, and at most half of it is used. The client chooses the ids,
 * so they are hashed: consecutive ids land far apart. A client that makes them collide slows down only its own session.
 */
struct FcPromise {
  uint64_t id; /* 0: free */
  TVMFFIAny value;
  bool failed; /* value is the Error of the call */
};

enum { FIRST_CAPACITY = 16 };

static uint64_t slot_of(const FcPromises* table, uint64_t id) {
  uint64_t mixed = id * UINT64_C(0x9E3779B97F4A7C15); /* 2^64 / golden ratio */
  return (mixed ^ mixed >> 32) & (table->capacity - 1);
}

static FcPromise* find(const FcPromises* table, uint64_t id) {
  if (table->count == 0) return NULL;
  for (uint64_t i = slot_of(table, id);; i = (i + 1) & (table->capacity - 1)) {
    if (table->entries[i].id == id) return &table->entries[i];
    if (table->entries[i].id == 0) return NULL;
  }
}

/* The table must have a free slot. */
static void put(FcPromises* table, FcPromise promise) {
  uint64_t i = slot_of(table, promise.id);
  while (table->entries[i].id != 0) i = (i + 1) & (table->capacity - 1);
  table->entries[i] = promise;
}

static int make_room(FcPromises* table) {
  if (table->count < table->capacity / 2) return 0;
  FcPromises bigger = {.capacity = table->capacity ? 2 * table->capacity : FIRST_CAPACITY, .count = table->count};
  bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
  if (!bigger.entries) {
    fc_error_no_memory();
    return -1;
  }
  for (uint32_t i = 0; i < table->capacity; ++i) {
    if (table->entries[i].id != 0) put(&bigger, table->entries[i]);
  }
  free(table->entries);
  *table = bigger;
  return 0;
}

/* Frees a slot, and moves the entries behind it up, so that a search never ends at a gap. */
static void take_out(FcPromises* table, FcPromise* promise) {
  uint64_t mask = table->capacity - 1, gap = (uint64_t)(promise - table->entries);
  table->entries[gap].id = 0;
  for (uint64_t i = (gap + 1) & mask; table->entries[i].id != 0; i = (i + 1) & mask) {
    FcPromise moved = table->entries[i];
    table->entries[i].id = 0;
    put(table, moved);
  }
  --table->count;
}

void fc_promises_free(FcPromises* table) {
  for (uint32_t i = 0; i < table->capacity; ++i) {
    if (table->entries[i].id != 0) fc_any_clear(&table->entries[i].value);
  }
  free(table->entries);
  *table = (FcPromises){0};
}

int fc_promise_get(FcServer* server, uint64_t handle, TVMFFIAny* out) {
  uint64_t id = handle & ~FC_PROMISE_BIT;
  const FcPromise* promise = find(&server->promises, id);
  if (promise && !promise->failed) return fc_any_to_owned(&promise->value, out);
  if (promise) {
    fc_incref(promise->value.v_obj);
    fc_error_raise(promise->value.v_obj);
  } else {
    fc_error_format("InvalidHandleError", "no result is kept under the promise %llu", (unsigned long long)id);
  }
  return -1;
}

int fc_promise_check(FcServer* server, int64_t id) {
  if (id <= 0 || id >= (int64_t)FC_PROMISE_BIT) {
    fc_error_format("ValueError", "the id of a promise is between 1 and 2**62 - 1, got %lld", (long long)id);
  } else if (find(&server->promises, (uint64_t)id)) {
    fc_error_format("ValueError", "a result is kept under the promise %lld already; free it first", (long long)id);
  } else if (server->promises.count + fc_handles_count(&server->handles) >= server->handles.limit) {
    fc_error_format("MemoryError", "the session holds %u handles and promises, which is the limit; free some",
                    (unsigned)server->handles.limit);
  } else {
    return 0;
  }
  return -1;
}

/* Takes ownership of the value, even on failure. */
static int keep(FcServer* server, FcPromise promise) {
  /* The id was free before the call, but a request that was served during the call may have used it. */
  if (fc_promise_check(server, (int64_t)promise.id) != 0 || make_room(&server->promises) != 0) {
    fc_any_clear(&promise.value);
    return -1;
  }
  put(&server->promises, promise);
  ++server->promises.count;
  return 0;
}

int fc_promise_set(FcServer* server, int64_t id, int rc, TVMFFIAny* result) {
  FcPromise promise = {.id = (uint64_t)id, .failed = rc != 0};
  if (!promise.failed) {
    if (fc_any_to_owned(result, &promise.value) == 0 && keep(server, promise) == 0) return 0;
    fc_any_clear(result);
    return -1;
  }
  TVMFFIObject* error = fc_error_take();
  if (!error) return -1;
  fc_incref(error);
  promise.value = fc_any_object(error);
  keep(server, promise);
  fc_error_raise(error);
  return -1;
}

bool fc_promise_forget(FcServer* server, uint64_t handle) {
  FcPromise* promise = handle & FC_PROMISE_BIT ? find(&server->promises, handle & ~FC_PROMISE_BIT) : NULL;
  if (!promise) return false;
  TVMFFIAny value = promise->value;
  take_out(&server->promises, promise);
  fc_any_clear(&value); /* last, since a destructor may use this table */
  return true;
}
