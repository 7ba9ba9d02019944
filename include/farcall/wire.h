/*
 * wire.h - the packet codec of farcall's RPC, in freestanding C11.
 *
 * The format is that of Apache TVM's RPC since its release 0.21. After the handshake a connection carries
 * packets: u64 length of the code and the body, i32 code, body. All fields are little endian, packed back to
 * back, without alignment.
 *
 * The codec does no I/O, calls no function of the C library and allocates nothing: the caller supplies memory.
 *
 *   reading   fc_wire_feed() takes bytes in chunks of any size and returns events. Any bytes either parse or
 *             end in FC_WIRE_FAILED with a typed status. The reader asks for memory as bytes arrive, never on
 *             the strength of a claimed length. It does not buffer the payload of a copy: that goes to the
 *             sink, which the caller sets when the header of the copy is known.
 *   writing   fc_wire_encode() first measures, then writes. It does not copy a payload: the caller sends it
 *             after the encoded header (writev).
 *
 * Reader and writer share `fc_wire_packet`.
 *
 * Values are TVMFFIAny, with the payload of a *wire value*:
 *   None, Int, Bool, Float, OpaquePtr, DataType, Device    as in c_api.h (a handle is in v_uint64)
 *   DLTensorPtr                                            v_ptr is a `const fc_wire_tensor*`
 *   RawStr, ByteArrayPtr, SmallStr, SmallBytes, Str, Bytes v_ptr is a `const TVMFFIByteArray*`; the reader
 *                                                          puts a NUL behind its bytes
 *   Function, Module, FC_WIRE_OBJECT_REF                   v_uint64 is the handle
 * A handle is 64 bits that the server chose, never an address in this process.
 */
#ifndef FARCALL_WIRE_H_
#define FARCALL_WIRE_H_

#include <stddef.h>
#include <stdint.h>

#include "c_api.h"

/* The protocol version that kInitServer carries. TVM compares it for equality, and has not changed it since its
 * release 0.8, although the format did change: 0.21 and later use the format of this file. */
#define FC_WIRE_VERSION "0.8.0"

#define FC_WIRE_HEAD_SIZE 12 /* u64 length, i32 code */
#define FC_WIRE_OBJECT_REF 115 /* type index of a reference to a remote object that is not 68, 70 or 73 */

enum fc_wire_code {
  FC_WIRE_NONE = 0,
  FC_WIRE_SHUTDOWN = 1,
  FC_WIRE_INIT_SERVER = 2,
  FC_WIRE_CALL_FUNC = 3,
  FC_WIRE_RETURN = 4,
  FC_WIRE_EXCEPTION = 5,
  FC_WIRE_COPY_FROM_REMOTE = 6,
  FC_WIRE_COPY_TO_REMOTE = 7,
  FC_WIRE_COPY_ACK = 8,
  /* The rest are "syscalls": their body is a packed sequence only. */
  FC_WIRE_GET_GLOBAL_FUNC = 9,
  FC_WIRE_FREE_HANDLE = 10,
  FC_WIRE_DEV_SET_DEVICE = 11,
  FC_WIRE_DEV_GET_ATTR = 12,
  FC_WIRE_DEV_ALLOC_DATA = 13,
  FC_WIRE_DEV_FREE_DATA = 14,
  FC_WIRE_DEV_STREAM_SYNC = 15,
  FC_WIRE_COPY_AMONG_REMOTE = 16,
  FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE = 17,
  FC_WIRE_DEV_CREATE_STREAM = 18,
  FC_WIRE_DEV_FREE_STREAM = 19,
  FC_WIRE_DEV_SET_STREAM = 20,
  FC_WIRE_DEV_GET_CURRENT_STREAM = 21
};

typedef enum fc_wire_status {
  FC_WIRE_OK = 0,
  FC_WIRE_E_LENGTH,   /* a packet claims more bytes than the limits allow, or too few for its code */
  FC_WIRE_E_CODE,     /* unknown packet code */
  FC_WIRE_E_SHORT,    /* the body ends inside a field */
  FC_WIRE_E_TRAILING, /* the body has bytes after its last field */
  FC_WIRE_E_ARGS,     /* number of values negative or beyond the limit */
  FC_WIRE_E_TYPE,     /* unknown value type, or one that may not travel */
  FC_WIRE_E_STRING,   /* text or bytes longer than the limit */
  FC_WIRE_E_NDIM,     /* rank of a tensor negative or beyond the limit */
  FC_WIRE_E_SHAPE,    /* a dim is negative */
  FC_WIRE_E_PAYLOAD,  /* the payload of a copy does not match its header, or is beyond the limit */
  FC_WIRE_E_CAPACITY  /* (writing) the caller's buffer is too small */
} fc_wire_status;

