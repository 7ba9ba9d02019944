/* The items of a Map or Dict, many in one reply. */
#include <stdlib.h>

#include "runtime/builtins.h"
#include "runtime/text.h"
#include "server/session.h"

enum { ITEMS = 1024, PLAIN_CHARS = 16 << 20 };

static TVMFFIObject* map_argument(const TVMFFIAny* args, int32_t n) {
  int32_t type = n > 0 ? args[0].type_index : kTVMFFINone;
  if (type == kTVMFFIMap || type == kTVMFFIDict) return args[0].v_obj;
  fc_error_format("TypeError", "expected a dict, got %s", fc_type_name(type));
  return NULL;
}

/* An Array of keys and values in turn, at most `most` of them from the item `start` on; behind `head`, if there is one. */
static int array_of(const TVMFFIObject* map, int64_t start, int64_t most, const TVMFFIAny* head,
                    TVMFFIObjectHandle* out) {
  int64_t left = (int64_t)TVMFFIMapGetCellPtr((TVMFFIObject*)map)->size - start, n = 0;
  size_t room = 2 * (size_t)(left < most ? left : most) + 1;
  TVMFFIAny* values = malloc(room * sizeof *values);
  if (!values) return fc_error_no_memory(), -1;
  FcMapCursor cursor = {.begun = false};
  int rc = 0;
  if (head) values[n++] = *head;
  for (int64_t at = 0; rc == 0 && at - start < most && fc_map_next(map, &cursor); ++at) {
    if (at < start) continue;
    rc = fc_any_to_owned(cursor.key, &values[n]);
    if (rc == 0) rc = fc_any_to_owned(cursor.value, &values[++n]);
    if (rc == 0) ++n;
  }
  if (rc == 0) rc = fc_array_new(values, n, out);
  else
    while (n > 0) fc_any_clear(&values[--n]);
  free(values);
  return rc;
}

/* farcall.rpc.items(map, start): the number of items, then keys and values in turn. */
static int items(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObject* map = map_argument(args, n);
  int64_t start = n > 1 && args[1].type_index == kTVMFFIInt ? args[1].v_int64 : -1;
  TVMFFIObjectHandle array;
  (void)self;
  if (!map) return -1;
  TVMFFIAny size = fc_any_int((int64_t)TVMFFIMapGetCellPtr(map)->size);
  if (start < 0 || start > size.v_int64) {
    fc_error_format("ValueError", "expected (map, start), with a start from 0 to %lld", (long long)size.v_int64);
    return -1;
  }
  if (array_of(map, start, ITEMS, &size, &array) != 0) return -1;
  *result = fc_any_object(array);
  return 0;
}

/* Whether JSON has the value. */
static bool is_plain(const TVMFFIAny* value) {
  TVMFFIByteArray text;
  switch (value->type_index) {
    case kTVMFFINone:
    case kTVMFFIBool:
    case kTVMFFIInt: return true;
    case kTVMFFIFloat: return value->v_float64 - value->v_float64 == 0; /* finite */
    default: return fc_any_text(value, &text);
  }
}

static bool are_plain(const TVMFFIObject* map) {
  FcMapCursor cursor = {.begun = false};
  while (fc_map_next(map, &cursor)) {
    if (!is_plain(cursor.key) || !is_plain(cursor.value)) return false;
  }
  return true;
}

static int print_items(const TVMFFIObject* map, TVMFFIAny* result) {
  TVMFFIObjectHandle array;
  TVMFFIByteArray text;
  if (array_of(map, 0, INT64_MAX, NULL, &array) != 0) return -1;
  TVMFFIAny any = fc_any_object(array);
  int rc = fc_json_print(&any, -1, result);
  fc_decref(array);
  if (rc == 0 && fc_any_text(result, &text) && text.size > PLAIN_CHARS) fc_any_clear(result);
  return rc;
}

/* farcall.rpc.plain_items(map): keys and values in turn, as JSON; None if JSON lacks one of them, or the text is long. */
static int plain_items(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObject* map = map_argument(args, n);
  (void)self;
  *result = fc_any_none();
  if (!map) return -1;
  return are_plain(map) ? print_items(map, result) : 0;
}

const FcServed fc_served_containers[] = {
    {"farcall.rpc.items", items, -1}, {"farcall.rpc.plain_items", plain_items, -1}, {NULL, NULL, 0}};
