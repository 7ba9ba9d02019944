/* Endpoints: which thread may use the line, and until when. session/endpoint.h describes the states. */
#include "session/endpoint.h"

FC_TLS int64_t fc_deadline;

void fc_endpoint_start_deadline(FcEndpoint* ep) {
  ep->deadline = ep->due = 0;
  if (FC_LIKELY(!ep->timeout_ns && !fc_deadline)) return;
  int64_t now = fc_now_ns();
  ep->due = ep->timeout_ns ? now + ep->timeout_ns : INT64_MAX;
  if (fc_deadline && fc_deadline < ep->due) ep->due = fc_deadline;
  ep->allowed_ns = ep->due > now ? ep->due - now : 0;
  ep->deadline = ep->due + (ep->side ? ep->side->grace(ep) : 0);
}

int fc_endpoint_too_late(const FcEndpoint* ep, const char* what) {
  fc_error_format("DeadlineExceededError", "%s%s%s was not sent to %s: %s; the session goes on", what ? "`" : "",
                  what ? what : "the request", what ? "`" : "", ep->peer,
                  what ? "no time was left" : "another thread had the session until no time was left");
  return -1;
}

/* ---- waiting for other threads; the caller holds the lock ---- */

enum { LOOK_NS = 50000000 }; /* how often to check for signals, which do not end a wait for a thread */

/* When to check next; *last: the wait ends then. */
static int64_t next_look(int64_t until, bool* last) {
  int64_t look = fc_now_ns() + LOOK_NS;
  *last = until && until <= look;
  return *last ? until : look;
}

int fc_endpoint_await_other(FcEndpoint* ep, int64_t until) {
  bool last;
  int64_t look = next_look(until, &last);
  if (fc_condition_wait_until(&ep->turn, &ep->lock, look)) return 0;
  fc_mutex_unlock(&ep->lock); /* unlocked, since a handler may use the session */
  int rc = fc_check_signals();
  fc_mutex_lock(&ep->lock);
  if (rc < 0) return FC_INTERRUPTED;
  return last ? -1 : 0;
}

static int await_line(FcEndpoint* ep, bool both_ways) {
  while (FC_UNLIKELY(ep->sending || (both_ways && ep->reading))) {
    int rc = fc_endpoint_await_other(ep, fc_deadline);
    if (rc < 0) return rc == FC_INTERRUPTED ? rc : fc_endpoint_too_late(ep, NULL);
  }
  return 0;
}

int fc_endpoint_await_turn(FcEndpoint* ep) { return await_line(ep, true); }

/* ---- the lock ---- */

static int check_lost(const FcEndpoint* ep) {
  if (FC_LIKELY(!fc_endpoint_is_lost(ep))) return 0;
  fc_error_set(ep->lost_kind, ep->lost_text);
  return -1;
}

/* Called with the lock. 0: the caller may use the line; else unlocks, with an error. */
static int begin(FcEndpoint* ep, int rc) {
  if (rc == 0) rc = check_lost(ep);
  if (rc != 0) fc_mutex_unlock(&ep->lock);
  else if (!ep->reading) fc_endpoint_start_deadline(ep);
  return rc;
}

int fc_endpoint_lock(FcEndpoint* ep, int64_t until) {
  if (FC_LIKELY(fc_mutex_trylock(&ep->lock))) return 0;
  for (;;) {
    bool last;
    if (fc_mutex_lock_until(&ep->lock, next_look(until, &last))) return 0;
    if (fc_check_signals() < 0) return FC_INTERRUPTED;
    if (last) return -1;
  }
}

int fc_endpoint_enter(FcEndpoint* ep) {
  int rc = fc_endpoint_lock(ep, fc_deadline);
  if (FC_UNLIKELY(rc < 0)) return rc == FC_INTERRUPTED ? rc : fc_endpoint_too_late(ep, NULL);
  return begin(ep, await_line(ep, true));
}

int fc_endpoint_enter_to_send(FcEndpoint* ep) {
  int rc = fc_endpoint_lock(ep, 0);
  return rc < 0 ? rc : begin(ep, await_line(ep, false));
}

void fc_endpoint_reenter(FcEndpoint* ep) { fc_mutex_lock(&ep->lock); }

void fc_endpoint_leave(FcEndpoint* ep) { fc_mutex_unlock(&ep->lock); }

fc_wire_event fc_endpoint_next_in_turn(FcEndpoint* ep, fc_wire_packet* out) {
  if (!ep->shared) return fc_endpoint_next(ep, out);
  ep->reading = true;
  fc_mutex_unlock(&ep->lock);
  fc_wire_event event = fc_endpoint_next(ep, out);
  fc_mutex_lock(&ep->lock);
  ep->reading = false;
  fc_condition_broadcast(&ep->turn);
  return event;
}
