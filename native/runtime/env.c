/* The environment of a call: allocators, streams, signals; and the table of functions that libraries get. */
#include <stdatomic.h>

#include "runtime/device_memory.h"
#include "runtime/module.h"
#include "runtime/trace.h"

/* ---- allocators ---- */

static _Atomic(DLPackManagedTensorAllocator) global_allocator;

static DLPackManagedTensorAllocator set_allocator(void) {
  return fc_thread.allocator ? fc_thread.allocator : atomic_load(&global_allocator);
}

/* The framework of the call in progress has precedence over a set allocator: its tensors must own their memory. */
static DLPackManagedTensorAllocator current_allocator(void) {
  const DLPackExchangeAPI* exchange = fc_thread.exchange;
  if (exchange && exchange->managed_tensor_allocator) return exchange->managed_tensor_allocator;
  DLPackManagedTensorAllocator set = set_allocator();
  if (FC_UNLIKELY(set != NULL)) return set;
  return fc_foreign ? fc_foreign->allocator() : NULL;
}

/* torch appends its stack frames to the message. */
static void allocator_failed(void* context, const char* kind, const char* message) {
  const char* frames = message ? strstr(message, "\nException raised from") : NULL;
  int size = frames ? (int)(frames - message) : message ? (int)strlen(message) : 0;
  (void)context;
  fc_error_format(kind, "the caller's framework did not allocate the tensor: %.*s", size, message ? message : "");
}

static int alloc_by(DLPackManagedTensorAllocator allocator, DLTensor* prototype, TVMFFIObjectHandle* out) {
  DLManagedTensorVersioned* managed = NULL;
  if (allocator(prototype, &managed, NULL, allocator_failed) != 0 || !managed) {
    if (!fc_thread.error) fc_error_set("MemoryError", "the framework's allocator failed without saying why");
    return -1;
  }
  *out = fc_tensor_from_managed(managed);
  if (*out) return 0;
  if (managed->deleter) managed->deleter(managed);
  return -1;
}

static FC_COLD int no_allocator(DLDevice where) {
  char device[FC_NAME_MAX];
  fc_device_print(where, device);
  fc_error_format("RuntimeError",
                  "no allocator for device %s: pass a tensor of a framework that has it, register the device's memory, "
                  "or set an allocator by TVMFFIEnvSetDLPackManagedTensorAllocator",
                  device);
  return -1;
}

int fc_env_alloc(DLTensor* prototype, TVMFFIObjectHandle* out) {
  DLPackManagedTensorAllocator allocator = current_allocator();
  if (allocator) return alloc_by(allocator, prototype, out);
  bool cpu = FC_LIKELY(prototype->device.device_type == kDLCPU);
  if (!cpu && !fc_device_is_here(prototype->device)) return no_allocator(prototype->device);
  *out = cpu ? fc_tensor_alloc(prototype) : fc_device_tensor_new(prototype);
  return *out ? 0 : -1;
}

int TVMFFIEnvTensorAlloc(DLTensor* prototype, TVMFFIObjectHandle* out) { return fc_env_alloc(prototype, out); }

int TVMFFIEnvSetDLPackManagedTensorAllocator(DLPackManagedTensorAllocator allocator, int write_to_global_context,
                                             DLPackManagedTensorAllocator* opt_out_original_allocator) {
  if (opt_out_original_allocator) *opt_out_original_allocator = fc_thread.allocator;
  fc_thread.allocator = allocator;
  if (write_to_global_context) atomic_store(&global_allocator, allocator);
  return 0;
}

DLPackManagedTensorAllocator TVMFFIEnvGetDLPackManagedTensorAllocator(void) { return set_allocator(); }

/* ---- streams: a thread uses few devices, so a short list is faster than a table ---- */

static FcStream* find_stream(FcThreadMore* more, int32_t device_type, int32_t device_id) {
  for (int i = 0; more && i < more->stream_count; ++i) {
    FcStream* entry = &more->streams[i];
    if (entry->device_type == device_type && entry->device_id == device_id) return entry;
  }
  return NULL;
}

static FcStream* new_stream(FcThreadMore* more) {
  if (!more) {
    fc_error_no_memory();
    return NULL;
  }
  if (more->stream_count < FC_MAX_STREAMS) return &more->streams[more->stream_count++];
  fc_error_format("RuntimeError", "this thread has set streams on %d devices already", FC_MAX_STREAMS);
  return NULL;
}

int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, TVMFFIStreamHandle stream,
                       TVMFFIStreamHandle* opt_out_original_stream) {
  FcThreadMore* more = fc_thread_more();
  FcStream* entry = find_stream(more, device_type, device_id);
  if (opt_out_original_stream) *opt_out_original_stream = entry ? entry->stream : NULL;
  if (!entry) entry = new_stream(more);
  if (!entry) return -1;
  *entry = (FcStream){device_type, device_id, stream};
  return 0;
}

static TVMFFIStreamHandle no_framework(int32_t device_type, int32_t device_id) {
  (void)device_type, (void)device_id;
  return NULL;
}
TVMFFIStreamHandle (*fc_framework_stream)(int32_t device_type, int32_t device_id) = no_framework;

TVMFFIStreamHandle TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) {
  FcStream* entry = find_stream(fc_thread.more, device_type, device_id);
  if (entry && entry->stream) return entry->stream;
  /* Looked up only when a kernel asks, per device, so that a call that needs no stream pays nothing. */
  return fc_thread.exchange && device_type != kDLCPU ? fc_framework_stream(device_type, device_id) : NULL;
}

/* ---- signals ---- */

int TVMFFIEnvCheckSignals(void) { return fc_check_signals(); }

/* ---- the table that a library gets without importing symbols ---- */

static int dec_ref(TVMFFIObjectHandle object) {
  fc_decref(object);
  return 0;
}

static int tensor_copy(const DLTensor* from, const DLTensor* to) {
  FcPlace source = {(char*)from->data + from->byte_offset, from->device};
  FcPlace target = {(char*)to->data + to->byte_offset, to->device};
  int64_t nbytes = fc_nbytes(from);
  return nbytes < 0 ? -1 : fc_device_copy(target, source, (uint64_t)nbytes);
}

FarcallRuntime fc_runtime = {
    .abi_version = FARCALL_ABI_VERSION,
    .struct_size = sizeof(FarcallRuntime),
    .error_set_raised_from_cstr = fc_error_set_by_library,
    .env_tensor_alloc = fc_env_alloc,
    .object_dec_ref = dec_ref,
    .array_create = fc_array_new,
    .tracing = &fc_trace_on,
    .trace_begin = fc_trace_region_begin,
    .trace_end = fc_trace_region_end,
    .module_create = fc_module_create,
    .blob_read = fc_blob_read,
    .error_add_place = fc_error_add_place,
    .tensor_copy = tensor_copy,
};
