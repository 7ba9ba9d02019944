/* wire_read.h - the reading half of wire.h. Include wire.h. */
#ifndef FARCALL_WIRE_READ_H_
#define FARCALL_WIRE_READ_H_

enum fc_wire_state {
  FC_WIRE_S_HEAD = 0, /* length and code */
  FC_WIRE_S_RANK,     /* kCopyToRemote: up to the tensor's rank, which gives the size of its header */
  FC_WIRE_S_BODY,     /* the buffered part of a body */
  FC_WIRE_S_PARSE,    /* the body is complete, its values are not yet handed out */
  FC_WIRE_S_PAYLOAD,
  FC_WIRE_S_FAILED
};

typedef struct fc_wire_reader {
  fc_wire_limits limits;
  uint8_t* body; /* the caller's buffer for one body */
  uint64_t body_capacity;
  void* arena; /* the caller's memory for one packet's values, aligned to 8 */
  uint64_t arena_capacity;
  uint8_t* sink;      /* where the payload goes; NULL drops it */
  uint64_t need;      /* with FC_WIRE_SPACE and FC_WIRE_ARENA */
  uint64_t measured;  /* with FC_WIRE_FAILED: what came, */
  uint64_t allowed;   /*                      and what the limit is (0: no limit involved) */
  uint64_t body_size; /* bytes that are buffered of this body */
  uint64_t body_have;
  uint64_t payload_size;
  uint64_t payload_left;
  int32_t code;
  int32_t state;
  fc_wire_status status;
  uint32_t head_have;
  uint8_t head[FC_WIRE_HEAD_SIZE];
} fc_wire_reader;

static inline void fc_wire_reader_init(fc_wire_reader* r, const fc_wire_limits* limits) {
  r->limits = *limits;
  r->body = NULL;
  r->arena = NULL;
  r->sink = NULL;
  r->body_capacity = r->arena_capacity = 0;
  r->need = r->measured = r->allowed = 0;
  r->body_size = r->body_have = 0;
  r->payload_size = r->payload_left = 0;
  r->code = 0;
  r->state = FC_WIRE_S_HEAD;
  r->status = FC_WIRE_OK;
  r->head_have = 0;
}

/* True between packets: a peer that closes here closed in good order. */
static inline int fc_wire_at_boundary(const fc_wire_reader* r) {
  return r->state == FC_WIRE_S_HEAD && r->head_have == 0;
}

static inline fc_wire_event fc_wire__fail(fc_wire_reader* r, fc_wire_status status, uint64_t measured,
                                          uint64_t allowed) {
  r->state = FC_WIRE_S_FAILED;
  r->status = status;
  r->measured = measured;
  r->allowed = allowed;
  return FC_WIRE_FAILED;
}

/* ---- the cursor over one body: without an arena it measures, with one it fills ------------------------ */

typedef struct fc_wire__cursor {
  const fc_wire_limits* limits;
  uint8_t* at;
  uint64_t left;
  uint8_t* arena; /* NULL while measuring */
  uint64_t arena_used;
  uint64_t measured, allowed;
  fc_wire_status status;
} fc_wire__cursor;

static inline void fc_wire__refuse(fc_wire__cursor* c, fc_wire_status status, uint64_t measured,
                                   uint64_t allowed) {
  if (c->status != FC_WIRE_OK) return;
  c->status = status;
  c->measured = measured;
  c->allowed = allowed;
}

/* The next n bytes of the body, or NULL. After a refusal everything answers NULL. */
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

/* n bytes of the arena, aligned to 8; NULL while measuring. */
static inline void* fc_wire__alloc(fc_wire__cursor* c, uint64_t n) {
  void* p = c->arena ? c->arena + c->arena_used : NULL;
  c->arena_used += (n + 7) & ~(uint64_t)7;
  return p;
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

/* Objects (and small text) repeat their type index in front of their value. */
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
    case kTVMFFINone:
      return;
    case kTVMFFIInt:
    case kTVMFFIBool:
    case kTVMFFIFloat: /* the bits of a double, as an integer of the host */
    case kTVMFFIOpaquePtr:
    case kTVMFFIFunction:
    case kTVMFFIModule:
      v->v_uint64 = fc_wire__u64(c);
      return;
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
    case kTVMFFIDLTensorPtr:
      fc_wire__tensor_value(c, v);
      return;
    case kTVMFFIRawStr:
    case kTVMFFIByteArrayPtr:
    case kTVMFFISmallStr:
    case kTVMFFISmallBytes:
    case kTVMFFIStr:
    case kTVMFFIBytes:
      fc_wire__string_value(c, v);
      return;
    default:
      fc_wire__refuse(c, FC_WIRE_E_TYPE, (uint32_t)v->type_index, 0);
  }
}