typedef enum fc_wire_event {
  FC_WIRE_MORE = 0,    /* all bytes were taken; feed more */
  FC_WIRE_SPACE,       /* set a body buffer of at least `need` bytes that begins with the bytes of the old one */
  FC_WIRE_ARENA,       /* set an arena of at least `need` bytes */
  FC_WIRE_PACKET,      /* a whole packet, in *out; valid until the next feed */
  FC_WIRE_PAYLOAD,     /* header of kCopyToRemote or kCopyAck, in *out: set the sink, then feed on */
  FC_WIRE_PAYLOAD_END, /* the payload is complete */
  FC_WIRE_FAILED       /* `status` says why; the stream cannot be read on */
} fc_wire_event;

/* The reader's limits, all inclusive. */
typedef struct fc_wire_limits {
  uint64_t max_control; /* bytes after the length field: syscalls, kInitServer, kShutdown, copy headers */
  uint64_t max_call;    /* the same for kCallFunc, kReturn and kException */
  uint64_t max_payload; /* payload of one copy */
  uint64_t max_string;  /* one text or bytes value */
  int32_t max_args;
  int32_t max_ndim;
} fc_wire_limits;

/* A tensor as it travels: contiguous, its data a handle. */
typedef struct fc_wire_tensor {
  uint64_t data;
  uint64_t byte_offset;
  const int64_t* shape;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
} fc_wire_tensor;

typedef struct fc_wire_packet {
  int32_t code;
  int32_t num_args;
  const TVMFFIAny* args;
  uint64_t handle;         /* kCallFunc */
  TVMFFIByteArray version; /* kInitServer */
  fc_wire_tensor tensor;   /* kCopyFromRemote, kCopyToRemote */
  uint64_t nbytes;         /* of the payload: kCopyFromRemote, kCopyToRemote, kCopyAck */
} fc_wire_packet;

/* The name of a code as TVM writes it ("kCallFunc"), or NULL. */
static inline const char* fc_wire_code_name(int32_t code) {
  static const char* const names[] = {"kNone",
                                      "kShutdown",
                                      "kInitServer",
                                      "kCallFunc",
                                      "kReturn",
                                      "kException",
                                      "kCopyFromRemote",
                                      "kCopyToRemote",
                                      "kCopyAck",
                                      "kGetGlobalFunc",
                                      "kFreeHandle",
                                      "kDevSetDevice",
                                      "kDevGetAttr",
                                      "kDevAllocData",
                                      "kDevFreeData",
                                      "kDevStreamSync",
                                      "kCopyAmongRemote",
                                      "kDevAllocDataWithScope",
                                      "kDevCreateStream",
                                      "kDevFreeStream",
                                      "kDevSetStream",
                                      "kDevGetCurrentStream"};
  return code >= 0 && code <= FC_WIRE_DEV_GET_CURRENT_STREAM ? names[code] : NULL;
}

static inline const char* fc_wire_status_text(fc_wire_status status) {
  switch (status) {
    case FC_WIRE_OK: return "no error";
    case FC_WIRE_E_LENGTH: return "packet length out of bounds";
    case FC_WIRE_E_CODE: return "unknown packet code";
    case FC_WIRE_E_SHORT: return "packet ends inside a field";
    case FC_WIRE_E_TRAILING: return "packet has bytes behind its last field";
    case FC_WIRE_E_ARGS: return "number of values out of bounds";
    case FC_WIRE_E_TYPE: return "value type that cannot travel";
    case FC_WIRE_E_STRING: return "text or bytes too long";
    case FC_WIRE_E_NDIM: return "tensor rank out of bounds";
    case FC_WIRE_E_SHAPE: return "negative tensor dim";
    case FC_WIRE_E_PAYLOAD: return "payload size of a copy out of bounds";
    case FC_WIRE_E_CAPACITY: return "buffer too small";
  }
  return "unknown status";
}

