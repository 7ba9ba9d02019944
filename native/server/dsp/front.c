#include "server/dsp/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 1 << 26, HANDLES_MAX = 64, ARGS_MAX = 2 * FC_REMOTE_BUFFERS_MAX + 30 };

typedef struct Request {
  uint32_t scalars;
  uint32_t size;
  fc_remote_handle handle;
} Request;

typedef struct Reply {
  int32_t status;
  uint32_t size;
} Reply;

_Static_assert(sizeof(Request) == 16 && sizeof(Reply) == 8, "the layout of front.h");

/* A block of bytes that only grows. */
typedef struct Block {
  uint8_t* data;
  size_t room;
} Block;

static bool reserve(Block* block, size_t size) {
  if (size <= block->room) return true;
  free(block->data);
  block->data = malloc(size);
  block->room = block->data ? size : 0;
  return block->data != NULL;
}

/* 0; -EPIPE if there are no bytes any more; or failed. */
static int receive_all(FcChannel* channel, void* to, size_t n) {
  for (size_t at = 0; at < n;) {
    ptrdiff_t got = fc_channel_receive(channel, (uint8_t*)to + at, n - at, 0);
    if (got <= 0) return got < 0 ? (int)got : at == 0 ? -EPIPE : -EPROTO;
    at += (size_t)got;
  }
  return 0;
}

static uint64_t padded(uint64_t n) { return (n + 7) & ~UINT64_C(7); }

/* Points the arguments into the request's bytes and the reply's block. 0, or failed. */
static int unpack(const Request* request, uint8_t* body, fc_remote_arg* args, Block* reply, uint32_t* reply_size) {
  uint32_t ins = fc_remote_ins(request->scalars), buffers = ins + fc_remote_outs(request->scalars);
  uint32_t in_handles = fc_remote_in_handles(request->scalars), out_handles = fc_remote_out_handles(request->scalars);
  uint64_t at = padded(4 * buffers) + 8 * in_handles, out = 0;
  if (at > request->size) return -EPROTO;
  const uint32_t* sizes = (const uint32_t*)body;
  for (uint32_t i = ins; i < buffers; ++i) out += padded(sizes[i]);
  if (out + 8 * out_handles > BYTES_MAX) return -EPROTO;
  *reply_size = (uint32_t)out + 8 * out_handles;
  if (!reserve(reply, *reply_size + 1)) return -ENOMEM;
  memset(reply->data, 0, *reply_size); /* this process's earlier bytes stay here */
  for (uint32_t i = 0; i < in_handles; ++i) {
    memcpy(&args[buffers + i].handle, body + padded(4 * buffers) + 8 * i, 8);
  }
  out = 0;
  for (uint32_t i = 0; i < buffers; ++i) {
    args[i].buffer.data = i < ins ? body + at : reply->data + out;
    args[i].buffer.size = sizes[i];
    *(i < ins ? &at : &out) += padded(sizes[i]);
    if (at > request->size) return -EPROTO;
  }
  return at == request->size ? 0 : -EPROTO;
}

/* Copies the handles that came back behind the out buffers. */
static void pack_handles(uint32_t scalars, const fc_remote_arg* args, uint8_t* end) {
  uint32_t count = fc_remote_out_handles(scalars);
  const fc_remote_arg* first = args + fc_remote_ins(scalars) + fc_remote_outs(scalars) + fc_remote_in_handles(scalars);
  for (uint32_t i = 0; i < count; ++i) memcpy(end - 8 * (count - i), &first[i].handle, 8);
}

/* The handles that the client has open; they are closed for it when it is gone. */
typedef struct Handles {
  fc_remote_handle open[HANDLES_MAX];
  uint32_t count;
} Handles;

/* A call; notes the handles that it opens and closes. */
static int32_t call(FcSkel* skel, Handles* handles, const Request* request, fc_remote_arg* args) {
  uint32_t method = request->scalars >> 24;
  uint32_t first = fc_remote_ins(request->scalars) + fc_remote_outs(request->scalars);
  if (method == FC_REMOTE_OPEN && handles->count == HANDLES_MAX) return FC_REMOTE_NO_MEMORY;
  int32_t status = skel(request->handle, request->scalars, args);
  if (status != 0 || method > FC_REMOTE_CLOSE) return status;
  fc_remote_handle h = args[first].handle;
  if (method == FC_REMOTE_OPEN) handles->open[handles->count++] = h;
  for (uint32_t i = 0; method == FC_REMOTE_CLOSE && i < handles->count; ++i) {
    if (handles->open[i] == h) handles->open[i] = handles->open[--handles->count];
  }
  return status;
}

static void close_all(FcSkel* skel, const Handles* handles) {
  for (uint32_t i = 0; i < handles->count; ++i) {
    fc_remote_arg arg = {.handle = handles->open[i]};
    skel(0, fc_remote_scalars(FC_REMOTE_CLOSE, 0, 0, 1, 0), &arg);
  }
}

static int serve_one(FcChannel* channel, FcSkel* skel, Handles* handles, Block* in, Block* out) {
  static const fc_remote_arg none;
  fc_remote_arg args[ARGS_MAX];
  Request request;
  uint32_t size = 0;
  int rc = receive_all(channel, &request, sizeof request);
  if (rc != 0) return rc;
  if (request.size > BYTES_MAX) return -EPROTO;
  if (!reserve(in, request.size + 1)) return -ENOMEM;
  rc = receive_all(channel, in->data, request.size);
  if (rc != 0) return rc == -EPIPE ? -EPROTO : rc;
  for (uint32_t i = 0; i < ARGS_MAX; ++i) args[i] = none;
  rc = unpack(&request, in->data, args, out, &size);
  if (rc != 0) return rc;
  Reply reply = {call(skel, handles, &request, args), size};
  if (reply.status != 0) reply.size = 0;
  else pack_handles(request.scalars, args, out->data + size);
  FcPart parts[2] = {{&reply, sizeof reply}, {out->data, reply.size}};
  return fc_channel_send(channel, parts, 1 + (reply.size != 0), 0);
}

int fc_front_serve(FcChannel* channel, FcSkel* skel) {
  Block in = {0}, out = {0};
  Handles handles = {.count = 0};
  int rc = 0;
  while (rc == 0) rc = serve_one(channel, skel, &handles, &in, &out);
  close_all(skel, &handles);
  free(in.data);
  free(out.data);
  return rc == -EPIPE ? 0 : rc;
}
