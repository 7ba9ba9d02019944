/* wire_values.h - parses the body of one packet, for the reading half of wire.h. Include wire.h. */
#ifndef FARCALL_WIRE_VALUES_H_
#define FARCALL_WIRE_VALUES_H_

/* The cursor fills values in as far as the arena has room, and measures how much it needs. */
typedef struct fc_wire__cursor {
  const fc_wire_limits* limits;
  uint8_t* at;
  uint64_t left;
  uint8_t* arena;
  uint64_t arena_capacity, arena_used;
  uint64_t measured, allowed;
  fc_wire_status status;
} fc_wire__cursor;

static inline void fc_wire__refuse(fc_wire__cursor* c, fc_wire_status status, uint64_t measured, uint64_t allowed) {
  if (c->status != FC_WIRE_OK) return;
  c->status = status;
  c->measured = measured;
  c->allowed = allowed;
}

/* The next n bytes of the body, or NULL if they are missing or the body was refused. */
static inline uint8_t* fc_wire__bytes(fc_wire__cursor* c, uint64_t n) {
  if (c->status != FC_WIRE_OK) return NULL;
  if (n > c->left) {
    fc_wire__refuse(c, FC_WIRE_E_SHORT, n, c->left);
    return NULL;
  }
  uint8_t* p = c->at;
  c->at += n;
  c->left -= n;
  return p;
}

static inline uint32_t fc_wire__u32(fc_wire__cursor* c) {
  const uint8_t* p = fc_wire__bytes(c, 4);
  return p ? fc_wire_load32(p) : 0;
}

static inline uint64_t fc_wire__u64(fc_wire__cursor* c) {
  const uint8_t* p = fc_wire__bytes(c, 8);
  return p ? fc_wire_load64(p) : 0;
}

/* n bytes of the arena, aligned to 8; NULL when it has no more room. */
static inline void* fc_wire__alloc(fc_wire__cursor* c, uint64_t n) {
  uint64_t at = c->arena_used;
  c->arena_used += (n + 7) & ~(uint64_t)7;
  return c->arena && c->arena_used <= c->arena_capacity ? c->arena + at : NULL;
}

static inline DLDataType fc_wire__dtype(fc_wire__cursor* c) {
  DLDataType dtype = {0, 0, 0};
  const uint8_t* p = fc_wire__bytes(c, 4);
  if (p) {
    dtype.code = p[0];
    dtype.bits = p[1];
    dtype.lanes = (uint16_t)(p[2] | p[3] << 8);
  }
  return dtype;
}

static inline void fc_wire__shape(fc_wire__cursor* c, fc_wire_tensor* t) {
  int64_t* shape = fc_wire__alloc(c, (uint64_t)t->ndim * 8);
  t->shape = shape;
  for (int32_t i = 0; i < t->ndim && c->status == FC_WIRE_OK; ++i) {
    int64_t dim = (int64_t)fc_wire__u64(c);
    if (dim < 0) fc_wire__refuse(c, FC_WIRE_E_SHAPE, (uint64_t)dim, 0);
    if (shape) shape[i] = dim;
  }
}

static inline void fc_wire__tensor(fc_wire__cursor* c, fc_wire_tensor* t) {
  t->data = fc_wire__u64(c);
  t->device.device_type = (DLDeviceType)fc_wire__u32(c);
  t->device.device_id = (int32_t)fc_wire__u32(c);
  t->ndim = (int32_t)fc_wire__u32(c);
  t->dtype = fc_wire__dtype(c);
  t->shape = NULL;
  t->byte_offset = 0;
  if (t->ndim < 0 || t->ndim > c->limits->max_ndim) {
    fc_wire__refuse(c, FC_WIRE_E_NDIM, (uint32_t)t->ndim, (uint64_t)c->limits->max_ndim);
    t->ndim = 0;
  }
  fc_wire__shape(c, t);
  t->byte_offset = fc_wire__u64(c);
}

static inline void fc_wire__string(fc_wire__cursor* c, TVMFFIByteArray* out) {
  uint64_t n = fc_wire__u64(c);
  if (n > c->limits->max_string) fc_wire__refuse(c, FC_WIRE_E_STRING, n, c->limits->max_string);
  const uint8_t* p = fc_wire__bytes(c, n);
  out->data = (const char*)p;
  out->size = p ? (size_t)n : 0;
}

/* Objects (and small text) repeat their type index before their value. */
static inline void fc_wire__inner(fc_wire__cursor* c, uint32_t expected) {
  uint32_t inner = fc_wire__u32(c);
  if (inner != expected) fc_wire__refuse(c, FC_WIRE_E_TYPE, inner, 0);
}

static inline void fc_wire__string_value(fc_wire__cursor* c, TVMFFIAny* v) {
  TVMFFIByteArray measured;
  TVMFFIByteArray* string = fc_wire__alloc(c, sizeof(TVMFFIByteArray));
  if (v->type_index == kTVMFFISmallStr || v->type_index == kTVMFFIStr) fc_wire__inner(c, kTVMFFIStr);
  if (v->type_index == kTVMFFISmallBytes || v->type_index == kTVMFFIBytes) fc_wire__inner(c, kTVMFFIBytes);
  fc_wire__string(c, string ? string : &measured);
  v->v_ptr = string;
}

