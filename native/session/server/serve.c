/* The server: reads requests, carries them out, and replies, in order. */
#include "session/server/serve.h"
#include "session/error_text.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---- */

static void keep_error(FcServer* server, TVMFFIObject* error) {
  if (FC_LIKELY(!server->keeps_errors)) return;
  if (server->last_error) fc_decref(server->last_error);
  fc_incref(error);
  server->last_error = error;
}

/* A function that used another session and lost it has an error of a kind that would end this session, too. Changes
 * that kind. Takes ownership of the error. */
static TVMFFIObject* without_last_word(TVMFFIObject* error) {
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  char kind[FC_KIND_MAX];
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  if (FC_LIKELY(!fc_error_is_last_word(kind))) return error;
  fc_error_format("RemoteError", "%s: %.*s", kind, (int)cell->message.size, cell->message.data);
  fc_decref(error);
  return fc_error_take();
}

/* After a handler: sends its error, if any, as the reply. */
static int conclude(FcServer* server, int rc) {
  if (rc == 0) return 0;
  if (fc_endpoint_is_lost(server->ep)) { /* a function may have replaced the error */
    return fc_endpoint_lose(server->ep, "ConnectionLostError", "%s is gone", server->ep->peer);
  }
  TVMFFIObject* error = fc_error_take();
  if (!error) {
    fc_error_set("RuntimeError", "the request failed without a reason");
    error = fc_error_take();
  }
  keep_error(server, error);
  return fc_queue_error(server->ep, without_last_word(error));
}

/* ---- the table of requests ---- */

static void note_work(const FcServer* server, bool works) {
  if (server->page) server->page[FC_PAGE_WORKING] = works;
}

static int start(FcServer* server, const fc_wire_packet* p) {
  if (server->started) {
    fc_error_set("ProtocolError", "the session has begun already; kInitServer comes once");
    return -1;
  }
  if (!fc_is_named(p->version, FC_WIRE_VERSION)) {
    fc_error_format("ProtocolError", "this server speaks protocol " FC_WIRE_VERSION ", the client '%.*s'",
                    (int)(p->version.size < 40 ? p->version.size : 40), p->version.data);
    return -1;
  }
  if (server->page) server->page[FC_PAGE_BEGUN] = 1;
  if (server->policy->begin(server->context, server, p) != 0) return -1;
  server->started = true;
  if (!server->next_hop) return 0;
  note_work(server, false); /* what follows is all of the session, not one request */
  int rc = server->policy->forward(server, server->next_hop, p, server->next_args);
  server->ended = true;
  return rc;
}

static int request(FcServer* server, const fc_wire_packet* p) {
  if (p->code == FC_WIRE_INIT_SERVER) return start(server, p);
  if (FC_UNLIKELY(fc_server_require_start(server) != 0)) return -1;
  switch (p->code) {
    case FC_WIRE_CALL_FUNC: return fc_server_call(server, p);
    case FC_WIRE_GET_GLOBAL_FUNC: return fc_server_get_global(server, p);
    case FC_WIRE_FREE_HANDLE: return fc_server_free_handle(server, p);
    case FC_WIRE_COPY_FROM_REMOTE: return fc_server_copy_out(server, p);
    case FC_WIRE_DEV_ALLOC_DATA: return fc_server_alloc_data(server, p);
    case FC_WIRE_DEV_ALLOC_DATA_WITH_SCOPE: return fc_server_alloc_with_scope(server, p);
    case FC_WIRE_DEV_FREE_DATA: return fc_server_free_data(server, p);
    case FC_WIRE_COPY_AMONG_REMOTE: return fc_server_copy_among(server, p);
    default: return fc_server_device(server, p);
  }
}

static int handle(FcServer* server, fc_wire_event event, const fc_wire_packet* p) {
  if (event == FC_WIRE_PAYLOAD_END) return fc_server_end_copy_in(server);
  if (event == FC_WIRE_PACKET) {
    if (p->code == FC_WIRE_SHUTDOWN) {
      server->ended = true;
      return 0;
    }
    return conclude(server, request(server, p));
  }
  if (p->code == FC_WIRE_COPY_TO_REMOTE) {
    fc_server_copy_in(server, p);
    return 0;
  }
  return fc_endpoint_refuse(server->ep, "the client sent a kCopyAck, which only a server sends");
}

int fc_server_event(FcServer* server, fc_wire_event event, const fc_wire_packet* p) {
  note_work(server, true);
  int rc = handle(server, event, p);
  note_work(server, false);
  return rc;
}

int fc_server_run(FcServer* server) {
  fc_wire_packet packet;
  while (!server->ended) {
    fc_wire_event event = fc_endpoint_next(server->ep, &packet);
    if (event == FC_WIRE_FAILED) return -1;
    if (event == FC_WIRE_MORE) {
      if (server->ep->starved) return fc_endpoint_flush_queue(server->ep) == 0 ? 1 : -1;
      if (fc_wire_at_boundary(&server->ep->reader)) return 0;
      return fc_endpoint_lose(server->ep, "ConnectionLostError", "the client closed the connection inside a packet");
    }
    if (fc_server_event(server, event, &packet) != 0) return -1;
  }
  return fc_endpoint_flush_queue(server->ep);
}
