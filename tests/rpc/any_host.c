/* A server and a client in C, for instruction sets that the tests have no Python for.
 *
 *   any_host serve             a server on standard input and output
 *   any_host call TYPES...     a client there, of a server that has test.hex; "CODE,BITS,LANES" each; it reports on stderr
 */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"
#include "session/server/serve.h"
#include "session/posix/channels.h"

static const fc_wire_limits limits = {1 << 16, 1 << 20, 1 << 24, 1 << 20, 64, 8};

static void check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(1);
}

static FcEndpoint* line(bool client) {
  FcChannel* channel = fc_channel_from_fds(0, 1);
  FcEndpoint* ep = client ? fc_client_endpoint_new(channel, "the server", &limits)
                          : fc_endpoint_new(channel, "the client", &limits);
  fc_channel_decref(channel);
  return ep;
}

/* ---- numbers in memory, as this machine loads and stores them ---- */

static size_t width(DLDataType type) {
  size_t bits = type.code == kDLComplex ? type.bits / 2u : type.bits;
  return bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 1;
}

static uint64_t load(const uint8_t* p, size_t width) {
  uint16_t two;
  uint32_t four;
  uint64_t eight;
  switch (width) {
    case 2: return memcpy(&two, p, 2), two;
    case 4: return memcpy(&four, p, 4), four;
    case 8: return memcpy(&eight, p, 8), eight;
    default: return *p;
  }
}

static void store(uint8_t* p, size_t width, uint64_t value) {
  uint16_t two = (uint16_t)value;
  uint32_t four = (uint32_t)value;
  switch (width) {
    case 2: memcpy(p, &two, 2); break;
    case 4: memcpy(p, &four, 4); break;
    case 8: memcpy(p, &value, 8); break;
    default: *p = (uint8_t)value;
  }
}

static uint64_t number(uint64_t i) { return (i + 1) * UINT64_C(0x0102030405060708); }

static void fill(const DLTensor* t) {
  uint8_t* data = (uint8_t*)t->data + t->byte_offset;
  size_t size = (size_t)fc_nbytes(t), step = width(t->dtype);
  for (size_t i = 0; i < size / step; ++i) store(data + i * step, step, number(i));
}

/* ---- the server ---- */

static const DLTensor* tensor_of(const TVMFFIAny* args, int32_t n) {
  const DLTensor* t = n == 1 ? fc_any_tensor(args) : NULL;
  if (!t) fc_error_set("TypeError", "expected a tensor");
  return t;
}

/* Its numbers in hex, with blanks between. */
static int call_numbers(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* t = tensor_of(args, n);
  (void)self;
  if (!t) return -1;
  const uint8_t* data = (const uint8_t*)t->data + t->byte_offset;
  size_t size = (size_t)fc_nbytes(t), step = width(t->dtype), used = 0;
  char* text = malloc(size * 3 + 1);
  for (size_t i = 0; i < size / step; ++i) {
    used += (size_t)sprintf(text + used, "%llx ", (unsigned long long)load(data + i * step, step));
  }
  int rc = fc_any_from_bytes(kTVMFFIStr, text, used, result);
  free(text);
  return rc;
}

static int call_fill(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* t = tensor_of(args, n);
  (void)self;
  if (t) fill(t);
  *result = fc_any_none();
  return t ? 0 : -1;
}

static int call_echo(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  return n == 1 ? fc_any_to_owned(args, result) : (*result = fc_any_none(), 0);
}

static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  static const struct {
    const char* name;
    TVMFFISafeCallType call;
  } exports[] = {{"test.numbers", call_numbers}, {"test.fill", call_fill}, {"test.echo", call_echo}};
  (void)context;
  for (size_t i = 0; i < sizeof exports / sizeof *exports; ++i) {
    if (strlen(exports[i].name) != name.size || memcmp(exports[i].name, name.data, name.size) != 0) continue;
    TVMFFIObjectHandle object;
    if (fc_function_new(NULL, exports[i].call, NULL, &object) != 0) return -1;
    *out = fc_export_new(object, name.data, name.size, FC_SCOPE_CALL);
    return *out ? 0 : -1;
  }
  return 0;
}

