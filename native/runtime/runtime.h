/*
 * The part of the core that does not depend on Python: objects, errors, functions, tensors, and the environment of a
 * call.
 *
 * These functions may run without the GIL. A function that fails puts an error into the thread's slot and returns -1
 * or NULL. The exported TVMFFI* functions are thin wrappers: the core itself calls the fc_* functions, which are not
 * exported, so that no other library's symbols can replace them.
 */
#ifndef FARCALL_RUNTIME_RUNTIME_H_
#define FARCALL_RUNTIME_RUNTIME_H_

#include <farcall/c_api.h>
#include <stdbool.h>
#include <string.h>

#include "platform/port.h"

#define FC_COLD __attribute__((noinline, cold))
#define FC_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define FC_LIKELY(x) __builtin_expect(!!(x), 1)
#define FC_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The state of each thread. Large and rarely used members are in FcThreadMore: see FC_TLS. */
typedef struct {
  int32_t device_type;
  int32_t device_id;
  TVMFFIStreamHandle stream;
} FcStream;

enum { FC_MAX_STREAMS = 64, FC_MAX_ADDRESSES = 32 };

typedef struct {
  FcStream streams[FC_MAX_STREAMS];
  int stream_count;
  char backtrace[512];
  TVMFFIByteArray backtrace_bytes;
  const char* addresses[FC_MAX_ADDRESSES]; /* of the last TVMFFIBacktrace, the innermost first */
  int address_count;
} FcThreadMore;

typedef struct FcThread {
  TVMFFIObject* error;                    /* the raised error, owned, or NULL */
  const DLPackExchangeAPI* exchange;      /* the framework of the call in progress, or NULL */
  void* python_state;                     /* the thread's state in Python during a call from there, else NULL */
  DLPackManagedTensorAllocator allocator; /* set by TVMFFIEnvSetDLPackManagedTensorAllocator */
  FcThreadMore* more;                     /* see fc_thread_more; NULL until it is needed */
  bool error_mirrored;                    /* the other runtime has the error too: see fc_error_take */
  const char* span;                       /* the traceparent of the call in progress; its session tells it the server.
                                             NULL: none, or it was told */
  int threads;       /* that the call in progress may compute on; 0: it does not say */
  int threads_asked; /* by the keyword of the call that is about to begin; 0: it has none */
  int depth;                              /* of the nested list that is being converted */
  int loading;                            /* number of libraries being loaded: see fc_registration_failed */
  TVMFFIObject* load_error;               /* the first error of their constructors, owned, or NULL */
  TVMFFIObject* embedder;                 /* the library whose embedded modules are being loaded, which may keep their
                                             bytes where they are with a reference to it; else NULL */
  int ending;                             /* number of objects whose deleters are running */
  TVMFFIObject* dead;                     /* objects without references, whose deleters the outermost of them runs */
} FcThread;

extern FC_TLS FcThread fc_thread;
/* This thread's FcThreadMore, allocated on first use and freed when the thread ends. NULL when out of memory. */
FcThreadMore* fc_thread_more(void);

/* ---- values ---- */

static inline TVMFFIAny fc_any_none(void) {
  TVMFFIAny any = {.type_index = kTVMFFINone};
  return any;
}
static inline TVMFFIAny fc_any_int(int64_t value) {
  TVMFFIAny any = {.type_index = kTVMFFIInt, .v_int64 = value};
  return any;
}
/* The tag comes from the object's own header. */
static inline TVMFFIAny fc_any_object(void* object) {
  TVMFFIAny any = {.type_index = ((TVMFFIObject*)object)->type_index, .v_obj = (TVMFFIObject*)object};
  return any;
}
static inline bool fc_any_is_object(const TVMFFIAny* any) { return any->type_index >= kTVMFFIStaticObjectBegin; }

/* ---- objects ---- */

static inline void fc_object_init(TVMFFIObject* object, int32_t type_index, void (*deleter)(void*, int)) {
  object->combined_ref_count = 0x100000001ULL;
  object->type_index = type_index;
  object->__padding = 0;
  object->deleter = deleter;
}
static inline void fc_incref(void* object) {
  __atomic_fetch_add(&((TVMFFIObject*)object)->combined_ref_count, 1, __ATOMIC_RELAXED);
}
void fc_decref_slow(TVMFFIObject* object, uint64_t old);
static inline void fc_decref(void* handle) {
  TVMFFIObject* object = (TVMFFIObject*)handle;
  uint64_t old = __atomic_fetch_sub(&object->combined_ref_count, 1, __ATOMIC_RELEASE);
  if ((uint32_t)old == 1) fc_decref_slow(object, old);
}
/* Whether this is the only reference, strong or weak, so that the object's contents may be moved out of it. */
static inline bool fc_is_unique(void* object) {
  return __atomic_load_n(&((TVMFFIObject*)object)->combined_ref_count, __ATOMIC_ACQUIRE) == 0x100000001ULL;
}
/* Releases the value of an owned Any, and sets it to None. */
static inline void fc_any_clear(TVMFFIAny* any) {
  TVMFFIAny old = *any;
  *any = fc_any_none();
  if (fc_any_is_object(&old) && old.v_obj) fc_decref(old.v_obj);
}