static inline void fc_wire__tensor_value(fc_wire__cursor* c, TVMFFIAny* v) {
  fc_wire_tensor measured;
  fc_wire_tensor* tensor = fc_wire__alloc(c, sizeof(fc_wire_tensor));
  fc_wire__tensor(c, tensor ? tensor : &measured);
  v->v_ptr = tensor;
}

static inline void fc_wire__value(fc_wire__cursor* c, TVMFFIAny* v) {
  v->type_index = (int32_t)fc_wire__u32(c);
  v->zero_padding = 0;
  v->v_uint64 = 0;
  switch (v->type_index) {
    case kTVMFFINone: return;
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat: /* the bits of a double, as an integer of the host */
    case kTVMFFIOpaquePtr:
    case kTVMFFIFunction:
    case kTVMFFIModule: v->v_uint64 = fc_wire__u64(c); return;
    case FC_WIRE_OBJECT_REF:
      fc_wire__inner(c, FC_WIRE_OBJECT_REF);
      v->v_uint64 = fc_wire__u64(c);
      return;
    case kTVMFFIDataType:
      v->v_dtype = fc_wire__dtype(c);
      (void)fc_wire__u32(c);
      return;
    case kTVMFFIDevice:
      v->v_device.device_type = (DLDeviceType)fc_wire__u32(c);
      v->v_device.device_id = (int32_t)fc_wire__u32(c);
      return;
    case kTVMFFIDLTensorPtr: fc_wire__tensor_value(c, v); return;
    case kTVMFFIRawStr:
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallStr:
    case kTVMFFISmallBytes:
    case kTVMFFIStr:
    case kTVMFFIBytes: fc_wire__string_value(c, v); return;
    default: fc_wire__refuse(c, FC_WIRE_E_TYPE, (uint32_t)v->type_index, 0);
  }
}

static inline void fc_wire__sequence(fc_wire__cursor* c, fc_wire_packet* out) {
  int32_t n = (int32_t)fc_wire__u32(c);
  if (n < 0 || n > c->limits->max_args) {
    fc_wire__refuse(c, FC_WIRE_E_ARGS, (uint32_t)n, (uint64_t)c->limits->max_args);
    return;
  }
  if ((uint64_t)n * 4 > c->left) { /* each value takes at least its type: checked before asking for memory */
    fc_wire__refuse(c, FC_WIRE_E_SHORT, (uint64_t)n * 4, c->left);
    return;
  }
  TVMFFIAny measured;
  TVMFFIAny* args = fc_wire__alloc(c, (uint64_t)n * sizeof(TVMFFIAny));
  for (int32_t i = 0; i < n && c->status == FC_WIRE_OK; ++i) fc_wire__value(c, args ? &args[i] : &measured);
  out->num_args = n;
  out->args = args;
}

static inline void fc_wire__clear(fc_wire_packet* p, int32_t code) {
  p->code = code;
  p->num_args = 0;
  p->args = NULL;
  p->handle = p->nbytes = 0;
  p->version.data = NULL;
  p->version.size = 0;
  p->tensor.data = p->tensor.byte_offset = 0;
  p->tensor.shape = NULL;
  p->tensor.device.device_type = (DLDeviceType)0;
  p->tensor.device.device_id = p->tensor.ndim = 0;
  p->tensor.dtype.code = p->tensor.dtype.bits = 0;
  p->tensor.dtype.lanes = 0;
}

static inline void fc_wire__body(fc_wire__cursor* c, fc_wire_packet* out) {
  switch (out->code) {
    case FC_WIRE_SHUTDOWN: break;
    case FC_WIRE_COPY_TO_REMOTE:
    case FC_WIRE_COPY_FROM_REMOTE:
      fc_wire__tensor(c, &out->tensor);
      out->nbytes = fc_wire__u64(c);
      break;
    case FC_WIRE_INIT_SERVER:
      fc_wire__string(c, &out->version);
      fc_wire__sequence(c, out);
      break;
    case FC_WIRE_CALL_FUNC:
      out->handle = fc_wire__u64(c);
      fc_wire__sequence(c, out);
      break;
    default: fc_wire__sequence(c, out);
  }
  if (c->status == FC_WIRE_OK && c->left != 0) fc_wire__refuse(c, FC_WIRE_E_TRAILING, c->left, 0);
}

/* Ends each text with a NUL. The body is parsed already, so the NUL may overwrite the byte after the text (the type
 * of the next value, or the spare byte at the end of the body). */
static inline void fc_wire__terminate(fc_wire_packet* out) {
  if (out->version.data) ((char*)out->version.data)[out->version.size] = 0;
  for (int32_t i = 0; i < out->num_args; ++i) {
    int32_t type = out->args[i].type_index;
    if (!fc_wire_is_text(type) && !fc_wire_is_bytes(type)) continue;
    const TVMFFIByteArray* string = (const TVMFFIByteArray*)out->args[i].v_ptr;
    ((char*)string->data)[string->size] = 0;
  }
}

#endif /* FARCALL_WIRE_VALUES_H_ */
