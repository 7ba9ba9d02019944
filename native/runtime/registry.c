/* The registry of global functions. */
#include <stdlib.h>

#include "runtime/runtime.h"

TVMFFIObject* (*fc_unregistered)(const char* name, size_t size);

/* ---- the table: open addressing, owned names, one lock ---- */

typedef struct {
  char* name; /* NULL: never used; TOMBSTONE: removed */
  size_t size;
  TVMFFIObject* function;
  char* metadata; /* registered with the function; or NULL */
} Entry;

static char TOMBSTONE[1];
static Entry* table;
static size_t table_size; /* a power of two, or 0 */
static size_t table_used; /* includes tombstones */
static FcMutex table_lock = FC_MUTEX_INIT;

static size_t hash_name(const char* name, size_t size) {
  uint64_t hash = 1469598103934665603ULL; /* FNV-1a */
  for (size_t i = 0; i < size; ++i) hash = (hash ^ (uint8_t)name[i]) * 1099511628211ULL;
  return (size_t)hash;
}

static Entry* find(const char* name, size_t size) {
  if (!table_size) return NULL;
  for (size_t i = (size_t)hash_name(name, size);; ++i) {
    Entry* entry = &table[i & (table_size - 1)];
    if (!entry->name) return NULL;
    if (entry->name != TOMBSTONE && entry->size == size && memcmp(entry->name, name, size) == 0) return entry;
  }
}

static Entry* find_free(Entry* in, size_t in_size, const char* name, size_t size) {
  size_t i = (size_t)hash_name(name, size);
  while (in[i & (in_size - 1)].name) ++i;
  return &in[i & (in_size - 1)];
}

static int grow(void) {
  size_t size = table_size ? table_size * 2 : 64;
  Entry* bigger = calloc(size, sizeof *bigger);
  if (!bigger) {
    fc_error_no_memory();
    return -1;
  }
  table_used = 0;
  for (size_t i = 0; i < table_size; ++i) {
    if (!table[i].name || table[i].name == TOMBSTONE) continue;
    *find_free(bigger, size, table[i].name, table[i].size) = table[i];
    ++table_used;
  }
  free(table);
  table = bigger;
  table_size = size;
  return 0;
}

static int insert(const char* name, size_t size, TVMFFIObject* function) {
  if (table_used * 4 >= table_size * 3 && grow() != 0) return -1;
  char* copy = malloc(size + 1);
  if (!copy) {
    fc_error_no_memory();
    return -1;
  }
  if (size) memcpy(copy, name, size);
  copy[size] = 0;
  fc_incref(function);
  *find_free(table, table_size, name, size) = (Entry){copy, size, function, NULL};
  ++table_used;
  return 0;
}

int fc_global_set(const char* name, size_t size, TVMFFIObject* function, bool override) {
  TVMFFIObject* old = NULL;
  int rc = 0;
  fc_mutex_lock(&table_lock);
  Entry* entry = find(name, size);
  if (!entry) {
    rc = insert(name, size, function);
  } else if (override) {
    old = entry->function;
    fc_incref(function);
    entry->function = function;
  }
  fc_mutex_unlock(&table_lock);
  if (entry && !override) {
    fc_error_format("ValueError", "global function `%.*s` is registered already; pass override=True to replace it",
                    (int)size, name);
    return -1;
  }
  if (rc == 0 && fc_foreign) fc_foreign->global_set(name, size, function, old);
  if (old) fc_decref(old); /* outside the lock: a deleter may call anything */
  return rc;
}

TVMFFIObject* fc_global_get(const char* name, size_t size) {
  fc_mutex_lock(&table_lock);
  Entry* entry = find(name, size);
  TVMFFIObject* function = entry ? entry->function : NULL;
  if (function) fc_incref(function);
  fc_mutex_unlock(&table_lock);
  return function;
}

bool fc_global_remove(const char* name, size_t size) {
  fc_mutex_lock(&table_lock);
  Entry* entry = find(name, size);
  Entry old = {0};
  if (entry) {
    old = *entry;
    *entry = (Entry){TOMBSTONE, 0, NULL, NULL};
  }
  fc_mutex_unlock(&table_lock);
  if (!entry) return false;
  if (fc_foreign) fc_foreign->global_remove(name, size, old.function);
  free(old.name);
  free(old.metadata);
  fc_decref(old.function);
  return true;
}

void fc_global_each_function(bool (*visit)(void*, const char*, size_t, TVMFFIObject*), void* context) {
  fc_mutex_lock(&table_lock);
  for (size_t i = 0; i < table_size; ++i) {
    if (!table[i].name || table[i].name == TOMBSTONE) continue;
    if (!visit(context, table[i].name, table[i].size, table[i].function)) break;
  }
  fc_mutex_unlock(&table_lock);
}

typedef struct {
  bool (*visit)(void*, const char*, size_t);
  void* context;
} Visit;

static bool visit_name(void* visit, const char* name, size_t size, TVMFFIObject* function) {
  (void)function;
  return ((Visit*)visit)->visit(((Visit*)visit)->context, name, size);
}

void fc_global_each(bool (*visit)(void*, const char*, size_t), void* context) {
  Visit both = {visit, context};
  fc_global_each_function(visit_name, &both);
}

static void set_metadata(const char* name, size_t size, TVMFFIByteArray text) {
  char* copy = text.size ? strndup(text.data, text.size) : NULL;
  fc_mutex_lock(&table_lock);
  Entry* entry = find(name, size);
  char* old = entry ? entry->metadata : copy;
  if (entry) entry->metadata = copy;
  fc_mutex_unlock(&table_lock);
  free(old);
}

int fc_global_metadata(const char* name, size_t size, TVMFFIAny* result) {
  fc_mutex_lock(&table_lock);
  const Entry* entry = find(name, size);
  const char* text = entry && entry->metadata ? entry->metadata : "";
  int rc = fc_any_from_bytes(kTVMFFIStr, text, strlen(text), result);
  fc_mutex_unlock(&table_lock);
  if (entry) return rc;
  fc_any_clear(result);
  fc_error_format("ValueError", "no global function `%.*s`", (int)size, name);
  return -1;
}

/* ---- the exported names ---- */

int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out) {
  TVMFFIObject* function = fc_global_get(name->data, name->size);
  if (!function && fc_unregistered) function = fc_unregistered(name->data, name->size);
  if (!function && fc_foreign) function = fc_foreign->global(name->data, name->size);
  *out = function;
  return 0;
}

int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle f, int allow_override) {
  return fc_global_set(name->data, name->size, f, allow_override != 0) == 0 ? 0 : fc_registration_failed();
}

int TVMFFIFunctionSetGlobalFromMethodInfo(const TVMFFIMethodInfo* info, int allow_override) {
  if (info->method.type_index != kTVMFFIFunction) {
    fc_error_format("TypeError", "global function `%.*s`: expected a function, got `%s`", (int)info->name.size,
                    info->name.data, fc_type_name(info->method.type_index));
    return fc_registration_failed();
  }
  if (fc_global_set(info->name.data, info->name.size, info->method.v_obj, allow_override != 0) != 0) {
    return fc_registration_failed();
  }
  set_metadata(info->name.data, info->name.size, info->metadata);
  return 0;
}