/* Makes text or bytes: stored in the Any up to 7 bytes, else an object. type_index: kTVMFFIStr or kTVMFFIBytes. */
int fc_any_from_bytes(int32_t type_index, const char* data, size_t size, TVMFFIAny* out);
/* Reads any tag that holds text (8, 11, 65) or bytes (9, 12, 66); false for other tags. Borrows from `any`. */
bool fc_any_text(const TVMFFIAny* any, TVMFFIByteArray* out);
bool fc_any_bytes(const TVMFFIAny* any, TVMFFIByteArray* out);
/* Converts a view to an owned value; see TVMFFIAnyViewToOwnedAny. */
int fc_any_to_owned(const TVMFFIAny* view, TVMFFIAny* out);
/* A new Array. Takes ownership of the items, even on failure. */
int fc_array_new(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out);
int fc_opaque_new(void* handle, int32_t type_index, void (*deleter)(void*), TVMFFIObjectHandle* out);
/* "ffi.Tensor" for 70, and so on. */
const char* fc_type_name(int32_t type_index);
/*
 * The index of a type that farcall defines. The first call registers the type. `index` is a static variable for this
 * name only, initially 0, which caches the result. -2 when out of memory.
 */
int32_t fc_own_type(int32_t* index, const char* name);
/* IndexError when no type is registered under the index. */
int fc_type_require(int32_t type_index);
/* Calls `visit` with the name of each registered type. */
void fc_type_each(bool (*visit)(void* context, const char* name, size_t size), void* context);

/* ---- errors ---- */

FC_COLD void fc_error_set(const char* kind, const char* message);
/* Like fc_error_set, for a library, which another runtime may have called. */
FC_COLD void fc_error_set_by_library(const char* kind, const char* message);
FC_COLD void fc_error_format(const char* kind, const char* format, ...) FC_PRINTF(2, 3);
FC_COLD void fc_error_no_memory(void);
/* Takes the error out of the slot; the caller owns it. NULL when neither this runtime nor another one has an error. */
TVMFFIObject* fc_error_take(void);
/* Discards the raised error, if any. */
void fc_error_drop(void);
/* Says where this thread's error happened: see FarcallRuntime. */
void fc_error_add_place(const char* place);
/* A new error object. Takes ownership of cause and extra_context (may be NULL), even on failure. NULL: no memory. */
TVMFFIObject* fc_error_new(TVMFFIByteArray kind, TVMFFIByteArray message, TVMFFIByteArray backtrace,
                           TVMFFIObject* cause, TVMFFIObject* extra_context);
/*
 * The return value of a registering function that has set an error: -1, or 0 while a library is being loaded. A
 * library's constructors end the process on failure; instead the error is kept, and the load fails with it.
 */
FC_COLD int fc_registration_failed(void);
/* Puts an error into the slot, and takes ownership of the reference. */
void fc_error_raise(TVMFFIObject* error);
/* Whether an error only means that Python has an exception: C++ throws such an error after TVMFFIEnvCheckSignals(). */
bool fc_error_says_already_set(TVMFFIByteArray kind);

/* ---- containers: see runtime/map.c for the layout ---- */

static inline bool fc_type_is_container(int32_t type_index) {
  return type_index == kTVMFFIArray || type_index == kTVMFFIMap || type_index == kTVMFFIShape ||
         type_index == kTVMFFIList || type_index == kTVMFFIDict;
}

/* A new List. Takes ownership of the items, even on failure. */
int fc_list_new(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out);
/* Insert an item (taking ownership, even on failure) or erase items. The positions must be within the list. */
int fc_list_insert(TVMFFIObject* list, int64_t at, TVMFFIAny item);
void fc_list_erase(TVMFFIObject* list, int64_t begin, int64_t end);
int fc_shape_new(const int64_t* dims, size_t n, TVMFFIObjectHandle* out);
/* An empty Map or Dict (type_index). Up to 4 keys are found by comparison, more by hashing. */
int fc_map_new(int32_t type_index, TVMFFIObjectHandle* out);
/* Sets a key of a Dict, or of a Map not yet shared. Takes ownership of key and value, even on failure. */
int fc_map_set(TVMFFIObject* map, TVMFFIAny key, TVMFFIAny value);
/* The value of a key, borrowed; NULL when there is none. The key may be a view. */
const TVMFFIAny* fc_map_find(const TVMFFIObject* map, const TVMFFIAny* key);
bool fc_map_erase(TVMFFIObject* map, const TVMFFIAny* key);
/*
 * Iterates over the pairs in insertion order: start with a zeroed cursor, and continue while fc_map_next returns true.
 * Key and value are borrowed. The map must not change during the iteration.
 */
