/* Channels: the lifetime, which all kinds share. */
#include "session/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/runtime.h"

/* A flag in `users`: no thread may enter any more. The thread that leaves only this flag behind closes the channel. */
#define CLOSED UINT32_C(0x80000000)

void* fc_channel_new(size_t size, const FcChannelOps* ops) {
  fc_watch_forks();
  FcChannel* channel = calloc(1, size);
  if (!channel) {
    fc_error_no_memory();
    return NULL;
  }
  channel->ops = ops;
  channel->refs = 1;
  channel->forks = fc_forks;
  return channel;
}

void fc_channel_incref(FcChannel* channel) { __atomic_fetch_add(&channel->refs, 1, __ATOMIC_RELAXED); }

void fc_channel_decref(FcChannel* channel) {
  if (__atomic_sub_fetch(&channel->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  fc_channel_close(channel);
  if (channel->ops->destroy) channel->ops->destroy(channel);
  free(channel);
}

bool fc_channel_is_closed(const FcChannel* channel) {
  return (__atomic_load_n(&channel->users, __ATOMIC_ACQUIRE) & CLOSED) != 0;
}

static void leave(FcChannel* channel) {
  if (__atomic_sub_fetch(&channel->users, 1, __ATOMIC_ACQ_REL) == CLOSED) channel->ops->close(channel);
}

/* 0 when the channel is open and belongs to this process; it then stays open until `leave`. */
static int enter(FcChannel* channel) {
  /* A forked child shares the descriptors; bytes that it sent would break its parent's session. */
  if (FC_UNLIKELY(channel->forks != fc_forks)) return -ECHILD;
  uint32_t users = __atomic_load_n(&channel->users, __ATOMIC_RELAXED);
  do {
    if (users & CLOSED) return -ECANCELED;
  } while (!__atomic_compare_exchange_n(&channel->users, &users, users + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
  return 0;
}

ptrdiff_t fc_channel_receive(FcChannel* channel, void* to, size_t n, int64_t deadline) {
  int rc = enter(channel);
  if (rc < 0) return rc;
  ptrdiff_t got = channel->ops->receive(channel, to, n, deadline);
  if (got > 0 && channel->traffic) channel->traffic[0] += (uint64_t)got;
  leave(channel);
  return got;
}

int fc_channel_send(FcChannel* channel, FcPart* parts, size_t count, int64_t deadline) {
  int rc = enter(channel);
  if (rc < 0) return rc;
  if (channel->traffic) {
    for (size_t i = 0; i < count; ++i) channel->traffic[1] += parts[i].size;
  }
  rc = channel->ops->send(channel, parts, count, deadline);
  leave(channel);
  return rc;
}

int fc_channel_finish(FcChannel* channel) {
  int rc = enter(channel);
  if (rc < 0) return rc;
  rc = channel->ops->finish(channel);
  leave(channel);
  return rc;
}

void fc_channel_interrupt(FcChannel* channel) {
  if (enter(channel) < 0) return;
  channel->ops->interrupt(channel);
  leave(channel);
}

void fc_channel_close(FcChannel* channel) {
  if (enter(channel) < 0) return;
  uint32_t before = __atomic_fetch_or(&channel->users, CLOSED, __ATOMIC_ACQ_REL);
  if (!(before & CLOSED)) channel->ops->interrupt(channel);
  leave(channel);
}

size_t fc_channel_advance(FcPart** parts, size_t count, size_t sent) {
  while (count != 0 && sent >= (*parts)->size) {
    sent -= (*parts)->size;
    (*parts)->size = 0;
    ++*parts;
    --count;
  }
  if (count != 0) {
    (*parts)->data = (uint8_t*)(*parts)->data + sent;
    (*parts)->size -= sent;
  }
  return count;
}

void fc_channel_hurry(const FcChannel* channel) {
  if (channel->ops->hurry) channel->ops->hurry(channel);
}