static inline void fc_wire__sequence(fc_wire__cursor* c, fc_wire_packet* out) {
  int32_t n = (int32_t)fc_wire__u32(c);
  if (n < 0 || n > c->limits->max_args) {
    fc_wire__refuse(c, FC_WIRE_E_ARGS, (uint32_t)n, (uint64_t)c->limits->max_args);
    return;
  }
  if ((uint64_t)n * 4 > c->left) { /* each value has at least its type: says so before memory is asked for */
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
    case FC_WIRE_SHUTDOWN:
      break;
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
    default:
      fc_wire__sequence(c, out);
  }
  if (c->status == FC_WIRE_OK && c->left != 0) fc_wire__refuse(c, FC_WIRE_E_TRAILING, c->left, 0);
}

/* The body is parsed, so a NUL may overwrite what follows a string (the type of the next value, or the spare
 * byte behind the body). */
static inline void fc_wire__terminate(fc_wire_packet* out) {
  if (out->version.data) ((char*)out->version.data)[out->version.size] = 0;
  for (int32_t i = 0; i < out->num_args; ++i) {
    int32_t type = out->args[i].type_index;
    if (!fc_wire_is_text(type) && !fc_wire_is_bytes(type)) continue;
    const TVMFFIByteArray* string = (const TVMFFIByteArray*)out->args[i].v_ptr;
    ((char*)string->data)[string->size] = 0;
  }
}

static inline void fc_wire__run(fc_wire_reader* r, fc_wire__cursor* c, uint8_t* arena, fc_wire_packet* out) {
  c->limits = &r->limits;
  c->at = r->body;
  c->left = r->body_size;
  c->arena = arena;
  c->arena_used = c->measured = c->allowed = 0;
  c->status = FC_WIRE_OK;
  fc_wire__clear(out, r->code);
  fc_wire__body(c, out);
}

static inline fc_wire_event fc_wire__parse(fc_wire_reader* r, fc_wire_packet* out) {
  fc_wire__cursor c;
  fc_wire__run(r, &c, NULL, out);
  if (c.status != FC_WIRE_OK) return fc_wire__fail(r, c.status, c.measured, c.allowed);
  if (c.arena_used > r->arena_capacity) {
    r->need = c.arena_used;
    return FC_WIRE_ARENA;
  }
  if (c.arena_used != 0) fc_wire__run(r, &c, (uint8_t*)r->arena, out);
  if (r->code == FC_WIRE_COPY_TO_REMOTE) {
    if (out->nbytes != r->payload_size) {
      return fc_wire__fail(r, FC_WIRE_E_PAYLOAD, out->nbytes, r->payload_size);
    }
    r->state = FC_WIRE_S_PAYLOAD;
    r->sink = NULL;
    return FC_WIRE_PAYLOAD;
  }
  if (out->num_args != 0 || out->version.data) fc_wire__terminate(out);
  r->state = FC_WIRE_S_HEAD;
  r->head_have = 0;
  return FC_WIRE_PACKET;
}

/* ---- the states ---------------------------------------------------------------------------------------- */

static inline uint64_t fc_wire__limit_of(const fc_wire_reader* r, int32_t code) {
  uint64_t copy = r->limits.max_payload + 64 + 8 * (uint64_t)(uint32_t)r->limits.max_ndim;
  switch (code) {
    case FC_WIRE_CALL_FUNC:
    case FC_WIRE_RETURN:
    case FC_WIRE_EXCEPTION: return r->limits.max_call;
    case FC_WIRE_COPY_TO_REMOTE: return copy < r->limits.max_payload ? UINT64_MAX : copy;
    case FC_WIRE_COPY_ACK: return r->limits.max_payload > UINT64_MAX - 4 ? UINT64_MAX : r->limits.max_payload + 4;
    default: return r->limits.max_control;
  }
}