typedef struct {
  const TVMFFIAny* key;
  const TVMFFIAny* value;
  uint64_t at, left;
  bool begun;
} FcMapCursor;
bool fc_map_next(const TVMFFIObject* map, FcMapCursor* cursor);
/* Compare and hash keys; libraries have the same functions compiled in. */
bool fc_any_equal(const TVMFFIAny* a, const TVMFFIAny* b);
uint64_t fc_any_hash(const TVMFFIAny* any);
uint64_t fc_hash_bytes(const char* data, size_t size);

/* Records the addresses of a library's callers, for an error's backtrace: see runtime/dl/backtrace.c. May be NULL. */
extern void (*fc_note_callers)(FcThreadMore* more, const char* caller);

/* ---- functions ---- */

/* The object that TVMFFIFunctionCreate makes. */
typedef struct FcFunctionObj {
  TVMFFIObject header;
  TVMFFIFunctionCell cell;
  void* self;
  TVMFFISafeCallType call;
  void (*deleter)(void* self);
} FcFunctionObj;

int fc_function_new(void* self, TVMFFISafeCallType call, void (*deleter)(void*), TVMFFIObjectHandle* out);
/* The innermost callable and its self, which a caller may call directly. */
void fc_function_target(TVMFFIObject* function, TVMFFISafeCallType* call, void** self);

/* The registry of global functions. Names are UTF-8 with a length. */
int fc_global_set(const char* name, size_t size, TVMFFIObject* function, bool override);
TVMFFIObject* fc_global_get(const char* name, size_t size); /* new reference, NULL when there is none */
bool fc_global_remove(const char* name, size_t size);
/* Looks up unregistered names for TVMFFIFunctionGetGlobal; returns a new reference or NULL. May itself be NULL. */
extern TVMFFIObject* (*fc_unregistered)(const char* name, size_t size);
/* The JSON that was registered with a function, or ""; ValueError when there is no such function. */
int fc_global_metadata(const char* name, size_t size, TVMFFIAny* result);
/* Calls `visit` for each name, holding the registry's lock; stops when it returns false. */
void fc_global_each(bool (*visit)(void* context, const char* name, size_t size), void* context);
void fc_global_each_function(bool (*visit)(void* context, const char* name, size_t size, TVMFFIObject* function),
                             void* context);

/* ---- tensors ---- */

/* Every Tensor that the core makes. Shape and strides follow it in the same allocation. */
typedef struct FcTensorObj {
  TVMFFIObject header;
  DLTensor dl;
  void (*release)(struct FcTensorObj* self); /* frees the memory at dl.data; may be NULL */
  void* context;                             /* for release */
  uint64_t flags;                            /* DLPACK_FLAG_BITMASK_* */
  size_t room;                               /* bytes of the allocation, if `fc_tensor_heap` gave it; or 0 */
} FcTensorObj;

/* Where tensors with their data come from, if not from malloc(). `room` is what give() needs. */
typedef struct FcTensorHeap {
  void* (*take)(size_t size, size_t* room);
  void (*give)(void* memory, size_t room);
} FcTensorHeap;
extern const FcTensorHeap* fc_tensor_heap; /* or NULL; set when the program starts */

/*
 * A tensor around memory that the caller supplies. strides: in elements, NULL for row-major. `release` runs once,
 * in the thread that drops the last reference, with or without the GIL.
 */
