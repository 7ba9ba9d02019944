/* A client in C on standard input and output, for instruction sets for which the tests have no Python.
 *
 *   any_host TYPES...     of a server that has test.hex; "CODE,BITS,LANES" each; it reports on stderr
 */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"
#include "session/posix/channels.h"
#include "../native/numbers.h"

static const fc_wire_limits limits = {1 << 16, 1 << 20, 1 << 24, 1 << 20, 64, 8};

static void check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(1);
}

static FcEndpoint* line(void) {
  FcChannel* channel = fc_channel_from_fds(0, 1);
  FcEndpoint* ep = fc_client_endpoint_new(channel, "the server", &limits);
  fc_channel_decref(channel);
  return ep;
}

static TVMFFIObject* begin(FcEndpoint* ep) {
  uint64_t handle = 0;
  fc_wire_packet reply, init = {.code = FC_WIRE_INIT_SERVER, .version = {FC_WIRE_VERSION, sizeof FC_WIRE_VERSION - 1}};
  check(fc_endpoint_enter(ep) == 0, "enter");
  check(fc_remote_request(ep, &init, "kInitServer", &reply) == 0, "kInitServer");
  check(fc_remote_lookup(ep, "test.hex", &handle) == 0 && handle != 0, "test.hex");
  fc_endpoint_leave(ep);
  return fc_remote_function(ep, handle, "test.hex");
}

/* Prints to stderr the elements of a tensor as the server loads them. */
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

static int exercise_all(int count, char** types) {
  FcEndpoint* ep = line();
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

int main(int argc, char** argv) { return exercise_all(argc - 1, argv + 1); }
