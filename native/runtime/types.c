/*
 * The registry of types: names, indices, ancestors, and the fields and methods that libraries register. Attributes are
 * in runtime/type_attributes.c.
 *
 * Descriptions are read without a lock, even by code in libraries, and are never freed: a list that grows is copied
 * and published, and the old copy stays.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/runtime.h"

enum { CHUNK = 256, CHUNKS = 1024 };

typedef struct {
  TVMFFITypeInfo info;
  int32_t slots;    /* number of indices reserved for the type and its children, from its own index on */
  int32_t children; /* how many of these are in use, including its own */
} Type;

static _Atomic(Type*) chunks[CHUNKS];
static int32_t next_index = kTVMFFIDynObjectBegin;
static FcMutex types_lock;
static FcOnce types_made = FC_ONCE_INIT;

static const char* const static_names[] = {
    [kTVMFFINone] = "None",
    [kTVMFFIInt] = "int",
    [kTVMFFIBool] = "bool",
    [kTVMFFIFloat] = "float",
    [kTVMFFIOpaquePtr] = "void*",
    [kTVMFFIDataType] = "DataType",
    [kTVMFFIDevice] = "Device",
    [kTVMFFIDLTensorPtr] = "DLTensor*",
    [kTVMFFIRawStr] = "const char*",
    [kTVMFFIByteArrayPtr] = "TVMFFIByteArray*",
    [kTVMFFIObjectRValueRef] = "ObjectRValueRef",
    [kTVMFFISmallStr] = "ffi.SmallStr",
    [kTVMFFISmallBytes] = "ffi.SmallBytes",
    [kTVMFFIUnchanged] = "ffi.Unchanged",
    [kTVMFFIObject] = "ffi.Object",
    [kTVMFFIStr] = "ffi.String",
    [kTVMFFIBytes] = "ffi.Bytes",
    [kTVMFFIError] = "ffi.Error",
    [kTVMFFIFunction] = "ffi.Function",
    [kTVMFFIShape] = "ffi.Shape",
    [kTVMFFITensor] = "ffi.Tensor",
    [kTVMFFIArray] = "ffi.Array",
    [kTVMFFIMap] = "ffi.Map",
    [kTVMFFIModule] = "ffi.Module",
    [kTVMFFIOpaquePyObject] = "ffi.OpaquePyObject",
    [kTVMFFIList] = "ffi.List",
    [kTVMFFIDict] = "ffi.Dict",
    [kTVMFFIVisitInterrupt] = "ffi.VisitInterrupt",
    [kTVMFFIBigInt] = "ffi.BigInt",
};

/*
 * The first registered types are TVM FFI's, with its indices: a C++ library keeps the index of a class in a variable
 * that exists once in a process, so both runtimes must use the same number.
 */
static const struct {
  const char* name;
  int32_t parent;
} first_types[] = {
    {"ffi.EnumState", kTVMFFIObject},
    {"ffi.Enum", kTVMFFIObject},
    {"ffi.IntEnum", kTVMFFIDynObjectBegin + 1},
    {"ffi.StrEnum", kTVMFFIDynObjectBegin + 1},
    {"ffi.reflection.AccessStep", kTVMFFIObject},
    {"ffi.reflection.AccessPath", kTVMFFIObject},
    {"ffi.StructuralVisitor", kTVMFFIObject},
    {"ffi.VisitErrorContext", kTVMFFIObject},
    {"ffi.StructuralMutator", kTVMFFIObject},
    {"ffi.StructuralKey", kTVMFFIObject},
};

/* ---- the table ---- */

static Type* slot_of(int32_t index) {
  if (index < 0 || index >= CHUNK * CHUNKS) return NULL;
  Type* chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
  return chunk ? &chunk[index % CHUNK] : NULL;
}

/* A type is known once it has a name, which is written last. */
static const char* key_of(const Type* type) { return __atomic_load_n(&type->info.type_key.data, __ATOMIC_ACQUIRE); }

static Type* known(int32_t index) {
  Type* type = slot_of(index);
  return type && key_of(type) ? type : NULL;
}

static Type* room_for(int32_t index) {
  if (index < 0 || index >= CHUNK * CHUNKS) return NULL;
  if (!chunks[index / CHUNK]) atomic_store(&chunks[index / CHUNK], calloc(CHUNK, sizeof(Type)));
  return slot_of(index);
}

static TVMFFIByteArray keep_text(TVMFFIByteArray text) {
  char* copy = malloc(text.size + 1);
  if (!copy) return (TVMFFIByteArray){NULL, 0};
  if (text.size) memcpy(copy, text.data, text.size);
  copy[text.size] = 0;
  return (TVMFFIByteArray){copy, text.size};
}

