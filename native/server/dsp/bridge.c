/*
 * The implementation of farcall_dsp.idl. A session runs in a thread of its own, at the far end of a pair of sockets,
 * so that it may wait: for its client, which calls `send` and `receive`, or in a function. No call waits long. A handle
 * is an index and a generation; a stale one names nothing.
 */
#include <errno.h>
#include <sys/socket.h>

#include "runtime/runtime.h"
#include "server/dsp/bridge.h"
#include "server/dsp/farcall_dsp.h"
#include "session/posix/channels.h"

enum { SESSIONS_MAX = 32, WAIT_MAX_MS = 100, SEND_WAIT_NS = 20000000 };

/* A slot is free, open (has a handle), or closed while its thread still runs. */
typedef struct Session {
  fc_remote_handle handle; /* 0: not open */
  uint64_t memory;
  FcChannel *near, *far; /* NULL before init */
  FcTask task;
  bool running; /* the thread must be joined */
  uint32_t done; /* the thread is about to end */
} Session;

static Session sessions[SESSIONS_MAX];
static FcMutex lock = FC_MUTEX_INIT; /* guards the slots, except `done` */
static uint64_t generation;
static FcDspServe* serve_session;

void fc_dsp_serve_by(FcDspServe* serve) { serve_session = serve; }

static void* run(void* context) {
  Session* session = context;
  serve_session(session->far, session->memory);
  TVMFFIObject* error = fc_error_take(); /* the client knows it, or is gone */
  if (error) fc_decref(error);
  fc_channel_close(session->far);
  __atomic_store_n(&session->done, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

/* Empties the slot of a closed session whose thread has ended. */
static bool is_free(Session* session) {
  if (session->handle) return false;
  if (!session->running) return true;
  if (!__atomic_load_n(&session->done, __ATOMIC_SEQ_CST)) return false;
  fc_task_join(session->task);
  fc_channel_decref(session->far);
  *session = (Session){0};
  return true;
}

static Session* find(fc_remote_handle h) {
  Session* session = &sessions[h % SESSIONS_MAX];
  return h != 0 && session->handle == h ? session : NULL;
}

int32_t farcall_dsp_open(const char* uri, fc_remote_handle* h) {
  (void)uri;
  int32_t status = FC_REMOTE_NO_MEMORY;
  fc_mutex_lock(&lock);
  for (uint32_t i = 0; i < SESSIONS_MAX && status != 0; ++i) {
    if (!is_free(&sessions[i])) continue;
    *h = sessions[i].handle = ++generation * SESSIONS_MAX + i;
    status = FC_REMOTE_OK;
  }
  fc_mutex_unlock(&lock);
  return status;
}

int32_t farcall_dsp_close(fc_remote_handle h) {
  fc_mutex_lock(&lock);
  Session* session = find(h);
  if (session) {
    session->handle = 0;
    if (session->near) {
      fc_channel_close(session->near); /* the session finds its client gone */
      fc_channel_decref(session->near);
      session->near = NULL;
    }
  }
  fc_mutex_unlock(&lock);
  return session ? FC_REMOTE_OK : FC_REMOTE_BAD_PARAMETER;
}

static int32_t begin(Session* session, uint64_t memory) {
  int ends[2];
  if (session->near) return FC_REMOTE_BAD_PARAMETER;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return FC_REMOTE_NO_MEMORY;
  session->memory = memory;
  session->near = fc_channel_from_fds(ends[0], ends[0]);
  session->far = fc_channel_from_fds(ends[1], ends[1]);
  bool whole = session->near && session->far;
  if (whole && fc_task_start(&session->task, run, session) == 0) {
    session->running = true;
    return FC_REMOTE_OK;
  }
  if (session->near) fc_channel_decref(session->near);
  if (session->far) fc_channel_decref(session->far);
  session->near = session->far = NULL;
  return FC_REMOTE_NO_MEMORY;
}

int32_t farcall_dsp_init(fc_remote_handle _h, uint64_t memory) {
  fc_mutex_lock(&lock);
  Session* session = find(_h);
  int32_t status = session ? begin(session, memory) : FC_REMOTE_BAD_PARAMETER;
  fc_mutex_unlock(&lock);
  return status;
}

/* The channel of a session that has begun, with a reference; NULL for a wrong handle. */
static FcChannel* channel_of(fc_remote_handle h) {
  fc_mutex_lock(&lock);
  Session* session = find(h);
  FcChannel* channel = session ? session->near : NULL;
  if (channel) fc_channel_incref(channel);
  fc_mutex_unlock(&lock);
  return channel;
}

int32_t farcall_dsp_send(fc_remote_handle _h, const uint8_t* data, int32_t dataLen, uint8_t last, uint32_t* taken) {
  FcChannel* channel = channel_of(_h);
  if (!channel) return FC_REMOTE_BAD_PARAMETER;
  FcPart part = {(void*)data, (size_t)dataLen};
  int rc = dataLen ? fc_channel_send(channel, &part, 1, fc_now_ns() + SEND_WAIT_NS) : 0;
  *taken = (uint32_t)dataLen - (rc != 0 ? (uint32_t)part.size : 0);
  if (last && *taken == (uint32_t)dataLen) fc_channel_finish(channel);
  fc_channel_decref(channel);
  return rc == 0 || rc == -ETIMEDOUT ? FC_REMOTE_OK : FC_REMOTE_FAILED; /* it ended; `receive` has its last bytes */
}

int32_t farcall_dsp_receive(fc_remote_handle _h, uint32_t wait_ms, uint8_t* data, int32_t dataLen, uint32_t* written,
                            uint8_t* ended) {
  FcChannel* channel = channel_of(_h);
  if (!channel) return FC_REMOTE_BAD_PARAMETER;
  int64_t wait = wait_ms < 1 ? 1 : wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS; /* a past deadline reads nothing */
  ptrdiff_t got = dataLen ? fc_channel_receive(channel, data, (size_t)dataLen, fc_now_ns() + wait * 1000000) : 0;
  *written = got > 0 ? (uint32_t)got : 0;
  *ended = dataLen != 0 && got <= 0 && got != -ETIMEDOUT;
  fc_channel_decref(channel);
  return FC_REMOTE_OK;
}