/* As soon as the length is known: no code allows more than this. */
static inline int fc_wire__check_length(fc_wire_reader* r, uint64_t length) {
  uint64_t most = r->limits.max_control > r->limits.max_call ? r->limits.max_control : r->limits.max_call;
  uint64_t copy = fc_wire__limit_of(r, FC_WIRE_COPY_TO_REMOTE);
  if (copy > most) most = copy;
  if (length >= 4 && length <= most) return 1;
  fc_wire__fail(r, FC_WIRE_E_LENGTH, length, length < 4 ? 4 : most);
  return 0;
}

/* Head complete. Answers FC_WIRE_MORE to read on. */
static inline fc_wire_event fc_wire__begin(fc_wire_reader* r, fc_wire_packet* out) {
  uint64_t length = fc_wire_load64(r->head);
  r->code = (int32_t)fc_wire_load32(r->head + 8);
  if (r->code <= FC_WIRE_NONE || !fc_wire_code_name(r->code)) {
    return fc_wire__fail(r, FC_WIRE_E_CODE, (uint32_t)r->code, 0);
  }
  uint64_t limit = fc_wire__limit_of(r, r->code);
  if (length > limit) return fc_wire__fail(r, FC_WIRE_E_LENGTH, length, limit);
  r->body_have = 0;
  r->body_size = length - 4;
  r->payload_size = r->payload_left = 0;
  if (r->code == FC_WIRE_COPY_ACK) {
    r->payload_size = r->payload_left = length - 4;
    fc_wire__clear(out, r->code);
    out->nbytes = r->payload_left;
    r->state = FC_WIRE_S_PAYLOAD;
    r->sink = NULL;
    return FC_WIRE_PAYLOAD;
  }
  if (r->code == FC_WIRE_COPY_TO_REMOTE) {
    if (length - 4 < 40) return fc_wire__fail(r, FC_WIRE_E_SHORT, 40, length - 4);
    r->payload_size = length - 4; /* with the header, until the rank is known */
    r->body_size = 20;            /* data, device, rank */
    r->state = FC_WIRE_S_RANK;
    return FC_WIRE_MORE;
  }
  r->state = r->body_size == 0 ? FC_WIRE_S_PARSE : FC_WIRE_S_BODY;
  return FC_WIRE_MORE;
}

/* kCopyToRemote: the rank is known, and with it where the payload begins. */
static inline fc_wire_event fc_wire__ranked(fc_wire_reader* r) {
  uint64_t rest = r->payload_size;
  int32_t ndim = (int32_t)fc_wire_load32(r->body + 16);
  if (ndim < 0 || ndim > r->limits.max_ndim) {
    return fc_wire__fail(r, FC_WIRE_E_NDIM, (uint32_t)ndim, (uint64_t)r->limits.max_ndim);
  }
  r->body_size = 40 + 8 * (uint64_t)ndim; /* tensor, u64 payload size */
  if (r->body_size > rest) return fc_wire__fail(r, FC_WIRE_E_SHORT, r->body_size, rest);
  r->payload_size = r->payload_left = rest - r->body_size;
  if (r->payload_size > r->limits.max_payload) {
    return fc_wire__fail(r, FC_WIRE_E_PAYLOAD, r->payload_size, r->limits.max_payload);
  }
  r->state = FC_WIRE_S_BODY;
  return FC_WIRE_MORE;
}

/* Where the next bytes of the stream may be written without going through fc_wire_feed (recv straight into
 * place), and how many; 0 when they must be fed. Announce what was written with fc_wire_wrote. */
static inline uint64_t fc_wire_room(const fc_wire_reader* r, uint8_t** at) {
  if (r->state == FC_WIRE_S_PAYLOAD && r->sink && r->payload_left != 0) {
    *at = r->sink + (r->payload_size - r->payload_left);
    return r->payload_left;
  }
  if (r->state == FC_WIRE_S_BODY && r->body_capacity != 0) {
    uint64_t end = r->body_size < r->body_capacity - 1 ? r->body_size : r->body_capacity - 1;
    *at = r->body + r->body_have;
    return end > r->body_have ? end - r->body_have : 0;
  }
  return 0;
}

/* Takes a payload in pieces: FC_WIRE_PAYLOAD_END comes after n bytes of it, and the caller slices on. Call it when a
 * payload was announced, and after the end of each piece but the last; then set the sink. */
static inline void fc_wire_slice(fc_wire_reader* r, uint64_t n) {
  r->state = FC_WIRE_S_PAYLOAD;
  r->head_have = 0;
  r->sink = NULL;
  r->payload_size = r->payload_left = n;
}

