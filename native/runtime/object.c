/* Objects: reference counts, text, opaque pointers. */
#include <stdlib.h>

#include "runtime/runtime.h"

FC_TLS FcThread fc_thread;
const FcForeign* fc_foreign;

FcThreadMore* fc_thread_more(void) {
  if (fc_thread.more) return fc_thread.more;
  fc_thread.more = calloc(1, sizeof *fc_thread.more);
  fc_free_at_thread_end(fc_thread.more);
  return fc_thread.more;
}

/* ---- the end of an object ---- */

enum { NESTED_MAX = 32 }; /* deleters that run inside each other, so that a long chain of objects needs little stack */

static void end(TVMFFIObject* object, uint64_t old) {
  if (old == 0x100000001ULL) {
    if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskBoth);
    return;
  }
  if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskStrong);
  uint64_t weak = __atomic_fetch_sub(&object->combined_ref_count, 1ULL << 32, __ATOMIC_RELEASE);
  if (weak != 1ULL << 32) return;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (object->deleter) object->deleter(object, kTVMFFIObjectDeleterFlagBitMaskWeak);
}

/* Nobody looks at the count of an object without references, so it has room for the link of this list. */
static void end_later(TVMFFIObject* object) {
  object->combined_ref_count = (uint64_t)(uintptr_t)fc_thread.dead;
  fc_thread.dead = object;
}

void fc_decref_slow(TVMFFIObject* object, uint64_t old) {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (FC_UNLIKELY(fc_thread.ending >= NESTED_MAX) && old == 0x100000001ULL) return end_later(object);
  ++fc_thread.ending;
  end(object, old);
  while (FC_UNLIKELY(fc_thread.dead != NULL) && fc_thread.ending == 1) {
    TVMFFIObject* next = fc_thread.dead;
    fc_thread.dead = (TVMFFIObject*)(uintptr_t)next->combined_ref_count;
    end(next, 0x100000001ULL);
  }
  --fc_thread.ending;
}

static void free_plain(void* self, int flags) {
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

/* ---- text and bytes ---- */

typedef struct {
  TVMFFIObject header;
  TVMFFIByteArray bytes;
} BytesObj;

static int any_from_bytes_object(int32_t type_index, const char* data, size_t size, TVMFFIAny* out) {
  BytesObj* object = malloc(sizeof *object + size + 1);
  if (!object) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&object->header, type_index, free_plain);
  char* copy = (char*)(object + 1);
  memcpy(copy, data, size);
  copy[size] = 0;
  object->bytes.data = copy;
  object->bytes.size = size;
  *out = fc_any_object(object);
  return 0;
}

int fc_any_from_bytes(int32_t type_index, const char* data, size_t size, TVMFFIAny* out) {
  if (size > 7) return any_from_bytes_object(type_index, data, size, out);
  *out = fc_any_none();
  out->type_index = type_index == kTVMFFIStr ? kTVMFFISmallStr : kTVMFFISmallBytes;
  out->small_str_len = (uint32_t)size;
  if (size) memcpy(out->v_bytes, data, size);
  return 0;
}

static bool small_or_object(const TVMFFIAny* any, int32_t small, int32_t object, TVMFFIByteArray* out) {
  if (any->type_index == small) {
    out->data = any->v_bytes;
    out->size = any->small_str_len;
    return true;
  }
  if (any->type_index != object) return false;
  *out = *TVMFFIBytesGetByteArrayPtr(any->v_obj);
  return true;
}

bool fc_any_text(const TVMFFIAny* any, TVMFFIByteArray* out) {
  if (any->type_index != kTVMFFIRawStr) return small_or_object(any, kTVMFFISmallStr, kTVMFFIStr, out);
  out->data = any->v_c_str;
  out->size = strlen(any->v_c_str);
  return true;
}

bool fc_any_bytes(const TVMFFIAny* any, TVMFFIByteArray* out) {
  if (any->type_index != kTVMFFIByteArrayPtr) return small_or_object(any, kTVMFFISmallBytes, kTVMFFIBytes, out);
  *out = *(const TVMFFIByteArray*)any->v_ptr;
  return true;
}

/* The callee may take an object out of the caller's slot, once. */
static int take_rvalue(const TVMFFIAny* view, TVMFFIAny* out) {
  TVMFFIObject** slot = (TVMFFIObject**)view->v_ptr;
  if (!*slot) {
    fc_error_set("RuntimeError", "the value of an rvalue reference was already moved out");
    return -1;
  }
  *out = fc_any_object(*slot);
  *slot = NULL;
  return 0;
}

int fc_any_to_owned(const TVMFFIAny* view, TVMFFIAny* out) {
  TVMFFIByteArray bytes;
  switch (view->type_index) {
    case kTVMFFIRawStr: return fc_any_from_bytes(kTVMFFIStr, view->v_c_str, strlen(view->v_c_str), out);
    case kTVMFFIByteArrayPtr:
      bytes = *(const TVMFFIByteArray*)view->v_ptr;
      return fc_any_from_bytes(kTVMFFIBytes, bytes.data, bytes.size, out);
    case kTVMFFIObjectRValueRef: return take_rvalue(view, out);
    default:
      *out = *view;
      if (fc_any_is_object(view) && view->v_obj) fc_incref(view->v_obj);
      return 0;
  }
}

