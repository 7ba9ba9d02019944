/*
 * The client's time limits (docs/spec/wire.md, feature `deadlines`). When a call takes longer, the watchdog ends this
 * process, whatever the function is doing. The status page gives the supervisor the reason.
 */
#include "session/server/serve.h"

static int make_dog(FcServer* server) {
  if (!server->dog) server->dog = server->watchdog->make();
  return server->dog ? 0 : -1;
}

void fc_deadline_clear(FcServer* server) {
  if (server->dog) server->watchdog->free(server->dog);
  server->dog = NULL;
}

int fc_deadline_tell(FcServer* server, const fc_wire_packet* p, FcDeadline* out) {
  bool good = p->num_args == 2 && p->args[0].type_index == kTVMFFIInt && p->args[1].type_index == kTVMFFIInt;
  int64_t left = good ? p->args[0].v_int64 : -1, each = good ? p->args[1].v_int64 : -1;
  if (left < 0 || left > FC_DEADLINE_MAX || each < 0 || each > FC_DEADLINE_MAX) {
    fc_error_set("ValueError", FC_DEADLINE_NAME " takes two numbers of nanoseconds, below 2**60; 0 is no limit");
    return -1;
  }
  if (make_dog(server) != 0) return -1;
  *out = (FcDeadline){.until = left ? fc_now_ns() + left : 0, .given = left, .each = each};
  return 0;
}

FcDue fc_deadline_due(const FcDeadline* deadline, int64_t now) {
  FcDue whole = {deadline->until, deadline->given}, each = {now + deadline->each, deadline->each};
  if (!deadline->each || (deadline->until && deadline->until < each.at)) return whole;
  return each;
}

void fc_deadline_arm(FcServer* server, FcDue due) {
  volatile uint64_t* page = (volatile uint64_t*)(server->page + FC_PAGE_DUE);
  page[1] = (uint64_t)due.given;
  page[0] = (uint64_t)due.at;
  server->watchdog->set(server->dog, due.at);
  server->due = due;
}

int fc_deadline_begin(FcServer* server, const char* name) {
  int64_t now = fc_now_ns();
  if (server->deadline.until && server->deadline.until <= now) {
    fc_error_format("DeadlineExceededError", "`%s` was not started: the client's time limit of %.3g s had passed", name,
                    (double)server->deadline.given / 1e9);
    return -1;
  }
  FcDue due = fc_deadline_due(&server->deadline, now);
  if (!server->due.at || due.at < server->due.at) fc_deadline_arm(server, due);
  return 0;
}

/* ---- the status page: the supervisor reads it when this worker has died, or runs for long ---- */

void fc_page_note(const void** noted, volatile uint8_t* page, const void* who, const char* name) {
  page[FC_PAGE_CALLING] = 0; /* no flag while the name is incomplete */
  if (!who) return;
  if (*noted != who) {
    size_t size = strlen(name);
    if (size > FC_PAGE_NAME_MAX) size = FC_PAGE_NAME_MAX;
    memcpy((uint8_t*)page + FC_PAGE_NAME, name, size);
    page[FC_PAGE_NAME_SIZE] = (uint8_t)size;
    page[FC_PAGE_NAME_SIZE + 1] = (uint8_t)(size >> 8);
    *noted = who;
  }
  ++*(volatile uint64_t*)(page + FC_PAGE_CALLS);
  page[FC_PAGE_CALLING] = 1;
}
