/* wire_read.h - the reading half of wire.h. Include wire.h. */
#ifndef FARCALL_WIRE_READ_H_
#define FARCALL_WIRE_READ_H_

#include "wire_values.h"

enum fc_wire_state {
  FC_WIRE_S_HEAD = 0, /* length and code */
  FC_WIRE_S_RANK,     /* kCopyToRemote: up to the tensor's rank, which determines the size of its header */
  FC_WIRE_S_BODY,     /* the buffered part of a body */
  FC_WIRE_S_PARSE,    /* the body is complete, but not parsed yet */
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
  uint64_t measured;  /* with FC_WIRE_FAILED: the value that was refused, */
  uint64_t allowed;   /*                      and the limit (0: no limit involved) */
  uint64_t body_size; /* bytes of this body to buffer; body_have have arrived */
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

/* True between packets, where a peer may close the connection in good order. */
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

/* ---- a complete body ------------------------------------------------------------------------------------- */

static inline fc_wire_event fc_wire__parse(fc_wire_reader* r, fc_wire_packet* out) {
  fc_wire__cursor c;
  c.limits = &r->limits;
  c.at = r->body;
  c.left = r->body_size;
  c.arena = (uint8_t*)r->arena;
  c.arena_capacity = r->arena_capacity;
  c.arena_used = c.measured = c.allowed = 0;
  c.status = FC_WIRE_OK;
  fc_wire__clear(out, r->code);
  fc_wire__body(&c, out);
  if (c.status != FC_WIRE_OK) return fc_wire__fail(r, c.status, c.measured, c.allowed);
  if (c.arena_used > r->arena_capacity) {
    r->need = c.arena_used;
    return FC_WIRE_ARENA; /* then the body is parsed again */
  }
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

/* Checks a length before the code is known: against the most that any code allows. */
static inline int fc_wire__check_length(fc_wire_reader* r, uint64_t length) {
  uint64_t most = r->limits.max_control > r->limits.max_call ? r->limits.max_control : r->limits.max_call;
  uint64_t copy = fc_wire__limit_of(r, FC_WIRE_COPY_TO_REMOTE);
  if (copy > most) most = copy;
  if (length >= 4 && length <= most) return 1;
  fc_wire__fail(r, FC_WIRE_E_LENGTH, length, length < 4 ? 4 : most);
  return 0;
}

/* The head is complete. Returns FC_WIRE_MORE to read on. */
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

/* How many of the next bytes of the stream may be written directly to *at, as by recv, without fc_wire_feed; 0 when
 * they must be fed. Call fc_wire_wrote after writing. */
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

/* Reads a payload in pieces: FC_WIRE_PAYLOAD_END comes after the next n bytes of it. Call it after FC_WIRE_PAYLOAD,
 * and after the end of each piece but the last; then set the sink. */
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

/* Takes bytes of the body. FC_WIRE_SPACE at most doubles the buffer, so that memory grows with the bytes received. */
static inline fc_wire_event fc_wire__take_body(fc_wire_reader* r, const uint8_t* bytes, uint64_t n, uint64_t* used) {
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

static inline fc_wire_event fc_wire__take_payload(fc_wire_reader* r, const uint8_t* bytes, uint64_t n, uint64_t* used) {
  uint64_t take = n < r->payload_left ? n : r->payload_left;
  if (r->sink) fc_wire_copy_bytes(r->sink + (r->payload_size - r->payload_left), bytes, take);
  r->payload_left -= take;
  *used += take;
  if (r->payload_left != 0) return FC_WIRE_MORE;
  r->state = FC_WIRE_S_HEAD;
  r->head_have = 0;
  return FC_WIRE_PAYLOAD_END;
}

static inline fc_wire_event fc_wire__take_head(fc_wire_reader* r, const uint8_t* bytes, uint64_t n, uint64_t* used,
                                               fc_wire_packet* out) {
  while (*used < n && r->head_have < FC_WIRE_HEAD_SIZE) {
    uint64_t want = (r->head_have < 8 ? 8 : FC_WIRE_HEAD_SIZE) - r->head_have;
    uint64_t take = want < n - *used ? want : n - *used;
    fc_wire_copy_bytes(r->head + r->head_have, bytes + *used, take);
    r->head_have += (uint32_t)take;
    *used += take;
    if (r->head_have != 8) continue;
    uint64_t length = fc_wire_load64(r->head);
    if (length == 0) {
      r->head_have = 0; /* legal; ignored */
    } else if (!fc_wire__check_length(r, length)) {
      return FC_WIRE_FAILED;
    }
  }
  return r->head_have == FC_WIRE_HEAD_SIZE ? fc_wire__begin(r, out) : FC_WIRE_MORE;
}

/*
 * Takes bytes and returns one event. `*used` is the number of bytes taken; feed the rest again until the event is
 * FC_WIRE_MORE. `*out` points into the caller's buffers, and is valid until the next feed.
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
    if (r->state == state && *used == before) return FC_WIRE_MORE; /* no progress: more bytes are needed */
  }
}

#endif /* FARCALL_WIRE_READ_H_ */
