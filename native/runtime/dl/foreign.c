/*
 * Sharing the process with another runtime of the same ABI (apache-tvm-ffi).
 *
 * The TVMFFI* imports of a library are bound to one runtime only, and a file that both runtimes load is mapped once.
 * So either runtime may call a library that is bound to the other. Objects are compatible, but each runtime has its own
 * thread state and registry. This file connects them:
 *
 *  - an error that a library raises goes to both slots, and is taken from both;
 *  - during a call of a library that is bound to the other runtime, the other runtime uses this one's allocator;
 *  - global functions and allocators that this runtime does not have are looked up in the other, and functions that
 *    are registered in this one are also registered in the other if the name is free.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/dl/dl.h"

typedef struct {
  void (*move_error)(TVMFFIObjectHandle*);
  void (*set_error)(TVMFFIObjectHandle);
  int (*set_allocator)(DLPackManagedTensorAllocator, int, DLPackManagedTensorAllocator*);
  DLPackManagedTensorAllocator (*get_allocator)(void);
  int (*get_global)(const TVMFFIByteArray*, TVMFFIObjectHandle*);
  int (*set_global)(const TVMFFIByteArray*, TVMFFIObjectHandle, int);
} Foreign;

static Foreign foreign;
static _Atomic(const Foreign*) present;  /* &foreign once the other runtime was found */
static atomic_ullong loads_seen;         /* number of libraries loaded at the last search, plus 1 */
static FcMutex search_lock = FC_MUTEX_INIT;

/* Looks up a global symbol; false if there is none, or if it is this core's own. */
static bool find(const char* name, void* own, void* out) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (!found || found == own) return false;
  memcpy(out, &found, sizeof found);
  return true;
}

static void drop_error(const Foreign* other) {
  TVMFFIObjectHandle error = NULL;
  other->move_error(&error);
  if (error) fc_decref(error);
}

/* New reference or NULL. */
static TVMFFIObject* get_there(const Foreign* other, TVMFFIByteArray name) {
  TVMFFIObjectHandle function = NULL;
  if (other->get_global(&name, &function) == 0) return function;
  drop_error(other);
  return NULL;
}

/* Replaces only a function that this runtime registered in the other: `old`, or NULL. */
static void set_there(const Foreign* other, TVMFFIByteArray name, TVMFFIObject* function, const TVMFFIObject* old) {
  TVMFFIObject* there = get_there(other, name);
  if ((!there || there == old) && other->set_global(&name, function, there != NULL) != 0) drop_error(other);
  if (there) fc_decref(there);
}

static bool push(void* other, const char* name, size_t size, TVMFFIObject* function) {
  set_there(other, (TVMFFIByteArray){name, size}, function, NULL);
  return true;
}

static void search(void) {
  Foreign f = {0};
  bool all = find("TVMFFIErrorMoveFromRaised", (void*)TVMFFIErrorMoveFromRaised, &f.move_error) &&
             find("TVMFFIErrorSetRaised", (void*)TVMFFIErrorSetRaised, &f.set_error) &&
             find("TVMFFIEnvSetDLPackManagedTensorAllocator", (void*)TVMFFIEnvSetDLPackManagedTensorAllocator,
                  &f.set_allocator) &&
             find("TVMFFIEnvGetDLPackManagedTensorAllocator", (void*)TVMFFIEnvGetDLPackManagedTensorAllocator,
                  &f.get_allocator) &&
             find("TVMFFIFunctionGetGlobal", (void*)TVMFFIFunctionGetGlobal, &f.get_global) &&
             find("TVMFFIFunctionSetGlobal", (void*)TVMFFIFunctionSetGlobal, &f.set_global);
  if (!all || atomic_load(&present)) return;
  foreign = f;
  fc_global_each_function(push, &foreign);
  atomic_store(&present, &foreign);
}

static int read_loads(struct dl_phdr_info* info, size_t size, void* out) {
  (void)size;
  *(unsigned long long*)out = info->dlpi_adds;
  return 1;
}

