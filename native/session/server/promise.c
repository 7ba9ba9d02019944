/* Promises: results that a client keeps under a number of its own, for later calls of the same pipeline. */
#include "session/server/serve.h"

static TVMFFIAny key_of(uint64_t id) { return fc_any_int((int64_t)id); }

static const TVMFFIAny* find(const TVMFFIObject* dict, uint64_t id) {
  TVMFFIAny key = key_of(id);
  return dict ? fc_map_find(dict, &key) : NULL;
}

int fc_promise_get(FcServer* server, uint64_t handle, TVMFFIAny* out) {
  uint64_t id = handle & ~FC_PROMISE_BIT;
  const TVMFFIAny* kept = find(server->kept, id);
  if (kept) return fc_any_to_owned(kept, out);
  const TVMFFIAny* failed = find(server->failed, id);
  if (failed) {
    fc_incref(failed->v_obj);
    fc_error_raise(failed->v_obj);
  } else {
    fc_error_format("InvalidHandleError", "no result is kept under the promise %llu", (unsigned long long)id);
  }
  return -1;
}

int fc_promise_check(FcServer* server, int64_t id) {
  if (id <= 0 || id >= (int64_t)FC_PROMISE_BIT) {
    fc_error_format("ValueError", "the id of a promise is between 1 and 2**62 - 1, got %lld", (long long)id);
  } else if (find(server->kept, (uint64_t)id) || find(server->failed, (uint64_t)id)) {
    fc_error_format("ValueError", "a result is kept under the promise %lld already; free it first", (long long)id);
  } else if (server->promises + fc_handles_count(&server->handles) >= server->handles.limit) {
    fc_error_format("MemoryError", "the session holds %u handles and promises, which is the limit; free some",
                    (unsigned)server->handles.limit);
  } else {
    return 0;
  }
  return -1;
}

/* The value moves in, on failure too. */
static int put(FcServer* server, TVMFFIObject** dict, int64_t id, TVMFFIAny value) {
  TVMFFIObjectHandle made = *dict;
  if (!made && fc_map_new(kTVMFFIDict, &made) != 0) {
    fc_any_clear(&value);
    return -1;
  }
  *dict = made;
  if (fc_map_set(*dict, key_of((uint64_t)id), value) != 0) return -1;
  ++server->promises;
  return 0;
}

int fc_promise_set(FcServer* server, int64_t id, int rc, TVMFFIAny* result) {
  TVMFFIAny value;
  if (rc == 0) {
    if (fc_any_to_owned(result, &value) == 0 && put(server, &server->kept, id, value) == 0) return 0;
    fc_any_clear(result);
    return -1;
  }
  TVMFFIObject* error = fc_error_take();
  if (!error) return -1;
  fc_incref(error);
  put(server, &server->failed, id, fc_any_object(error));
  fc_error_raise(error);
  return -1;
}

bool fc_promise_forget(FcServer* server, uint64_t handle) {
  TVMFFIAny key = key_of(handle & ~FC_PROMISE_BIT);
  if (!(handle & FC_PROMISE_BIT)) return false;
  bool gone =
      (server->kept && fc_map_erase(server->kept, &key)) || (server->failed && fc_map_erase(server->failed, &key));
  server->promises -= gone;
  return gone;
}
