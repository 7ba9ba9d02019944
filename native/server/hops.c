/*
 * How a session goes on from here: to a device that the owner of this server named (--device NAME=URL), and nowhere
 * else. A client says it by the arguments of kInitServer, which begin with the name of a session constructor.
 */
#include <stdio.h>

#include "server/hops.h"
#include "server/posix/dial.h"
#include "session/relay/relay.h"

static const int64_t dial_ns = INT64_C(10000000000);

/* ---- what the client asks for ---- */

/* The constructors of a next hop, and the types of the arguments that they take: text, int. */
typedef struct Constructor {
  const char *name, *types;
} Constructor;

enum { TVM, OURS, HEXAGON };
static const Constructor constructors[] = {
    [TVM] = {"rpc.Connect", "tit?"}, /* host, port, key, logging */
    [OURS] = {"farcall.rpc.Connect", "ttt"}, /* url, key, options */
    /* name, stack, simulator's arguments, receive buffer: TVM's needs, which no channel of farcall has */
    [HEXAGON] = {"tvm.contrib.hexagon.create_hexagon_session", "titi"},
};

static const TVMFFIByteArray* text_of(const TVMFFIAny* any) {
  return fc_wire_is_text(any->type_index) ? any->v_ptr : NULL;
}

static bool has_type(const TVMFFIAny* value, char type) {
  bool number = value->type_index == kTVMFFIInt;
  return type == 't' ? text_of(value) != NULL : number || (type == '?' && value->type_index == kTVMFFIBool);
}

/* The constructor that the arguments name; -1 with an error. */
static int read_constructor(const fc_wire_packet* init) {
  const TVMFFIByteArray* name = text_of(init->args);
  int size = name ? (int)(name->size < 80 ? name->size : 80) : 0;
  for (int which = 0; name && which < (int)(sizeof constructors / sizeof *constructors); ++which) {
    const Constructor* one = &constructors[which];
    int32_t count = (int32_t)strlen(one->types);
    if (!fc_is_named(*name, one->name)) continue;
    bool good = init->num_args > count;
    for (int32_t i = 0; good && i < count; ++i) good = has_type(&init->args[i + 1], one->types[i]);
    if (good) return which;
    fc_error_format("ProtocolError", "session constructor '%s': its %d values are not those that it takes", one->name,
                    (int)init->num_args - 1);
    return -1;
  }
  fc_error_format("NotImplementedError", "session constructor '%.*s': there are rpc.LocalSession, %s, %s and %s", size,
                  name ? name->data : "", constructors[TVM].name, constructors[OURS].name, constructors[HEXAGON].name);
  return -1;
}

/* ---- the owner's devices ---- */

static bool is_device(TVMFFIByteArray url) { return url.size > 7 && memcmp(url.data, "device:", 7) == 0; }

/* "dsp0, dsp1"; cut where it is too long. */
static const char* list_devices(const FcOptions* options, char* out, size_t room) {
  size_t used = 0;
  for (uint32_t i = 0; i < options->device_count && used < room; ++i) {
    const FcFarDevice* one = &options->devices[i];
    used += (size_t)snprintf(out + used, room - used, "%s%.*s", i ? ", " : "", (int)one->name_size, one->name);
  }
  return out;
}

/* By its name, or by a kind and its place in the list: hexagon:0 is the first. */
static const FcFarDevice* find_device(const FcOptions* options, TVMFFIByteArray name) {
  const char* colon = memchr(name.data, ':', name.size);
  uint32_t place = 0;
  for (uint32_t i = 0; i < options->device_count; ++i) {
    const FcFarDevice* one = &options->devices[i];
    if (one->name_size == name.size && memcmp(one->name, name.data, name.size) == 0) return one;
  }
  const char *digit = colon ? colon + 1 : NULL, *end = name.data + name.size;
  if (!digit || digit == end || end - digit > 3) return NULL;
  for (; digit < end; ++digit) {
    if (*digit < '0' || *digit > '9') return NULL;
    place = place * 10 + (uint32_t)(*digit - '0');
  }
  return place < options->device_count ? &options->devices[place] : NULL;
}