static inline void fc_wire_wrote(fc_wire_reader* r, uint64_t n) {
  if (r->state == FC_WIRE_S_PAYLOAD) {
    r->payload_left -= n;
  } else {
    r->body_have += n;
  }
}

/* Takes bytes of the body; FC_WIRE_SPACE doubles the buffer at most, so memory follows what arrived. */
static inline fc_wire_event fc_wire__take_body(fc_wire_reader* r, const uint8_t* bytes, uint64_t n,
                                               uint64_t* used) {
  uint64_t want = r->body_size - r->body_have;
  if (want == 0 || n == 0) return FC_WIRE_MORE;
  uint64_t room = r->body_capacity > r->body_have + 1 ? r->body_capacity - 1 - r->body_have : 0;
  if (room == 0) {
    uint64_t doubled = r->body_capacity < 2048 ? 4096 : 2 * r->body_capacity;
    r->need = r->body_size + 1 < doubled ? r->body_size + 1 : doubled;
    return FC_WIRE_SPACE;
  }
  if (want > room) want = room;
  if (want > n) want = n;
  fc_wire_copy_bytes(r->body + r->body_have, bytes, want);
  r->body_have += want;
  *used += want;
  return FC_WIRE_MORE;
}

static inline fc_wire_event fc_wire__take_payload(fc_wire_reader* r, const uint8_t* bytes, uint64_t n,
                                                  uint64_t* used) {
  uint64_t take = n < r->payload_left ? n : r->payload_left;
  if (r->sink) fc_wire_copy_bytes(r->sink + (r->payload_size - r->payload_left), bytes, take);
  r->payload_left -= take;
  *used += take;
  if (r->payload_left != 0) return FC_WIRE_MORE;
  r->state = FC_WIRE_S_HEAD;
  r->head_have = 0;
  return FC_WIRE_PAYLOAD_END;
}

static inline fc_wire_event fc_wire__take_head(fc_wire_reader* r, const uint8_t* bytes, uint64_t n,
                                               uint64_t* used, fc_wire_packet* out) {
  while (*used < n && r->head_have < FC_WIRE_HEAD_SIZE) {
    r->head[r->head_have++] = bytes[(*used)++];
    if (r->head_have != 8) continue;
    uint64_t length = fc_wire_load64(r->head);
    if (length == 0) {
      r->head_have = 0; /* legal, and means nothing */
    } else if (!fc_wire__check_length(r, length)) {
      return FC_WIRE_FAILED;
    }
  }
  return r->head_have == FC_WIRE_HEAD_SIZE ? fc_wire__begin(r, out) : FC_WIRE_MORE;
}

/*
 * Takes bytes, answers with one event. `*used` is how many of the n bytes were taken; feed the rest again
 * until the event is FC_WIRE_MORE. What `*out` points to lives in the caller's buffers until the next feed.
 */
static inline fc_wire_event fc_wire_feed(fc_wire_reader* r, const uint8_t* bytes, uint64_t n, uint64_t* used,
                                         fc_wire_packet* out) {
  *used = 0;
  for (;;) {
    fc_wire_event event = FC_WIRE_MORE;
    uint64_t before = *used;
    int32_t state = r->state;
    switch (state) {
      case FC_WIRE_S_HEAD: event = fc_wire__take_head(r, bytes, n, used, out); break;
      case FC_WIRE_S_RANK:
        event = fc_wire__take_body(r, bytes + *used, n - *used, used);
        if (event == FC_WIRE_MORE && r->body_have == r->body_size) event = fc_wire__ranked(r);
        break;
      case FC_WIRE_S_BODY:
        event = fc_wire__take_body(r, bytes + *used, n - *used, used);
        if (event == FC_WIRE_MORE && r->body_have == r->body_size) r->state = FC_WIRE_S_PARSE;
        break;
      case FC_WIRE_S_PARSE: event = fc_wire__parse(r, out); break;
      case FC_WIRE_S_PAYLOAD: event = fc_wire__take_payload(r, bytes + *used, n - *used, used); break;
      default: return FC_WIRE_FAILED;
    }
    if (event != FC_WIRE_MORE) return event;
    if (r->state == state && *used == before) return FC_WIRE_MORE; /* nothing moved: more bytes are needed */
  }
}

#endif /* FARCALL_WIRE_READ_H_ */