static int begin(void* context, FcServer* server, const fc_wire_packet* request) {
  TVMFFIAny none = fc_any_none();
  (void)context, (void)request;
  return fc_server_reply(server, &none, 1);
}

static TVMFFIObject* take_error(void) { return NULL; }

static int serve(void) {
  static const FcPolicy policy = {find, begin, NULL, take_error};
  FcHandles handles = {.limit = 1 << 16, .random = fc_system_random};
  FcServer server = {.ep = line(false), .policy = &policy, .handles = handles, .tensor_limit = 1 << 28,
                     .scopes = FC_SCOPE_ALL};
  check(fc_endpoint_enter(server.ep) == 0, "enter");
  int rc = fc_server_run(&server);
  fc_endpoint_leave(server.ep);
  fc_server_clear(&server);
  fc_endpoint_decref(server.ep);
  return rc != 0;
}

/* ---- the client ---- */

static TVMFFIObject* begin(FcEndpoint* ep) {
  uint64_t handle = 0;
  fc_wire_packet reply, init = {.code = FC_WIRE_INIT_SERVER, .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1}};
  check(fc_endpoint_enter(ep) == 0, "enter");
  check(fc_remote_request(ep, &init, "kInitServer", &reply) == 0, "kInitServer");
  check(fc_remote_lookup(ep, "test.hex", &handle) == 0 && handle != 0, "test.hex");
  fc_endpoint_leave(ep);
  return fc_remote_function(ep, handle, "test.hex");
}

/* What the server sees of a tensor, as text on stderr. */
static void show(TVMFFIObject* function, const char* what, const DLTensor* tensor) {
  TVMFFIAny arg = {.type_index = kTVMFFIDLTensorPtr, .v_ptr = (void*)tensor}, result = fc_any_none();
  TVMFFIByteArray text;
  check(TVMFFIFunctionGetCellPtr(function)->safe_call(function, &arg, 1, &result) == 0, "a call");
  check(fc_any_text(&result, &text), "a text");
  fprintf(stderr, "%s %.*s\n", what, (int)text.size, text.data);
  fc_any_clear(&result);
}

static void exercise(FcEndpoint* ep, TVMFFIObject* function, DLDataType type) {
  int64_t shape[2] = {2, 4}, strides[2] = {1, 2};
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = type, .shape = shape};
  FcTensorObj *here = fc_tensor_alloc(&like), *back = fc_tensor_alloc(&like);
  FcTensorObj* there = fc_remote_empty(ep, like.device, 2, shape, type);
  check(here && back && there, "memory");
  fill(&here->dl);
  check(fc_remote_copy_in(ep, &there->dl, &here->dl) == 0, "a copy there");
  show(function, "copied", &there->dl);
  check(fc_remote_copy_out(ep, &there->dl, back->dl.data) == 0, "a copy back");
  check(memcmp(here->dl.data, back->dl.data, (size_t)fc_nbytes(&here->dl)) == 0, "the same bytes");
  show(function, "passed", &here->dl);
  DLTensor columns = here->dl;
  columns.strides = strides;
  if (type.bits * type.lanes % 8 == 0) show(function, "strided", &columns);
  fc_decref(here);
  fc_decref(back);
  fc_decref(there);
}

static int call(int count, char** types) {
  FcEndpoint* ep = line(true);
  TVMFFIObject* function = begin(ep);
  for (int i = 0; i < count; ++i) {
    unsigned code, bits, lanes;
    check(sscanf(types[i], "%u,%u,%u", &code, &bits, &lanes) == 3, "a type");
    exercise(ep, function, (DLDataType){(uint8_t)code, (uint8_t)bits, (uint16_t)lanes});
  }
  fc_decref(function);
  fc_endpoint_close(ep, true);
  fc_endpoint_decref(ep);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "call") == 0) return call(argc - 2, argv + 2);
  return serve();
}
