/*
 * fastrpc.h - what the stubs and skels of `farcall idl` share: the arguments of a remote call in the form of FastRPC.
 * Freestanding C11: it allocates nothing, and calls only memcpy and memset, which every compiler needs anyway.
 *
 * A call is a handle, a word (the scalars: which method, how many buffers) and an array of arguments: the in buffers,
 * the out buffers, the in handles, the out handles. A stub packs its parameters into such a call; a skel checks one,
 * unpacks it and calls the implementation. Between them is a transport: the three functions fc_remote_open,
 * fc_remote_invoke and fc_remote_close, which the program of the stub defines.
 *
 *   bits of the word   31..29  28..24   23..16       15..8        7..4        3..0
 *                      0       method   in buffers   out buffers  in handles  out handles
 *
 * Methods from 31 on have 31 in the word; their number is in the first four bytes of the first in buffer.
 */
#ifndef FARCALL_FASTRPC_H_
#define FARCALL_FASTRPC_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the buffers of FastRPC are little-endian, and both sides share their memory: this machine cannot take part"
#endif

/* Structs have the same layout on every machine: 32-bit x86 would align numbers of 8 bytes to 4. */
#ifdef __cplusplus
#define FC_REMOTE_ALIGN8 alignas(8)
extern "C" {
#else
#define FC_REMOTE_ALIGN8 _Alignas(8)
#endif

/* An open interface on the other side. Its value has no meaning on this one. */
typedef uint64_t fc_remote_handle;

/* One argument; the layout is that of the vendor's driver. */
typedef union fc_remote_arg {
  struct {
    void* data;
    size_t size; /* in bytes */
  } buffer;
  struct {
    int32_t fd;
    uint32_t offset;
  } dma;
  fc_remote_handle handle;
} fc_remote_arg;

/* Statuses of a call, by the numbers that the vendor's headers use. Methods may return others. */
enum {
  FC_REMOTE_OK = 0,
  FC_REMOTE_FAILED = 1,
  FC_REMOTE_NO_MEMORY = 2,
  FC_REMOTE_BAD_PARAMETER = 14, /* a wrong count, a short buffer, a handle that is not open */
  FC_REMOTE_UNSUPPORTED = 20    /* no such method */
};

enum { FC_REMOTE_BUFFERS_MAX = 255, FC_REMOTE_LONG_ID = 31, FC_REMOTE_OPEN = 0, FC_REMOTE_CLOSE = 1 };

/* An element of a sequence of strings. */
typedef struct fc_remote_string {
  char* data;
  int32_t dataLen; /* counts the NUL */
} fc_remote_string;

/* ---- the transport; each returns a status ---- */

int32_t fc_remote_open(const char* uri, fc_remote_handle* handle);
int32_t fc_remote_invoke(fc_remote_handle handle, uint32_t scalars, fc_remote_arg* args);
int32_t fc_remote_close(fc_remote_handle handle);

/* ---- the word ---- */

static inline uint32_t fc_remote_scalars(uint32_t method, uint32_t ins, uint32_t outs, uint32_t in_handles,
                                         uint32_t out_handles) {
  uint32_t id = method < FC_REMOTE_LONG_ID ? method : (uint32_t)FC_REMOTE_LONG_ID;
  return id << 24 | ins << 16 | outs << 8 | in_handles << 4 | out_handles;
}
static inline uint32_t fc_remote_ins(uint32_t scalars) { return scalars >> 16 & 255; }
static inline uint32_t fc_remote_outs(uint32_t scalars) { return scalars >> 8 & 255; }
static inline uint32_t fc_remote_in_handles(uint32_t scalars) { return scalars >> 4 & 15; }
static inline uint32_t fc_remote_out_handles(uint32_t scalars) { return scalars & 15; }

/* ---- bytes ---- */

static inline void fc_remote_get(void* to, const void* from, size_t size) {
  if (size != 0) __builtin_memcpy(to, from, size);
}
static inline void fc_remote_put(void* to, const void* from, size_t size) { fc_remote_get(to, from, size); }
static inline void fc_remote_zero(void* at, size_t size) {
  if (size != 0) __builtin_memset(at, 0, size);
}

/* ---- the side of the stub ---- */

/* A call in the making. A wrong count sets `bad`, and the call fails without being sent. */
typedef struct fc_remote_request {
  fc_remote_arg* args;
  uint32_t room; /* number of elements of `args` */
  uint32_t ins, outs, in_handles;
  bool bad;
} fc_remote_request;

static inline uint32_t fc_remote_used(const fc_remote_request* r) { return r->ins + r->outs + r->in_handles; }

static inline fc_remote_arg* fc_remote_next(fc_remote_request* r) {
  if (fc_remote_used(r) >= r->room) r->bad = true;
  return r->bad ? NULL : &r->args[fc_remote_used(r)];
}

static inline void fc_remote_add(fc_remote_request* r, uint32_t* number, const void* data, int32_t count, size_t unit) {
  fc_remote_arg* arg = fc_remote_next(r);
  if (!arg) return;
  if (count < 0 || (size_t)count > SIZE_MAX / unit || (count > 0 && !data) || *number >= FC_REMOTE_BUFFERS_MAX) {
    r->bad = true;
    return;
  }
  arg->buffer.data = (void*)data;
  arg->buffer.size = (size_t)count * unit;
  ++*number;
}

/* Adds a buffer of `count` elements. All in buffers come first, then the out buffers, then the handles. */
static inline void fc_remote_add_in(fc_remote_request* r, const void* data, int32_t count, size_t unit) {
  fc_remote_add(r, &r->ins, data, count, unit);
}
static inline void fc_remote_add_out(fc_remote_request* r, void* data, int32_t count, size_t unit) {
  fc_remote_add(r, &r->outs, data, count, unit);
}
static inline void fc_remote_add_dma(fc_remote_request* r, int32_t fd, uint32_t offset) {
  fc_remote_arg* arg = fc_remote_next(r);
  if (!arg) return;
  arg->dma.fd = fd;
  arg->dma.offset = offset;
  ++r->in_handles;
}

/* The units of a string with its NUL; 0, which the call refuses, without one. */
static inline int32_t fc_remote_text_count(fc_remote_request* r, const void* text, size_t unit) {
  size_t n = 0;
  while (text && (unit == 1 ? ((const char*)text)[n] != 0 : ((const uint16_t*)text)[n] != 0)) ++n;
  if (!text || n >= INT32_MAX) r->bad = true;
  return r->bad ? 0 : (int32_t)n + 1;
}

/* Ends a string that came back, whatever the other side wrote. */
static inline void fc_remote_end_text(void* text, int32_t count, size_t unit) {
  if (count > 0) fc_remote_zero((uint8_t*)text + ((size_t)count - 1) * unit, unit);
}

/* The lengths of the elements of a sequence of sequences travel as an array, which has room for a call's buffers. */
static inline void fc_remote_check_few(bool* bad, int32_t count) {
  if (count < 0 || count > FC_REMOTE_BUFFERS_MAX) *bad = true;
}

static inline int32_t fc_remote_send(fc_remote_request* r, fc_remote_handle handle, uint32_t method) {
  if (r->bad) return FC_REMOTE_BAD_PARAMETER;
  return fc_remote_invoke(handle, fc_remote_scalars(method, r->ins, r->outs, r->in_handles, 0), r->args);
}

/* ---- the side of the skel ---- */

/* A call being unpacked. The first thing that is wrong sets `bad`. */
typedef struct fc_remote_call {
  fc_remote_arg* args;
  uint32_t method;
  uint32_t in, ins_end, out, outs_end, in_handle, in_handles_end, out_handle, out_handles_end;
  bool bad;
} fc_remote_call;

static inline fc_remote_call fc_remote_begin(uint32_t scalars, fc_remote_arg* args) {
  fc_remote_call call = {args, scalars >> 24 & 31, 0, 0, 0, 0, 0, 0, 0, 0, scalars >> 29 != 0};
  call.ins_end = call.out = fc_remote_ins(scalars);
  call.outs_end = call.in_handle = call.out + fc_remote_outs(scalars);
  call.in_handles_end = call.out_handle = call.in_handle + fc_remote_in_handles(scalars);
  call.out_handles_end = call.out_handle + fc_remote_out_handles(scalars);
  if (call.method == FC_REMOTE_LONG_ID) {
    if (call.ins_end == 0 || args[0].buffer.size < 4 || !args[0].buffer.data) call.bad = true;
    else fc_remote_get(&call.method, args[0].buffer.data, 4);
    if (call.method < FC_REMOTE_LONG_ID) call.bad = true;
  }
  return call;
}

static inline void* fc_remote_take(fc_remote_call* call, uint32_t* at, uint32_t end, int32_t count, size_t unit,
                                   size_t align) {
  if (*at >= end || count < 0 || (size_t)count > SIZE_MAX / unit) call->bad = true;
  if (call->bad) return NULL;
  const fc_remote_arg* arg = &call->args[(*at)++];
  size_t need = (size_t)count * unit;
  bool usable = need == 0 || (arg->buffer.data && (uintptr_t)arg->buffer.data % align == 0);
  if (arg->buffer.size < need || !usable) {
    call->bad = true;
    return NULL;
  }
  return arg->buffer.data;
}

/* The next in or out buffer, which must hold `count` aligned elements; NULL if it does not, or if it is empty. */
static inline void* fc_remote_in(fc_remote_call* call, int32_t count, size_t unit, size_t align) {
  return fc_remote_take(call, &call->in, call->ins_end, count, unit, align);
}
static inline void* fc_remote_out(fc_remote_call* call, int32_t count, size_t unit, size_t align) {
  return fc_remote_take(call, &call->out, call->outs_end, count, unit, align);
}

/* An in buffer and the out buffer for its new contents, which begins with the old ones. */
static inline void* fc_remote_inrout(fc_remote_call* call, int32_t count, size_t unit, size_t align) {
  const void* in = fc_remote_in(call, count, unit, align);
  void* out = fc_remote_out(call, count, unit, align);
  if (!call->bad && in != out) fc_remote_get(out, in, (size_t)count * unit);
  return out;
}

/* A count in primIn. */
static inline int32_t fc_remote_count(fc_remote_call* call, const uint8_t* at) {
  uint32_t count;
  fc_remote_get(&count, at, 4);
  if (count > INT32_MAX) call->bad = true;
  return call->bad ? 0 : (int32_t)count;
}

/* A string, which ends with a NUL. */
static inline void* fc_remote_text(fc_remote_call* call, int32_t count, size_t unit) {
  uint8_t* text = (uint8_t*)fc_remote_in(call, count, unit, unit);
  if (count == 0) call->bad = true;
  for (size_t i = 1; !call->bad && i <= unit; ++i) call->bad = text[(size_t)count * unit - i] != 0;
  return call->bad ? NULL : text;
}

static inline fc_remote_arg* fc_remote_in_handle(fc_remote_call* call) {
  if (call->in_handle >= call->in_handles_end) call->bad = true;
  return call->bad ? NULL : &call->args[call->in_handle++];
}
static inline fc_remote_arg* fc_remote_out_handle(fc_remote_call* call) {
  if (call->out_handle >= call->out_handles_end) call->bad = true;
  return call->bad ? NULL : &call->args[call->out_handle++];
}

/* Whether everything was right, and nothing is left over. */
static inline bool fc_remote_complete(const fc_remote_call* call) {
  return !call->bad && call->in == call->ins_end && call->out == call->outs_end &&
         call->in_handle == call->in_handles_end && call->out_handle == call->out_handles_end;
}

#ifdef __cplusplus
}
#endif

#endif /* FARCALL_FASTRPC_H_ */
