/* A region's computation: inputs, a call of farcall.rpc.compute, and the outputs, together in one round trip. */
#include <stdlib.h>

#include "session/client/remote.h"
#include "runtime/trace.h"

static const char what[] = "farcall.rpc.compute";

/* A request, and the memory of a copy. */
typedef struct Request {
  fc_wire_packet packet;
  const void* payload;
  void* sink;
  void* packed; /* owned: an input in the form in which it travels, if that is another one */
} Request;

typedef struct Flight {
  FcEndpoint* ep;
  const FcRemoteOperand* operands;
  int32_t n, inputs, count;
  TVMFFIAny* values; /* the arguments of the call */
  fc_wire_tensor* wires;
  Request* requests;
  Request* call; /* one of them */
} Flight;

static bool travels(const Flight* flight, int32_t i) {
  return flight->operands[i].here && fc_nbytes(flight->operands[i].here) > 0;
}

static int add_copy(Flight* flight, int32_t i) {
  const DLTensor* here = flight->operands[i].here;
  const bool in = i < flight->inputs;
  Request* request = &flight->requests[flight->count];
  if (!travels(flight, i)) return 0;
  ++flight->count;
  *request = (Request){.packet = {.code = in ? FC_WIRE_COPY_TO_REMOTE : FC_WIRE_COPY_FROM_REMOTE,
                                  .tensor = flight->wires[i],
                                  .nbytes = (uint64_t)fc_nbytes(here)}};
  if (!in) request->sink = (char*)here->data + here->byte_offset;
  else request->payload = fc_remote_wire_bytes(here, (int64_t)request->packet.nbytes, &request->packed);
  return in && !request->payload ? -1 : 0;
}

static int fill(Flight* flight, uint64_t compute, uint64_t function) {
  flight->values[0] = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_uint64 = function};
  flight->values[1] = fc_any_int(flight->inputs);
  for (int32_t i = 0; i < flight->n; ++i) {
    fc_remote_to_wire(flight->operands[i].there, &flight->wires[i]);
    flight->values[i + 2] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = &flight->wires[i]};
    if (i < flight->inputs && add_copy(flight, i) != 0) return -1;
  }
  flight->call = &flight->requests[flight->count++];
  flight->call->packet =
      (fc_wire_packet){.code = FC_WIRE_CALL_FUNC, .num_args = flight->n + 2, .args = flight->values, .handle = compute};
  for (int32_t i = flight->inputs; i < flight->n; ++i) (void)add_copy(flight, i);
  return 0;
}

/* All requests from `first` on were sent, perhaps in part. Always -1. */
FC_COLD static int leave(const Flight* flight, size_t ahead, int32_t first) {
  FcEndpoint* ep = flight->ep;
  const bool goes_on = ep->interrupted && !fc_endpoint_is_lost(ep);
  if (first == flight->count) return -1;
  fc_remote_leave(ep, &flight->requests[first].packet, ahead, 1);
  for (int32_t i = first + 1; goes_on && i < flight->count && !fc_endpoint_is_lost(ep); ++i) {
    if (fc_call_leave(ep, &flight->requests[i].packet, 0) < 0) {
      return fc_endpoint_lose(ep, "ConnectionLostError", "no memory to wait for %s", ep->peer);
    }
  }
  return -1;
}

static int send_all(const Flight* flight, size_t* ahead) {
  FcEndpoint* ep = flight->ep;
  int rc = fc_remote_encode_ahead(ep, &ep->queued, ahead);
  for (int32_t i = 0; rc == 0 && i < flight->count; ++i) {
    rc = fc_endpoint_queue(ep, &flight->requests[i].packet, flight->requests[i].payload);
  }
  return rc == 0 ? fc_endpoint_flush_queue(ep) : rc;
}