int32_t fc_hops_find(const FcOptions* options, TVMFFIByteArray name) {
  const FcFarDevice* found = find_device(options, name);
  return found ? (int32_t)(found - options->devices) : -1;
}

int fc_hops_no_device(const FcOptions* options, TVMFFIByteArray name) {
  char names[512];
  fc_error_format(
      "PermissionDeniedError", "this server has no device '%.*s'; %s%s (its owner names them: --device NAME=URL)",
      (int)(name.size < 80 ? name.size : 80), name.data, options->device_count ? "its devices: " : "it has none",
      options->device_count ? list_devices(options, names, sizeof names) : "");
  return -1;
}

static const FcFarDevice* no_server(const FcOptions* options, const char* url, int size) {
  char names[512];
  fc_error_format("PermissionDeniedError",
                  "this server does not go on to %.*s; it goes on to devices alone, %s%s (its owner names them: "
                  "--device NAME=URL)",
                  size, url, options->device_count ? "as via=\"device:NAME\": " : "and it has none",
                  options->device_count ? list_devices(options, names, sizeof names) : "");
  return NULL;
}

/* The device at a URL that a client wrote; NULL with an error. */
static const FcFarDevice* device_at(const FcOptions* options, TVMFFIByteArray url) {
  if (!is_device(url)) return no_server(options, url.data, (int)(url.size < 200 ? url.size : 200));
  TVMFFIByteArray name = {url.data + 7, url.size - 7};
  const FcFarDevice* found = find_device(options, name);
  if (!found) fc_hops_no_device(options, name);
  return found;
}

/* ---- going on ---- */

/* Puts the hop in front of the error of the thread's slot. */
static void name_hop(const char* peer) {
  TVMFFIObject* error = fc_error_take();
  if (!error) return;
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  char kind[48];
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  fc_error_format(kind, "hop 2 (%s): %.*s", peer, (int)cell->message.size, cell->message.data);
  fc_decref(error);
}

FcEndpoint* fc_hops_open(FcSession* session, TVMFFIByteArray url) {
  char peer[96], what[128];
  int size = (int)(url.size < sizeof peer - 1 ? url.size : sizeof peer - 1);
  snprintf(peer, sizeof peer, "%.*s", size, url.data);
  snprintf(what, sizeof what, "going on to %s", peer);
  if (fc_server_require(&session->server, FC_SCOPE_RELAY, what) != 0) return NULL;
  const FcFarDevice* device = device_at(session->options, url);
  FcChannel* channel = device ? fc_dial(device->url, fc_now_ns() + dial_ns) : NULL;
  if (device && !channel) name_hop(peer);
  FcEndpoint* far = channel ? fc_endpoint_new(channel, peer, &session->wire) : NULL;
  if (channel) fc_channel_decref(channel); /* the endpoint has its own reference */
  return far;
}

static int go_on(FcSession* session, TVMFFIByteArray url, int32_t taken) {
  session->server.next_hop = fc_hops_open(session, url);
  session->server.next_args = taken;
  return session->server.next_hop ? 0 : -1;
}

static int begin(FcSession* session, const fc_wire_packet* init) {
  static const TVMFFIByteArray first = {"device:hexagon:0", 16};
  char place[300];
  int which = read_constructor(init);
  if (which < 0) return -1;
  int32_t taken = 1 + (int32_t)strlen(constructors[which].types);
  if (which == HEXAGON) return go_on(session, first, taken);
  const TVMFFIByteArray* text = text_of(&init->args[1]);
  if (which == OURS) return go_on(session, *text, taken);
  int size = snprintf(place, sizeof place, "tcp://%.*s:%lld", (int)(text->size < 200 ? text->size : 200), text->data,
                      (long long)init->args[2].v_int64);
  return go_on(session, (TVMFFIByteArray){place, (size_t)size}, taken);
}

const FcOnward fc_session_onward = {.begin = begin, .forward = fc_relay_run};