/* Looks again only when libraries were loaded since the last time: this runs on every error. */
static const Foreign* look(void) {
  const Foreign* known = atomic_load_explicit(&present, memory_order_acquire);
  if (known) return known;
  unsigned long long loads = 0;
  dl_iterate_phdr(read_loads, &loads);
  if (atomic_load(&loads_seen) == loads + 1) return NULL;
  fc_mutex_lock(&search_lock);
  search();
  atomic_store(&loads_seen, loads + 1);
  fc_mutex_unlock(&search_lock);
  return atomic_load(&present);
}

/* ---- errors ---- */

static TVMFFIObject* take_error(void) {
  const Foreign* other = look();
  TVMFFIObjectHandle error = NULL;
  if (other) other->move_error(&error);
  return error;
}

static void mirror_error(void) {
  const Foreign* other = look();
  if (!other || !fc_thread.error) return;
  other->set_error(fc_thread.error);
  fc_thread.error_mirrored = true;
}

/* ---- the registry and allocators ---- */

static TVMFFIObject* find_global(const char* name, size_t size) {
  const Foreign* other = look();
  return other ? get_there(other, (TVMFFIByteArray){name, size}) : NULL;
}

static void set_global(const char* name, size_t size, TVMFFIObject* function, const TVMFFIObject* old) {
  const Foreign* other = look();
  if (other) set_there(other, (TVMFFIByteArray){name, size}, function, old);
}

/* The other runtime has no C function to remove a name, but a registered one. */
static void remove_global(const char* name, size_t size, const TVMFFIObject* function) {
  const Foreign* other = look();
  static const char remover_name[] = "ffi.FunctionRemoveGlobal";
  TVMFFIObject* there = other ? get_there(other, (TVMFFIByteArray){name, size}) : NULL;
  TVMFFIObject* remover = NULL;
  if (there == function && there) remover = get_there(other, (TVMFFIByteArray){remover_name, sizeof remover_name - 1});
  TVMFFIAny text, result = fc_any_none();
  if (remover && fc_any_from_bytes(kTVMFFIStr, name, size, &text) == 0) {
    if (TVMFFIFunctionGetCellPtr(remover)->safe_call(remover, &text, 1, &result) != 0) drop_error(other);
    fc_any_clear(&text);
    fc_any_clear(&result);
  }
  if (remover) fc_decref(remover);
  if (there) fc_decref(there);
}

/* Every allocation calls this, so it does not search for another runtime. */
static DLPackManagedTensorAllocator find_allocator(void) {
  const Foreign* other = atomic_load_explicit(&present, memory_order_acquire);
  return other ? other->get_allocator() : NULL;
}

/* The other runtime calls this when a library allocates through it during one of our calls. */
static int allocate_here(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                         void (*set_error)(void*, const char*, const char*)) {
  const DLPackExchangeAPI* exchange = fc_thread.exchange;
  if (exchange && exchange->managed_tensor_allocator) {
    return exchange->managed_tensor_allocator(prototype, out, context, set_error);
  }
  FcTensorObj* tensor = prototype->device.device_type == kDLCPU ? fc_tensor_alloc(prototype) : NULL;
  *out = tensor ? fc_tensor_to_managed(&tensor->header) : NULL;
  if (tensor) fc_decref(tensor);
  if (*out) return 0;
  set_error(context, "RuntimeError", "farcall could not allocate the tensor: no memory, or not on the CPU");
  return -1;
}

static int call_with_allocator(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  DLPackManagedTensorAllocator outer = NULL;
  TVMFFISafeCallType call;
  memcpy(&call, &self, sizeof call);
  foreign.set_allocator(allocate_here, 0, &outer);
  int rc = call(NULL, args, num_args, result);
  foreign.set_allocator(outer, 0, NULL);
  return rc;
}

static void wrap(TVMFFISafeCallType* call, void** self) {
  if (!look()) return;
  memcpy(self, call, sizeof *self);
  *call = call_with_allocator;
}

const FcForeign fc_dl_foreign = {
    .error_take = take_error,
    .error_mirror = mirror_error,
    .global = find_global,
    .global_set = set_global,
    .global_remove = remove_global,
    .allocator = find_allocator,
    .wrap = wrap,
};
