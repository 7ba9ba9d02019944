/* wire_write.h - the writing half of wire.h. Include wire.h. */
#ifndef FARCALL_WIRE_WRITE_H_
#define FARCALL_WIRE_WRITE_H_

/* The writer writes as far as the buffer has room, and measures the whole packet. */
typedef struct fc_wire__writer {
  uint8_t* out;
  uint64_t capacity, size;
  fc_wire_status status;
} fc_wire__writer;

/* Where the next n bytes go; NULL when there is no room for them. */
static inline uint8_t* fc_wire__put(fc_wire__writer* w, uint64_t n) {
  uint64_t at = w->size;
  if (n > UINT64_MAX - at) {
    w->status = FC_WIRE_E_LENGTH;
    return NULL;
  }
  w->size = at + n;
  return w->size <= w->capacity ? w->out + at : NULL;
}

static inline void fc_wire__put32(fc_wire__writer* w, uint32_t v) {
  uint8_t* p = fc_wire__put(w, 4);
  if (p) fc_wire_store32(p, v);
}

static inline void fc_wire__put64(fc_wire__writer* w, uint64_t v) {
  uint8_t* p = fc_wire__put(w, 8);
  if (p) fc_wire_store64(p, v);
}

static inline void fc_wire__put_dtype(fc_wire__writer* w, DLDataType dtype) {
  fc_wire__put32(w, (uint32_t)dtype.code | (uint32_t)dtype.bits << 8 | (uint32_t)dtype.lanes << 16);
}

static inline void fc_wire__put_string(fc_wire__writer* w, const TVMFFIByteArray* string) {
  fc_wire__put64(w, string->size);
  uint8_t* p = fc_wire__put(w, string->size);
  if (p) fc_wire_copy_bytes(p, (const uint8_t*)string->data, string->size);
}

static inline void fc_wire__put_tensor(fc_wire__writer* w, const fc_wire_tensor* t) {
  fc_wire__put64(w, t->data);
  fc_wire__put32(w, (uint32_t)t->device.device_type);
  fc_wire__put32(w, (uint32_t)t->device.device_id);
  fc_wire__put32(w, (uint32_t)t->ndim);
  fc_wire__put_dtype(w, t->dtype);
  if (t->ndim < 0) w->status = FC_WIRE_E_NDIM;
  for (int32_t i = 0; i < t->ndim; ++i) {
    if (t->shape[i] < 0) w->status = FC_WIRE_E_SHAPE;
    fc_wire__put64(w, (uint64_t)t->shape[i]);
  }
  fc_wire__put64(w, t->byte_offset);
}

static inline void fc_wire__put_value(fc_wire__writer* w, const TVMFFIAny* v) {
  fc_wire__put32(w, (uint32_t)v->type_index);
  switch (v->type_index) {
    case kTVMFFINone: return;
    case FC_WIRE_OBJECT_REF:
      fc_wire__put32(w, FC_WIRE_OBJECT_REF);
      fc_wire__put64(w, v->v_uint64);
      return;
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat:
    case kTVMFFIOpaquePtr:
    case kTVMFFIFunction:
    case kTVMFFIModule: fc_wire__put64(w, v->v_uint64); return;
    case kTVMFFIDataType:
      fc_wire__put_dtype(w, v->v_dtype);
      fc_wire__put32(w, 0);
      return;
    case kTVMFFIDevice:
      fc_wire__put32(w, (uint32_t)v->v_device.device_type);
      fc_wire__put32(w, (uint32_t)v->v_device.device_id);
      return;
    case kTVMFFIDLTensorPtr: fc_wire__put_tensor(w, (const fc_wire_tensor*)v->v_ptr); return;
    case kTVMFFISmallStr:
    case kTVMFFIStr:
      fc_wire__put32(w, kTVMFFIStr);
      fc_wire__put_string(w, (const TVMFFIByteArray*)v->v_ptr);
      return;
    case kTVMFFISmallBytes:
    case kTVMFFIBytes:
      fc_wire__put32(w, kTVMFFIBytes);
      fc_wire__put_string(w, (const TVMFFIByteArray*)v->v_ptr);
      return;
    case kTVMFFIRawStr:
    case kTVMFFIByteArrayPtr: fc_wire__put_string(w, (const TVMFFIByteArray*)v->v_ptr); return;
    default: w->status = FC_WIRE_E_TYPE;
  }
}

static inline void fc_wire__put_sequence(fc_wire__writer* w, const fc_wire_packet* p) {
  if (p->num_args < 0) w->status = FC_WIRE_E_ARGS;
  fc_wire__put32(w, (uint32_t)p->num_args);
  for (int32_t i = 0; i < p->num_args; ++i) fc_wire__put_value(w, &p->args[i]);
}

static inline void fc_wire__put_packet(fc_wire__writer* w, const fc_wire_packet* p) {
  fc_wire__put32(w, (uint32_t)p->code);
  switch (p->code) {
    case FC_WIRE_SHUTDOWN:
    case FC_WIRE_COPY_ACK: return;
    case FC_WIRE_COPY_TO_REMOTE:
    case FC_WIRE_COPY_FROM_REMOTE:
      fc_wire__put_tensor(w, &p->tensor);
      fc_wire__put64(w, p->nbytes);
      return;
    case FC_WIRE_INIT_SERVER:
      fc_wire__put_string(w, &p->version);
      fc_wire__put_sequence(w, p);
      return;
    case FC_WIRE_CALL_FUNC:
      fc_wire__put64(w, p->handle);
      fc_wire__put_sequence(w, p);
      return;
    default:
      if (p->code <= FC_WIRE_NONE || !fc_wire_code_name(p->code)) w->status = FC_WIRE_E_CODE;
      fc_wire__put_sequence(w, p);
  }
}

/*
 * Encodes a packet up to its payload (of kCopyToRemote and kCopyAck, whose `nbytes` bytes the caller sends next).
 * With out == NULL it only measures. `*size` is the encoded size; if that exceeds the capacity, the result is
 * FC_WIRE_E_CAPACITY. Unless the result is FC_WIRE_OK, what was written into the buffer is of no use.
 */
static inline fc_wire_status fc_wire_encode(const fc_wire_packet* p, uint8_t* out, uint64_t capacity, uint64_t* size) {
  fc_wire__writer w = {out, out ? capacity : 0, 8, FC_WIRE_OK}; /* behind the length, which is known last */
  fc_wire__put_packet(&w, p);
  *size = w.size;
  if (w.status != FC_WIRE_OK || !out) return w.status;
  if (w.size > capacity) return FC_WIRE_E_CAPACITY;
  int payload = p->code == FC_WIRE_COPY_TO_REMOTE || p->code == FC_WIRE_COPY_ACK;
  uint64_t length = w.size - 8;
  if (payload && p->nbytes > UINT64_MAX - length) return FC_WIRE_E_LENGTH;
  fc_wire_store64(out, payload ? length + p->nbytes : length);
  return FC_WIRE_OK;
}

#endif /* FARCALL_WIRE_WRITE_H_ */
