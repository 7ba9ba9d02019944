/* A relay between a client and a server, all in this process, for ThreadSanitizer: requests, refusals of the relay and
 * copies are sent without waiting, and each must be answered in its place. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/relay/relay.h"
#include "session/posix/channels.h"

enum { ROUNDS = 400 };

static int echo(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  return n == 1 ? fc_any_to_owned(args, result) : (*result = fc_any_none(), 0);
}

static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  TVMFFIObjectHandle object;
  (void)context;
  if (fc_function_new(NULL, echo, NULL, &object) != 0) return -1;
  *out = fc_export_new(object, name.data, name.size, FC_SCOPE_CALL);
  return *out ? 0 : -1;
}

/* The context of the relay's policy is the endpoint of the next hop. */
static int begin(void* context, FcServer* server, const fc_wire_packet* request) {
  (void)request;
  TVMFFIAny none = fc_any_none();
  if (!context) return fc_server_reply(server, &none, 1);
  server->next_hop = context;
  fc_endpoint_incref(context);
  return 0;
}

static TVMFFIObject* take_error(void) { return NULL; }

static const FcPolicy policy = {find, begin, fc_relay_run, take_error};
static const fc_wire_limits limits = {1 << 16, 1 << 20, 1 << 24, 1 << 20, 64, 8};

static FcEndpoint* endpoint(int fd, const char* name) {
  FcChannel* channel = fc_channel_from_fds(fd, fd);
  FcEndpoint* ep = fc_endpoint_new(channel, name, &limits);
  fc_channel_decref(channel);
  return ep;
}

static void* serve(void* argument) {
  FcServer* server = argument;
  if (fc_endpoint_enter(server->ep) != 0) abort();
  fc_server_run(server);
  fc_endpoint_leave(server->ep);
  fc_endpoint_close(server->ep, false);
  fc_server_clear(server);
  return NULL;
}

static FcServer make(FcEndpoint* ep, void* context) {
  FcHandles handles = {.limit = 1 << 16, .random = fc_system_random};
  return (FcServer){.ep = ep, .policy = &policy, .context = context, .handles = handles,
                    .tensor_limit = 1 << 28, .scopes = FC_SCOPE_ALL, .waits = true};
}

/* ---- the client ---- */

static FcEndpoint* client;
static uint64_t function, own, memory;
static uint8_t payload[300000];

static void check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(1);
}

static void ask(const fc_wire_packet* packet, const void* bytes) {
  check(fc_endpoint_queue(client, packet, bytes) == 0, "send");
}

static fc_wire_packet next(int32_t code) {
  fc_wire_packet packet;
  fc_wire_event event = fc_endpoint_next(client, &packet);
  check(event == FC_WIRE_PACKET || event == FC_WIRE_PAYLOAD, "an answer");
  check(packet.code == code, "the answer that is due");
  return packet;
}

static uint64_t handle(const fc_wire_packet* packet) {
  ask(packet, NULL);
  check(fc_endpoint_flush_queue(client) == 0, "send");
  return next(FC_WIRE_RETURN).args[0].v_uint64;
}

static void* send_all(void* unused) {
  for (int i = 0; i < ROUNDS; ++i) {
    TVMFFIAny number = fc_any_int(i);
    int64_t size = i % 7 == 0 ? (int64_t)sizeof payload : 16;
    fc_wire_tensor tensor = {.data = memory, .shape = &size, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}};
    fc_wire_packet good = {.code = FC_WIRE_CALL_FUNC, .handle = function, .num_args = 1, .args = &number};
    fc_wire_packet forged = {.code = FC_WIRE_CALL_FUNC, .handle = 99, .num_args = 1, .args = &number};
    fc_wire_packet up = {.code = FC_WIRE_COPY_TO_REMOTE, .tensor = tensor, .nbytes = (uint64_t)size};
    fc_wire_packet down = {.code = FC_WIRE_COPY_FROM_REMOTE, .tensor = tensor, .nbytes = (uint64_t)size};
    fc_wire_packet here = {.code = FC_WIRE_CALL_FUNC, .handle = own};
    ask(&good, NULL);
    ask(&here, NULL);
    ask(&forged, NULL);
    ask(&up, payload);
    ask(&down, NULL);
    ask(&forged, NULL);
  }
  check(fc_endpoint_flush_queue(client) == 0, "send");
  return unused;
}

static void read_all(void) {
  static uint8_t sink[sizeof payload];
  for (int i = 0; i < ROUNDS; ++i) {
    check(next(FC_WIRE_RETURN).args[1].v_int64 == i, "the number");
    check(next(FC_WIRE_RETURN).args[1].type_index == kTVMFFINone, "the relay's own answer");
    next(FC_WIRE_EXCEPTION);
    next(FC_WIRE_RETURN);
    fc_wire_packet packet = next(FC_WIRE_COPY_ACK);
    client->reader.sink = sink;
    check(fc_endpoint_next(client, &packet) == FC_WIRE_PAYLOAD_END, "a payload");
    check(memcmp(sink, payload, 16) == 0, "the payload");
    next(FC_WIRE_EXCEPTION);
  }
}

int main(void) {
  int near[2], far[2];
  pthread_t threads[3];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, near) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, far) != 0) return 1;
  for (size_t i = 0; i < sizeof payload; ++i) payload[i] = (uint8_t)(i * 7);
  client = endpoint(near[0], "relay");
  FcEndpoint* onward = endpoint(far[0], "server");
  FcServer relay = make(endpoint(near[1], "client"), onward), server = make(endpoint(far[1], "relay"), NULL);
  client->before_wait = NULL; /* the sending thread empties its queue itself */
  pthread_create(&threads[0], NULL, serve, &server);
  pthread_create(&threads[1], NULL, serve, &relay);

  fc_wire_packet init = {.code = FC_WIRE_INIT_SERVER, .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1}};
  TVMFFIByteArray name = {"echo", 4};
  TVMFFIAny named = {.type_index = kTVMFFIRawStr, .v_ptr = &name};
  TVMFFIAny wanted[] = {{.type_index = kTVMFFIDevice, .v_device = {kDLCPU, 0}}, fc_any_int(sizeof payload),
                        fc_any_int(64), {.type_index = kTVMFFIDataType, .v_dtype = {kDLUInt, 8, 1}}};
  handle(&init);
  function = handle(&(fc_wire_packet){.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = &named});
  name = (TVMFFIByteArray){"farcall.rpc.clock@server", 24};
  own = handle(&(fc_wire_packet){.code = FC_WIRE_GET_GLOBAL_FUNC, .num_args = 1, .args = &named});
  memory = handle(&(fc_wire_packet){.code = FC_WIRE_DEV_ALLOC_DATA, .num_args = 4, .args = wanted});
  pthread_create(&threads[2], NULL, send_all, NULL);
  read_all();
  pthread_join(threads[2], NULL);
  fc_endpoint_close(client, true);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  FcEndpoint* ends[] = {client, onward, relay.ep, server.ep};
  for (size_t i = 0; i < 4; ++i) fc_endpoint_decref(ends[i]);
  puts("done");
  return 0;
}