static bool add(int32_t index, TVMFFIByteArray key, const Type* parent, int32_t slots) {
  Type* type = room_for(index);
  int32_t depth = parent ? parent->info.type_depth + 1 : 0;
  const TVMFFITypeInfo** ancestors = malloc(((size_t)depth + 1) * sizeof *ancestors);
  TVMFFIByteArray name = keep_text(key);
  if (!type || !ancestors || !name.data) {
    free((void*)ancestors);
    free((void*)name.data);
    return false;
  }
  for (int32_t i = 0; i + 1 < depth; ++i) ancestors[i] = parent->info.type_ancestors[i];
  if (depth) ancestors[depth - 1] = &parent->info;
  type->info.type_index = index;
  type->info.type_depth = depth;
  type->info.type_ancestors = ancestors;
  type->info.type_key_hash = fc_hash_bytes(name.data, name.size);
  type->slots = slots;
  type->children = 1;
  type->info.type_key.size = name.size;
  __atomic_store_n(&type->info.type_key.data, name.data, __ATOMIC_RELEASE);
  return true;
}

static void make_types(void) {
  fc_mutex_init_recursive(&types_lock);
  for (int32_t i = 0; i < (int32_t)(sizeof static_names / sizeof *static_names); ++i) {
    if (!static_names[i]) continue;
    const Type* parent = i > kTVMFFIObject ? slot_of(kTVMFFIObject) : NULL;
    add(i, (TVMFFIByteArray){static_names[i], strlen(static_names[i])}, parent, 1);
  }
  for (size_t i = 0; i < sizeof first_types / sizeof *first_types; ++i) {
    const char* name = first_types[i].name;
    add(next_index++, (TVMFFIByteArray){name, strlen(name)}, slot_of(first_types[i].parent), 1);
  }
}

static void lock(void) {
  fc_once(&types_made, make_types);
  fc_mutex_lock(&types_lock);
}

static void unlock(void) { fc_mutex_unlock(&types_lock); }

static bool has_key(const Type* type, TVMFFIByteArray key) {
  return type && key_of(type) && type->info.type_key.size == key.size &&
         memcmp(type->info.type_key.data, key.data, key.size) == 0;
}

/* A linear search: each type is looked up once, and there are few. */
static int32_t find_key(TVMFFIByteArray key) {
  for (int32_t i = 0; i < next_index; ++i) {
    if (has_key(slot_of(i), key)) return i;
  }
  return -2;
}

/* ---- indices ---- */

static int32_t choose_index(int32_t static_index, Type* parent, int32_t slots) {
  if (static_index >= 0 && static_index < kTVMFFIDynObjectBegin && !known(static_index)) return static_index;
  if (parent && parent->children + slots <= parent->slots) {
    int32_t index = parent->info.type_index + parent->children;
    parent->children += slots;
    return index;
  }
  int32_t index = next_index;
  next_index += slots;
  return index;
}

int32_t TVMFFITypeGetOrAllocIndex(const TVMFFIByteArray* type_key, int32_t static_type_index, int32_t type_depth,
                                  int32_t num_child_slots, int32_t child_slots_can_overflow,
                                  int32_t parent_type_index) {
  (void)type_depth, (void)child_slots_can_overflow; /* the parent sets the depth; any child may overflow */
  lock();
  int32_t index = find_key(*type_key);
  if (index == -2 && parent_type_index != -2 && num_child_slots >= 0 && num_child_slots < CHUNK * CHUNKS / 2) {
    Type* parent = known(parent_type_index);
    int32_t before = next_index;
    index = choose_index(static_type_index, parent, num_child_slots + 1);
    if (!add(index, *type_key, parent, num_child_slots + 1)) {
      index = -2;
      next_index = before;
    }
  }
  unlock();
  return index;
}

int32_t fc_own_type(int32_t* index, const char* name) {
  int32_t known_index = __atomic_load_n(index, __ATOMIC_RELAXED);
  if (FC_LIKELY(known_index > 0)) return known_index;
  TVMFFIByteArray key = {name, strlen(name)};
  known_index = TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 0, kTVMFFIObject); /* a known name keeps its index */
  __atomic_store_n(index, known_index, __ATOMIC_RELAXED);
  return known_index;
}

const TVMFFITypeInfo* TVMFFIGetTypeInfo(int32_t type_index) {
  static const TVMFFITypeInfo* none[1];
  static const TVMFFITypeInfo unknown = {
      .type_index = kTVMFFIAny, .type_key = {"(unregistered type)", 19}, .type_ancestors = none};
  fc_once(&types_made, make_types);
  const Type* type = known(type_index);
  return type ? &type->info : &unknown;
}

int TVMFFITypeKeyToIndex(const TVMFFIByteArray* type_key, int32_t* out_tindex) {
  lock();
  int32_t index = find_key(*type_key);
  unlock();
  *out_tindex = index;
  if (index >= 0) return 0;
  fc_error_format("KeyError", "no type is registered as `%.*s`", (int)type_key->size, type_key->data);
  fc_foreign_error_mirror();
  return -1;
}