static int exchange(const Flight* flight) {
  FcEndpoint* ep = flight->ep;
  TVMFFIObject* failure = NULL;
  fc_wire_packet reply;
  size_t ahead = 0;
  const int64_t begin = fc_trace_begin();
  if (send_all(flight, &ahead) < 0) {
    if (fc_endpoint_is_lost(ep) || ep->interrupted) return leave(flight, ahead, 0);
    return fc_endpoint_lose(ep, "ConnectionLostError", "no memory for packets to %s", ep->peer);
  }
  ++ep->client->round_trips;
  for (; ahead != 0; --ahead) {
    if (fc_remote_read_ahead(ep, 1, what) < 0) return leave(flight, ahead, 0);
  }
  for (int32_t i = 0; i < flight->count; ++i) {
    const Request* request = &flight->requests[i];
    if (fc_remote_read_reply(ep, what, &reply, request->sink, request->sink ? request->packet.nbytes : 0) == 0)
      continue;
    if (fc_remote_keep_failure(ep, &failure) < 0) return leave(flight, 0, i);
  }
  if (FC_UNLIKELY(begin != 0)) {
    fc_trace_end(&(FcTraceWork){.category = "wire", .name = what, .track = ep->client->slot}, begin);
  }
  if (failure) fc_error_raise(failure);
  return failure ? -1 : 0;
}

/* For a server that takes only small packets: one request after the other. */
static int exchange_one_by_one(const Flight* flight) {
  fc_wire_packet reply;
  for (int32_t i = 0; i < flight->inputs; ++i) {
    if (travels(flight, i) && fc_remote_write(flight->ep, &flight->wires[i], flight->operands[i].here) < 0) return -1;
  }
  if (fc_remote_request(flight->ep, &flight->call->packet, what, &reply) < 0) return -1;
  for (int32_t i = flight->inputs; i < flight->n; ++i) {
    const FcRemoteOperand* output = &flight->operands[i];
    if (travels(flight, i) && fc_remote_read(flight->ep, &flight->wires[i], output->here) < 0) return -1;
  }
  return 0;
}

static int run(Flight* flight, uint64_t compute, uint64_t function) {
  FcClient* client = flight->ep->client;
  if (fill(flight, compute, function) < 0 || fc_remote_ask_max_packet(flight->ep) < 0) return -1;
  ++client->calls;
  if (client->max_packet > 0) return exchange_one_by_one(flight);
  if (fc_remote_prepare(flight->ep, &flight->requests[0].packet, what) < 0) return -1;
  for (int32_t i = 0; i < flight->count; ++i) {
    const Request* request = &flight->requests[i];
    client->copies += request->payload || request->sink;
    if (request->payload) client->copied_in += request->packet.nbytes;
    if (request->sink) client->copied_out += request->packet.nbytes;
  }
  return exchange(flight);
}

int fc_remote_compute(TVMFFIObject* compute, TVMFFIObject* function, const FcRemoteOperand* operands, int32_t inputs,
                      int32_t n) {
  const FcRemoteFunction *helper = fc_remote_function_of(compute), *main = fc_remote_function_of(function);
  FcEndpoint* ep = helper->owned.ep;
  Flight flight = {.ep = ep, .operands = operands, .n = n, .inputs = inputs};
  flight.values = calloc((size_t)n + 2, sizeof(TVMFFIAny) + sizeof(fc_wire_tensor) + sizeof(Request));
  if (!flight.values) return fc_error_no_memory(), -1;
  flight.wires = (fc_wire_tensor*)(flight.values + n + 2);
  flight.requests = (Request*)(flight.wires + n + 2);
  int rc = fc_endpoint_enter(ep);
  if (rc == 0) {
    rc = run(&flight, helper->owned.handle, main->owned.handle);
    fc_endpoint_leave(ep);
  }
  for (int32_t i = inputs; rc == 0 && i < n; ++i) {
    const DLTensor* here = operands[i].here;
    if (travels(&flight, i))
      fc_wire_turn((uint8_t*)here->data + here->byte_offset, (uint64_t)fc_nbytes(here), here->dtype);
  }
  for (int32_t i = 0; i < flight.count; ++i) free(flight.requests[i].packed);
  free(flight.values);
  return rc;
}