static inline int fc_wire_is_text(int32_t type_index) {
  return type_index == kTVMFFIRawStr || type_index == kTVMFFISmallStr || type_index == kTVMFFIStr;
}

static inline int fc_wire_is_bytes(int32_t type_index) {
  return type_index == kTVMFFIByteArrayPtr || type_index == kTVMFFISmallBytes || type_index == kTVMFFIBytes;
}

/* ---- little-endian loads and stores on any host ------------------------------------------------------- */

static inline uint32_t fc_wire_load32(const uint8_t* p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t fc_wire_load64(const uint8_t* p) {
  return (uint64_t)fc_wire_load32(p) | (uint64_t)fc_wire_load32(p + 4) << 32;
}

static inline void fc_wire_store32(uint8_t* p, uint32_t v) {
  p[0] = (uint8_t)v;
  p[1] = (uint8_t)(v >> 8);
  p[2] = (uint8_t)(v >> 16);
  p[3] = (uint8_t)(v >> 24);
}

static inline void fc_wire_store64(uint8_t* p, uint64_t v) {
  fc_wire_store32(p, (uint32_t)v);
  fc_wire_store32(p + 4, (uint32_t)(v >> 32));
}

/* By eight bytes, since small processors and emulators take as long for a turn of a loop as for many instructions. */
static inline void fc_wire_copy_bytes(uint8_t* to, const uint8_t* from, uint64_t n) {
  uint64_t i = 0;
  for (; n - i >= 8; i += 8) fc_wire_store64(to + i, fc_wire_load64(from + i));
  for (; i < n; ++i) to[i] = from[i];
}

/* ---- payloads are little endian, too ------------------------------------------------------------------- */

static inline int fc_wire_host_is_big(void) {
  const union {
    uint16_t number;
    uint8_t first;
  } probe = {1};
  return probe.first == 0;
}

/* Bytes of one number in a tensor's memory (a lane, or half a complex lane); 1 where bytes hold packed numbers. */
static inline uint64_t fc_wire_number_bytes(DLDataType dtype) {
  uint64_t bits = dtype.code == kDLComplex ? dtype.bits / 2u : dtype.bits;
  return bits != 0 && bits % 8 == 0 ? bits / 8 : 1;
}

/* Converts the numbers of a payload in place between the byte orders of this host and of the wire; does nothing on a
 * little-endian host. Lanes, and the halves of a complex number, keep their places. (TVM's big-endian servers reverse
 * whole elements, which exchanges them.) */
static inline void fc_wire_turn(uint8_t* data, uint64_t nbytes, DLDataType dtype) {
  uint64_t number = fc_wire_number_bytes(dtype);
  if (number < 2 || !fc_wire_host_is_big()) return;
  for (uint64_t at = 0; at + number <= nbytes; at += number) {
    for (uint64_t i = 0, j = number - 1; i < j; ++i, --j) {
      uint8_t held = data[at + i];
      data[at + i] = data[at + j];
      data[at + j] = held;
    }
  }
}

/* Whether fc_wire_turn can convert a payload: a piece of a larger copy may end inside a number. */
static inline int fc_wire_can_turn(uint64_t nbytes, DLDataType dtype) {
  return !fc_wire_host_is_big() || nbytes % fc_wire_number_bytes(dtype) == 0;
}

/* Bytes of a compact tensor, sub-byte types rounded up. Returns 0, or -1 if the size does not fit in 64 bits. */
static inline int fc_wire_tensor_nbytes(const fc_wire_tensor* t, uint64_t* nbytes) {
  uint64_t bits = (uint64_t)t->dtype.bits * t->dtype.lanes;
  int empty = 0;
  for (int32_t i = 0; i < t->ndim; ++i) empty |= t->shape[i] == 0;
  *nbytes = 0;
  if (empty) return 0;
  for (int32_t i = 0; i < t->ndim; ++i) {
    uint64_t dim = (uint64_t)t->shape[i];
    if (t->shape[i] < 0 || (bits != 0 && dim > UINT64_MAX / bits)) return -1;
    bits *= dim;
  }
  *nbytes = bits / 8 + (bits % 8 != 0);
  return 0;
}

#include "wire_read.h"
#include "wire_write.h"

#endif /* FARCALL_WIRE_H_ */