void fc_type_each(bool (*visit)(void* context, const char* name, size_t size), void* context) {
  lock();
  for (int32_t i = 0; i < next_index; ++i) {
    const Type* type = known(i);
    if (type && !visit(context, type->info.type_key.data, type->info.type_key.size)) break;
  }
  unlock();
}

const char* fc_type_name(int32_t type_index) { return TVMFFIGetTypeInfo(type_index)->type_key.data; }

/* ---- descriptions ---- */

int fc_type_require(int32_t type_index) {
  fc_once(&types_made, make_types);
  if (known(type_index)) return 0;
  fc_error_format("IndexError", "no type has the index %d; register it by TVMFFITypeGetOrAllocIndex", (int)type_index);
  return -1;
}

static int no_type(int32_t type_index) {
  fc_type_require(type_index);
  return fc_registration_failed();
}

static int taken(const Type* type, const char* what, TVMFFIByteArray name) {
  fc_error_format("ValueError", "type `%s` has another %s `%.*s` already", type->info.type_key.data, what,
                  (int)name.size, name.data);
  return fc_registration_failed();
}

static bool same_text(TVMFFIByteArray a, TVMFFIByteArray b) {
  return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

/* Appends to a list that other threads may be reading. */
static bool append(const void** list, int32_t* count, size_t size, const void* item) {
  char* longer = malloc(((size_t)*count + 1) * size);
  if (!longer) return false;
  if (*count) memcpy(longer, *list, (size_t)*count * size);
  memcpy(longer + (size_t)*count * size, item, size);
  __atomic_store_n(list, longer, __ATOMIC_RELEASE);
  __atomic_store_n(count, *count + 1, __ATOMIC_RELEASE);
  return true;
}

static int finish(bool good) {
  if (good) return 0;
  fc_error_no_memory();
  return fc_registration_failed();
}

static int register_field(Type* type, const TVMFFIFieldInfo* info) {
  for (int32_t i = 0; i < type->info.num_fields; ++i) {
    const TVMFFIFieldInfo* old = &type->info.fields[i];
    if (!same_text(old->name, info->name)) continue;
    bool same = old->offset == info->offset && old->size == info->size;
    return same ? 0 : taken(type, "field", info->name);
  }
  TVMFFIFieldInfo copy = *info;
  copy.name = keep_text(info->name);
  copy.doc = keep_text(info->doc);
  copy.metadata = keep_text(info->metadata);
  if (fc_any_to_owned(&info->default_value_or_factory, &copy.default_value_or_factory) != 0) return -1;
  return finish(append((const void**)&type->info.fields, &type->info.num_fields, sizeof copy, &copy));
}

int TVMFFITypeRegisterField(int32_t type_index, const TVMFFIFieldInfo* info) {
  lock();
  Type* type = known(type_index);
  int rc = type ? register_field(type, info) : no_type(type_index);
  unlock();
  return rc;
}

/* Overloads have the same name, and differ in the types that their metadata states. */
static bool same_method(const TVMFFIMethodInfo* a, const TVMFFIMethodInfo* b) {
  return same_text(a->name, b->name) && same_text(a->metadata, b->metadata);
}

/* Keeps the first one: two copies of a library register two functions that do the same. */
static int register_method(Type* type, const TVMFFIMethodInfo* info) {
  for (int32_t i = 0; i < type->info.num_methods; ++i) {
    if (same_method(&type->info.methods[i], info)) return 0;
  }
  TVMFFIMethodInfo copy = *info;
  copy.name = keep_text(info->name);
  copy.doc = keep_text(info->doc);
  copy.metadata = keep_text(info->metadata);
  if (fc_any_to_owned(&info->method, &copy.method) != 0) return -1;
  return finish(append((const void**)&type->info.methods, &type->info.num_methods, sizeof copy, &copy));
}

int TVMFFITypeRegisterMethod(int32_t type_index, const TVMFFIMethodInfo* info) {
  lock();
  Type* type = known(type_index);
  int rc = type ? register_method(type, info) : no_type(type_index);
  unlock();
  return rc;
}

static int register_metadata(Type* type, const TVMFFITypeMetadata* metadata) {
  const TVMFFITypeMetadata* old = type->info.metadata;
  if (old && old->total_size != metadata->total_size) {
    return taken(type, "size in", (TVMFFIByteArray){"its metadata", 12});
  }
  TVMFFITypeMetadata* copy = old ? NULL : malloc(sizeof *copy);
  if (!copy) return finish(old != NULL);
  *copy = *metadata;
  copy->doc = keep_text(metadata->doc);
  __atomic_store_n(&type->info.metadata, copy, __ATOMIC_RELEASE);
  return 0;
}

int TVMFFITypeRegisterMetadata(int32_t type_index, const TVMFFITypeMetadata* metadata) {
  lock();
  Type* type = known(type_index);
  int rc = type ? register_metadata(type, metadata) : no_type(type_index);
  unlock();
  return rc;
}
