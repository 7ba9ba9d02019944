/*
 * Attributes of types, such as an object's hash function: one column per name, with a place for each type.
 *
 * Columns are read without a lock, even by code in libraries, and are never freed: a column that grows is copied and
 * published, and the old copy stays.
 */
#include <stdlib.h>

#include "runtime/runtime.h"

enum { FIRST_ROOM = 256 };

typedef struct Column {
  struct Column* next;
  TVMFFIByteArray name;
  TVMFFITypeAttrColumn column;
} Column;

static Column* columns;
static FcMutex columns_lock = FC_MUTEX_INIT;
static FcOnce columns_made = FC_ONCE_INIT;

/*
 * The columns that TVM FFI's runtime has at its start. Libraries look them up in their constructors, and end the
 * process when one is missing.
 */
static const char* const first_columns[] = {
    "__any_equal__",
    "__any_hash__",
    "__data_from_json__",
    "__data_to_json__",
    "__ffi_compare__",
    "__ffi_convert__",
    "__ffi_enum__",
    "__ffi_eq__",
    "__ffi_hash__",
    "__ffi_init__",
    "__ffi_new__",
    "__ffi_repr__",
    "__ffi_shallow_copy__",
    "__ffi_type_final__",
    "__s_equal__",
    "__s_hash__",
    "__s_maybe_inplace_mutate__",
    "__s_mutate__",
    "__s_visit__",
};

static bool same_text(TVMFFIByteArray a, TVMFFIByteArray b) {
  return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

static Column* find_column(TVMFFIByteArray name) {
  for (Column* c = columns; c; c = c->next) {
    if (same_text(c->name, name)) return c;
  }
  return NULL;
}

/* NULL without memory. */
static Column* make_column(TVMFFIByteArray name) {
  Column* column = calloc(1, sizeof *column + name.size + 1);
  if (!column) return NULL;
  char* copy = (char*)(column + 1);
  if (name.size) memcpy(copy, name.data, name.size);
  column->name = (TVMFFIByteArray){copy, name.size};
  column->next = columns;
  columns = column;
  return column;
}

static Column* column_of(TVMFFIByteArray name) {
  Column* column = find_column(name);
  return column ? column : make_column(name);
}

static void make_first_columns(void) {
  for (size_t i = 0; i < sizeof first_columns / sizeof *first_columns; ++i) {
    make_column((TVMFFIByteArray){first_columns[i], strlen(first_columns[i])});
  }
}

static void lock(void) {
  fc_once(&columns_made, make_first_columns);
  fc_mutex_lock(&columns_lock);
}

static void unlock(void) { fc_mutex_unlock(&columns_lock); }

static bool widen(TVMFFITypeAttrColumn* column, int32_t size) {
  if (size <= column->size) return true;
  int32_t room = size < FIRST_ROOM ? FIRST_ROOM : size * 2;
  TVMFFIAny* data = calloc((size_t)room, sizeof *data);
  if (!data) return false;
  if (column->size) memcpy(data, column->data, (size_t)column->size * sizeof *data);
  __atomic_store_n(&column->data, data, __ATOMIC_RELEASE);
  __atomic_store_n(&column->size, room, __ATOMIC_RELEASE);
  return true;
}

/* Two copies of a library register two functions that do the same: keeps the first one. */
static bool same_value(const TVMFFIAny* a, const TVMFFIAny* b) {
  return a->type_index == b->type_index && (fc_any_is_object(a) || a->v_uint64 == b->v_uint64);
}

static int set_place(TVMFFIAny* place, int32_t type_index, TVMFFIByteArray name, const TVMFFIAny* value) {
  if (place->type_index == kTVMFFINone) return fc_any_to_owned(value, place);
  if (same_value(place, value)) return 0;
  fc_error_format("ValueError", "type `%s` has another attribute `%.*s` already", fc_type_name(type_index),
                  (int)name.size, name.data);
  return -1;
}

static int register_attribute(int32_t type_index, TVMFFIByteArray name, const TVMFFIAny* value) {
  Column* column = column_of(name);
  if (!column || !widen(&column->column, type_index + 1)) return fc_error_no_memory(), -1;
  return set_place((TVMFFIAny*)&column->column.data[type_index], type_index, name, value);
}

int TVMFFITypeRegisterAttr(int32_t type_index, const TVMFFIByteArray* attr_name, const TVMFFIAny* attr_value) {
  int rc = fc_type_require(type_index);
  if (rc == 0) {
    lock();
    rc = register_attribute(type_index, *attr_name, attr_value);
    unlock();
  }
  return rc == 0 ? 0 : fc_registration_failed();
}

/*
 * A library that is being loaded gets every column that it asks for: for a missing one its constructors would throw,
 * which ends the process. An empty column means that no type has the attribute.
 */
const TVMFFITypeAttrColumn* TVMFFIGetTypeAttrColumn(const TVMFFIByteArray* attr_name) {
  lock();
  const Column* column = fc_thread.loading ? column_of(*attr_name) : find_column(*attr_name);
  unlock();
  return column ? &column->column : NULL;
}
