/* A call of a region that a device computes. */
#include "server/far_regions.h"

#include <stdlib.h>

#include "server/far.h"

/* A tensor of a call. */
typedef struct Operand {
  DLTensor* here;      /* without data if it stays on the device */
  FcFarBuffer* buffer; /* borrowed, where the value is there already */
  bool there;          /* an input that is there */
  bool kept, stays;    /* an output that the device keeps, and that is not read */
  fc_wire_tensor wire;
  int64_t nbytes;
  void* turned; /* an input's bytes as they travel, if this machine has another byte order */
} Operand;

/* ---- buffers ---- */

static FcFarBuffer* add_buffer(FcFarModule* module) {
  FcFarBuffer* made = calloc(1, sizeof *made);
  if (!made) return fc_error_no_memory(), NULL;
  made->next = module->buffers;
  return module->buffers = made;
}

/* One that is free: the smallest that is large enough, or else any, whose memory is made anew. */
static FcFarBuffer* take_buffer(FcFarModule* module, FcFar* far, uint64_t nbytes) {
  FcFarBuffer* best = NULL;
  for (FcFarBuffer* one = module->buffers; one; one = one->next) {
    if (one->taken) continue;
    const bool fits = one->size >= nbytes, fitted = best && best->size >= nbytes;
    if (!best || (fits && (!fitted || one->size < best->size))) best = one;
  }
  if (!best && !(best = add_buffer(module))) return NULL;
  if (best->data == 0 || best->size < nbytes) {
    if (best->data != 0) fc_far_release(module->index, module->serial, FC_WIRE_DEV_FREE_DATA, best->data);
    *best = (FcFarBuffer){.next = best->next};
    if (fc_far_allocate(far, nbytes ? nbytes : 1, &best->data) != 0) return NULL;
    best->size = nbytes ? nbytes : 1;
  }
  best->taken = true;
  return best;
}

/* ---- values that stay on the device: tensors of hexagon:N, which only this module reads ---- */

typedef struct Kept {
  FcFarModule* module;
  FcFarBuffer* buffer;
} Kept;

static void drop_kept(FcTensorObj* tensor) {
  Kept* kept = tensor->context;
  kept->buffer->taken = false;
  fc_far_module_drop(kept->module);
  free(kept);
}

static const Kept* kept_of(const FcFarModule* module, const TVMFFIAny* arg) {
  if (arg->type_index != kTVMFFITensor || !fc_tensor_is_ours(arg->v_obj)) return NULL;
  const FcTensorObj* tensor = (const FcTensorObj*)arg->v_obj;
  const Kept* kept = tensor->release == drop_kept ? tensor->context : NULL;
  return kept && kept->module == module ? kept : NULL;
}

/* The value of an output, which takes its buffer. */
static int keep(FcFarModule* module, Operand* output, TVMFFIAny* out) {
  DLTensor like = *output->here;
  Kept* kept = malloc(sizeof *kept);
  if (!kept) return fc_error_no_memory(), -1;
  *kept = (Kept){module, output->buffer};
  like.device = (DLDevice){kDLHexagon, module->index};
  FcTensorObj* tensor = fc_tensor_new(&like, drop_kept, kept);
  if (!tensor) return free(kept), -1;
  output->buffer = NULL;
  ++module->references;
  *out = fc_any_object(tensor);
  return 0;
}

/* ---- operands ---- */

static void describe(Operand* operand, const DLTensor* tensor) {
  operand->wire = (fc_wire_tensor){.data = operand->buffer->data,
                                   .shape = tensor->shape,
                                   .device = {kDLCPU, 0},
                                   .ndim = tensor->ndim,
                                   .dtype = tensor->dtype};
}

static int take_operand(FcFarModule* module, FcFar* far, const TVMFFIAny* arg, bool input, Operand* out) {
  const Kept* kept = input ? kept_of(module, arg) : NULL;
  out->here = fc_any_tensor(arg);
  if (!out->here || (out->nbytes = fc_nbytes(out->here)) < 0) {
    if (!out->here) fc_error_set("TypeError", "a region on a device takes tensors");
    return -1;
  }
  out->there = kept != NULL;
  out->kept = !input && out->here->device.device_type == 0;
  out->stays = out->kept && !out->here->data;
  out->buffer = kept ? kept->buffer : take_buffer(module, far, (uint64_t)out->nbytes);
  if (!out->buffer) return -1;
  describe(out, out->here);
  if (!input || kept || !fc_wire_host_is_big()) return 0;
  if (!(out->turned = malloc((size_t)out->nbytes + 1))) return fc_error_no_memory(), -1;
  memcpy(out->turned, (char*)out->here->data + out->here->byte_offset, (size_t)out->nbytes);
  fc_wire_turn(out->turned, (uint64_t)out->nbytes, out->here->dtype);
  return 0;
}