FcTensorObj* fc_tensor_new(const DLTensor* like, void (*release)(FcTensorObj*), void* context);
/* An uninitialised row-major CPU tensor like the prototype, aligned to 64 bytes. Object and data are one allocation. */
FcTensorObj* fc_tensor_alloc(const DLTensor* prototype);
/* The same, zeroed, so that a client cannot read the process's earlier data. New pages, which are zero, are not cleared. */
FcTensorObj* fc_tensor_zeros(const DLTensor* prototype);
/* A row-major copy on the CPU of a CPU tensor. */
FcTensorObj* fc_tensor_compact(const DLTensor* from);
/* Whether this core made a Tensor object, so that it may be cast to FcTensorObj. */
bool fc_tensor_is_ours(const TVMFFIObject* object);
static inline DLTensor* fc_tensor_dl(TVMFFIObject* object) { return TVMFFITensorGetDLTensorPtr(object); }
/* The DLTensor of a value with tag 7 or 70; NULL for other tags. */
static inline DLTensor* fc_any_tensor(const TVMFFIAny* any) {
  if (any->type_index == kTVMFFITensor) return fc_tensor_dl(any->v_obj);
  return any->type_index == kTVMFFIDLTensorPtr ? (DLTensor*)any->v_ptr : NULL;
}
FcTensorObj* fc_tensor_from_managed(DLManagedTensorVersioned* managed);
FcTensorObj* fc_tensor_from_legacy(DLManagedTensor* managed);
DLManagedTensorVersioned* fc_tensor_to_managed(TVMFFIObject* tensor); /* takes a reference */
DLManagedTensor* fc_tensor_to_legacy(TVMFFIObject* tensor);
/*
 * If `tensor` is the only reference to an object that wraps a managed tensor: consumes that reference and returns the
 * managed tensor. Else NULL.
 */
DLManagedTensorVersioned* fc_tensor_unwrap(TVMFFIObject* tensor);
uint64_t fc_tensor_flags(const TVMFFIObject* tensor);
bool fc_is_contiguous(const DLTensor* dl);
int64_t fc_numel(const DLTensor* dl);
/* Bytes of a row-major tensor; -1 with an error when a dim is negative or the size overflows. */
int64_t fc_nbytes(const DLTensor* dl);
/* Scalable vectors: the machine chooses the number of lanes, so the size of an element is unknown. */
static inline bool fc_is_scalable(DLDataType dtype) { return (int16_t)dtype.lanes < 0; }
void fc_row_major(int32_t ndim, const int64_t* shape, int64_t* strides);

/* ---- types and devices as text ---- */

#define FC_NAME_MAX 64
/* False, without an error, when the text is not a dtype. */
bool fc_dtype_parse(const char* text, size_t size, DLDataType* out);
void fc_dtype_print(DLDataType dtype, char out[FC_NAME_MAX]);
static inline bool fc_dtype_equal(DLDataType a, DLDataType b) { return memcmp(&a, &b, sizeof a) == 0; }
bool fc_device_parse(const char* text, size_t size, DLDevice* out);
void fc_device_print(DLDevice device, char out[FC_NAME_MAX]);
/* A tensor behind a session: see DLDeviceType in c_api.h. */
#define FC_REMOTE_STEP 128
static inline bool fc_device_is_remote(DLDevice device) { return (int)device.device_type >= FC_REMOTE_STEP; }

/* ---- the environment ---- */

/* Allocates as TVMFFIEnvTensorAlloc does. */
int fc_env_alloc(DLTensor* prototype, TVMFFIObjectHandle* out);
/* Set by the Python half: returns non-zero when a signal handler raised. Called without the GIL. */
extern int (*fc_check_signals)(void);
/* Set by the Python half: the current stream of the framework that made the call in progress; NULL when none. */
extern TVMFFIStreamHandle (*fc_framework_stream)(int32_t device_type, int32_t device_id);

/* ---- another runtime in this process ---- */

/* Shares errors, functions and allocators with it. runtime/dl/foreign.c fills the table. */
typedef struct FcForeign {
  /* Takes the error from the other runtime's slot; NULL when there is no error, or no other runtime. */
  TVMFFIObject* (*error_take)(void);
  /* Puts this thread's error into the other runtime's slot too. */
  void (*error_mirror)(void);
  /* A function that the other runtime has registered; new reference or NULL. */
  TVMFFIObject* (*global)(const char* name, size_t size);
  /* Registers a function in the other runtime, in place of `old` (may be NULL). */
  void (*global_set)(const char* name, size_t size, TVMFFIObject* function, const TVMFFIObject* old);
  /* Removes it again. */
  void (*global_remove)(const char* name, size_t size, const TVMFFIObject* function);
  /* The allocator that the other runtime uses; NULL when none is set. */
  DLPackManagedTensorAllocator (*allocator)(void);
  /* Wraps a function of a library that is bound to the other runtime, so that it allocates through this one. */
  void (*wrap)(TVMFFISafeCallType* call, void** self);
} FcForeign;

/* NULL in a program that loads no libraries. Set before any other thread runs native code. */
extern const FcForeign* fc_foreign;

static inline TVMFFIObject* fc_foreign_error_take(void) { return fc_foreign ? fc_foreign->error_take() : NULL; }
static inline void fc_foreign_error_mirror(void) {
  if (fc_foreign) fc_foreign->error_mirror();
}

extern FarcallRuntime fc_runtime; /* const once the program has started: fc_pool_start */

#endif /* FARCALL_RUNTIME_RUNTIME_H_ */
