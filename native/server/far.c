#include "server/far.h"

#include <stdio.h>

#include "server/hops.h"
#include "session/error_text.h"

static FcSession* session; /* of the client; one at a time in a process */
static FcFar sessions[FC_DEVICES_MAX];

static const FcFarDevice* device_of(int32_t index) { return &session->options->devices[index]; }

const FcOptions* fc_far_options(void) { return session->options; }

/* ---- requests ---- */

/* A kException ends the session if its kind is one of the last words. */
static int refused(FcEndpoint* ep, const fc_wire_packet* reply) {
  char kind[FC_KIND_MAX];
  if (reply->num_args != 1 || !fc_wire_is_text(reply->args[0].type_index)) {
    return fc_endpoint_lose(ep, "ProtocolError", "its error is no text");
  }
  const char* message = fc_error_split_kind(((const TVMFFIByteArray*)reply->args[0].v_ptr)->data, kind);
  if (fc_error_is_last_word(kind)) return fc_endpoint_lose(ep, kind, "%s", message);
  fc_error_set(kind, message);
  return -1;
}

static int violated(FcEndpoint* ep, const fc_wire_packet* packet) {
  return fc_endpoint_lose(ep, "ProtocolError", "it sent a %s that answers no request", fc_wire_code_name(packet->code));
}

static int read_reply(FcEndpoint* ep, const fc_wire_packet* request, fc_wire_packet* reply, void* sink) {
  for (;;) {
    switch (fc_endpoint_next(ep, reply)) {
      case FC_WIRE_PACKET:
        if (reply->code == FC_WIRE_EXCEPTION) return refused(ep, reply);
        return reply->code == FC_WIRE_RETURN && !sink ? 0 : violated(ep, reply);
      case FC_WIRE_PAYLOAD:
        if (!sink || reply->code != FC_WIRE_COPY_ACK || reply->nbytes != request->nbytes) return violated(ep, reply);
        ep->reader.sink = sink;
        break;
      case FC_WIRE_PAYLOAD_END: return 0;
      case FC_WIRE_MORE: return fc_endpoint_lose(ep, "ConnectionLostError", "it closed the connection");
      default: return -1;
    }
  }
}

/* Ends the use of the line, and of the session if that is lost. */
static int leave(FcFar* far, int rc) {
  FcEndpoint* ep = far->ep;
  fc_endpoint_leave(ep);
  if (!fc_endpoint_is_lost(ep)) return rc;
  far->ep = NULL;
  fc_endpoint_decref(ep);
  return -1;
}

int fc_far_ask(FcFar* far, const fc_wire_packet* request, const void* payload, fc_wire_packet* reply, void* sink) {
  int rc = fc_endpoint_enter(far->ep);
  if (rc != 0) return rc;
  rc = fc_endpoint_queue(far->ep, request, payload);
  if (rc == 0) rc = read_reply(far->ep, request, reply, sink);
  return leave(far, rc);
}

/* Reads all replies. -1 with the first error. */
static int read_replies(FcEndpoint* ep, const FcFarRequest* requests, int32_t n) {
  TVMFFIObject* first = NULL;
  fc_wire_packet reply;
  for (int32_t i = 0; i < n && !fc_endpoint_is_lost(ep); ++i) {
    if (read_reply(ep, &requests[i].packet, &reply, requests[i].sink) == 0) continue;
    if (first) fc_error_drop();
    else first = fc_error_take();
  }
  if (first) fc_error_raise(first);
  return first ? -1 : 0;
}

int fc_far_ask_all(FcFar* far, const FcFarRequest* requests, int32_t n) {
  FcEndpoint* ep = far->ep;
  int rc = fc_endpoint_enter(ep);
  if (rc != 0) return rc;
  for (int32_t i = 0; rc == 0 && i < n; ++i) rc = fc_endpoint_queue(ep, &requests[i].packet, requests[i].payload);
  if (rc != 0 && !fc_endpoint_is_lost(ep)) fc_endpoint_lose(ep, "MemoryError", "no memory for packets to %s", ep->peer);
  if (rc == 0) rc = read_replies(ep, requests, n);
  return leave(far, rc);
}

int fc_far_unexpected(FcFar* far) {
  if (far->ep) fc_endpoint_lose(far->ep, "ProtocolError", "it answered with values that the protocol does not allow");
  return -1;
}

void fc_far_release(int32_t index, uint32_t serial, int32_t code, uint64_t handle) {
  TVMFFIAny args[2] = {{.type_index = kTVMFFIDevice, .v_device = {kDLCPU, 0}},
                       {.type_index = kTVMFFIOpaquePtr, .v_uint64 = handle}};
  bool data = code == FC_WIRE_DEV_FREE_DATA;
  fc_wire_packet reply, request = {.code = code, .num_args = data ? 2 : 1, .args = data ? args : args + 1};
  FcFar* far = fc_far_of(index, serial);
  if (!far) return;
  TVMFFIObject* kept = fc_error_take();
  if (fc_far_ask(far, &request, NULL, &reply, NULL) != 0) fc_error_drop();
  if (kept) fc_error_raise(kept);
}

/* ---- sessions ---- */

FcFar* fc_far_of(int32_t index, uint32_t serial) {
  FcFar* far = &sessions[index];
  return session && far->ep && far->serial == serial ? far : NULL;
}

FcFar* fc_far_open(int32_t index) {
  static const TVMFFIByteArray version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1};
  fc_wire_packet reply, init = {.code = FC_WIRE_INIT_SERVER, .version = version};
  FcFar* far = &sessions[index];
  char url[FC_DEVICE_NAME_MAX + 8];
  const FcFarDevice* device = device_of(index);
  if (far->ep) return far;
  int size = snprintf(url, sizeof url, "device:%.*s", (int)device->name_size, device->name);
  far->ep = fc_hops_open(session, (TVMFFIByteArray){url, (size_t)size});
  if (!far->ep) return NULL;
  *far = (FcFar){far->ep, far->serial + 1, {0}};
  if (fc_far_ask(far, &init, NULL, &reply, NULL) == 0) return far;
  if (far->ep) fc_endpoint_decref(far->ep);
  far->ep = NULL;
  return NULL;
}

int fc_far_named(int32_t index, const char* what, int rc) {
  TVMFFIObject* error = rc != 0 ? fc_error_take() : NULL;
  if (!error) return rc;
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  const FcFarDevice* device = device_of(index);
  const char *said = cell->message.data, *rest;
  char kind[FC_KIND_MAX];
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  if (fc_error_is_last_word(kind)) strcpy(kind, "RemoteError");
  if (fc_error_read_hop(said, &rest) != 0) {
    fc_error_raise(error); /* it names the hop already */
    return rc;
  }
  bool told = strstr(said, what) != NULL;
  fc_error_format(kind, "hop 2 (device:%.*s): %s%s%s", (int)device->name_size, device->name, told ? "" : what,
                  told ? "" : ": ", said);
  fc_decref(error);
  return rc;
}

void fc_far_begin(FcSession* served) {
  session = served;
  if (served->options->device_count) fc_device_memory_set(kDLHexagon, &fc_far_memory);
}

void fc_far_end(void) {
  for (int i = 0; i < FC_DEVICES_MAX; ++i) {
    if (!sessions[i].ep) continue;
    fc_endpoint_close(sessions[i].ep, true);
    fc_endpoint_decref(sessions[i].ep);
    sessions[i].ep = NULL;
  }
  session = NULL;
  fc_far_forget();
}