static void end_operand(Operand* operand) {
  if (operand->buffer && !operand->there) operand->buffer->taken = false;
  free(operand->turned);
}

/* ---- the call ---- */

static FcFarRequest copy_of(Operand* operand, bool input) {
  char* bytes = (char*)operand->here->data + operand->here->byte_offset;
  return (FcFarRequest){.packet = {.code = input ? FC_WIRE_COPY_TO_REMOTE : FC_WIRE_COPY_FROM_REMOTE,
                                   .tensor = operand->wire,
                                   .nbytes = (uint64_t)operand->nbytes},
                        .payload = !input            ? NULL
                                   : operand->turned ? operand->turned
                                                     : bytes,
                        .sink = input ? NULL : bytes};
}

/* Sends the inputs, the call, and the reads of the outputs. `values` has room for n + 2, `requests` for n + 1. */
static int exchange(const FcFarRegion* region, FcFar* far, Operand* operands, int32_t n, TVMFFIAny* values,
                    FcFarRequest* requests) {
  int32_t count = 0, i = 0;
  values[0] = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_uint64 = region->module->mains[region->part]};
  values[1] = fc_any_int(region->inputs);
  for (int32_t k = 0; k < n; ++k) {
    values[k + 2] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &operands[k].wire};
  }
  for (; i < region->inputs; ++i) {
    if (!operands[i].there && operands[i].nbytes > 0) requests[count++] = copy_of(&operands[i], true);
  }
  requests[count++] = (FcFarRequest){
      .packet = {.code = FC_WIRE_CALL_FUNC, .num_args = n + 2, .args = values, .handle = region->module->compute}};
  for (; i < n; ++i) {
    if (!operands[i].stays && operands[i].nbytes > 0) requests[count++] = copy_of(&operands[i], false);
  }
  if (fc_far_ask_all(far, requests, count) != 0) return -1;
  for (i = region->inputs; i < n; ++i) {
    const DLTensor* here = operands[i].here;
    if (!operands[i].stays)
      fc_wire_turn((uint8_t*)here->data + here->byte_offset, (uint64_t)operands[i].nbytes, here->dtype);
  }
  return 0;
}

/* None, the value of the one output that is kept, or an Array of them. */
static int keep_all(FcFarModule* module, Operand* outputs, int32_t n, TVMFFIAny* values, TVMFFIAny* result) {
  TVMFFIObjectHandle array;
  int32_t count = 0, rc = 0;
  for (int32_t i = 0; rc == 0 && i < n; ++i) {
    if (outputs[i].kept && (rc = keep(module, &outputs[i], &values[count])) == 0) ++count;
  }
  while (rc != 0 && count > 0) fc_any_clear(&values[--count]);
  if (rc != 0) return -1;
  if (count < 2) return *result = count ? values[0] : fc_any_none(), 0;
  if (fc_array_new(values, count, &array) != 0) return -1;
  return *result = fc_any_object(array), 0;
}

static int compute(const FcFarRegion* region, Operand* operands, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcFarModule* module = region->module;
  TVMFFIAny* values = (TVMFFIAny*)(operands + n + 1);
  FcFar* far = fc_far_of(module->index, module->serial);
  if (!far) {
    fc_error_set("RemoteError", "it is lost with the session that it belonged to; load the artifact again");
    return -1;
  }
  for (int32_t i = 0; i < n; ++i) {
    if (take_operand(module, far, &args[i], i < region->inputs, &operands[i]) != 0) return -1;
  }
  if (exchange(region, far, operands, n, values, (FcFarRequest*)(values + n + 2)) != 0) return -1;
  return keep_all(module, operands + region->inputs, n - region->inputs, values, result);
}

int fc_far_region_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcFarRegion* region = self;
  const size_t each = sizeof(Operand) + sizeof(TVMFFIAny) + sizeof(FcFarRequest);
  if (n < region->inputs) return fc_error_set("TypeError", "a region on a device takes inputs and outputs"), -1;
  Operand* operands = calloc((size_t)n + 2, each);
  if (!operands) return fc_error_no_memory(), -1;
  int rc = compute(region, operands, args, n, result);
  for (int32_t i = 0; i < n; ++i) end_operand(&operands[i]);
  free(operands);
  return fc_far_named(region->module->index, "`main`", rc);
}