/* ---- opaque ---- */

typedef struct {
  TVMFFIObject header;
  TVMFFIOpaqueObjectCell cell;
  void (*deleter)(void*);
} OpaqueObj;

static void opaque_delete(void* self, int flags) {
  OpaqueObj* object = self;
  if ((flags & kTVMFFIObjectDeleterFlagBitMaskStrong) && object->deleter) object->deleter(object->cell.handle);
  free_plain(self, flags);
}

int fc_opaque_new(void* handle, int32_t type_index, void (*deleter)(void*), TVMFFIObjectHandle* out) {
  OpaqueObj* object = malloc(sizeof *object);
  if (!object) {
    fc_error_no_memory();
    return -1;
  }
  fc_object_init(&object->header, type_index, opaque_delete);
  object->cell.handle = handle;
  object->deleter = deleter;
  *out = object;
  return 0;
}

/* ---- the exported names ---- */

void TVMFFIGetVersion(TVMFFIVersion* out_version) { *out_version = (TVMFFIVersion){0, 1, 16}; }

int TVMFFIObjectIncRef(TVMFFIObjectHandle obj) {
  fc_incref(obj);
  return 0;
}

int TVMFFIObjectDecRef(TVMFFIObjectHandle obj) {
  fc_decref(obj);
  return 0;
}

int TVMFFIObjectCreateOpaque(void* handle, int32_t type_index, void (*deleter)(void*), TVMFFIObjectHandle* out) {
  return fc_opaque_new(handle, type_index, deleter, out);
}

int TVMFFIAnyViewToOwnedAny(const TVMFFIAny* any_view, TVMFFIAny* out) { return fc_any_to_owned(any_view, out); }

int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out) {
  return fc_any_from_bytes(kTVMFFIStr, input->data, input->size, out);
}

int TVMFFIBytesFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out) {
  return fc_any_from_bytes(kTVMFFIBytes, input->data, input->size, out);
}

/* ---- the memory of objects ---- */

static void free_space(void* body) { free((char*)body - *((size_t*)body - 2)); }

/* Before the body are two words: the distance to the start of the allocation, and the function that frees it. */
static void* allocate(size_t size, size_t alignment, int32_t type_index, void* context) {
  size_t head = 2 * sizeof(size_t);
  (void)type_index, (void)context;
  if (alignment < head) alignment = head;
  head = (head + alignment - 1) / alignment * alignment;
  char* memory = aligned_alloc(alignment, (head + size + alignment - 1) / alignment * alignment);
  if (!memory) {
    fc_error_no_memory();
    return NULL;
  }
  char* body = memory + head;
  *((size_t*)body - 2) = head;
  ((TVMFFIObjectAllocHeader*)body - 1)->delete_space = free_space;
  return body;
}

static TVMFFICustomAllocator builtin_allocator = {allocate, NULL};
static TVMFFICustomAllocator* allocator = &builtin_allocator;

TVMFFICustomAllocator* TVMFFIGetCustomAllocator(void) { return __atomic_load_n(&allocator, __ATOMIC_ACQUIRE); }

int TVMFFISetCustomAllocator(TVMFFICustomAllocator* other) {
  __atomic_store_n(&allocator, other ? other : &builtin_allocator, __ATOMIC_RELEASE);
  return 0;
}

/* ---- once ---- */

/* One recursive lock for all slots: initialisation is rare, and one initialisation may run another. */
static FcMutex once_lock;
static FcOnce once_made = FC_ONCE_INIT;

static void make_once_lock(void) { fc_mutex_init_recursive(&once_lock); }

int TVMFFIHandleInitOnce(void** handle_addr, int (*init_func)(void** result)) {
  if (__atomic_load_n(handle_addr, __ATOMIC_ACQUIRE)) return 0;
  fc_once(&once_made, make_once_lock);
  fc_mutex_lock(&once_lock);
  int rc = 0;
  if (!*handle_addr) {
    void* made = NULL;
    rc = init_func(&made);
    if (rc == 0 && !made) {
      fc_error_set("RuntimeError", "TVMFFIHandleInitOnce: the function returned NULL, which means that it has not run");
      rc = -1;
    }
    if (rc == 0) __atomic_store_n(handle_addr, made, __ATOMIC_RELEASE);
  }
  fc_mutex_unlock(&once_lock);
  return rc;
}

int TVMFFIHandleDeinitOnce(void** handle_addr, int (*deinit_func)(void* handle)) {
  void* old = __atomic_exchange_n(handle_addr, NULL, __ATOMIC_ACQ_REL);
  return old ? deinit_func(old) : 0;
}
