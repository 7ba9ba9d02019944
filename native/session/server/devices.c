/* The server: requests about devices. Each device has one stream, the null stream, which runs in order. */
#include "runtime/device_memory.h"
#include "session/server/serve.h"

/* Attributes of kDevGetAttr that the CPU has: its memory, in bytes. */
enum { TOTAL_MEMORY = 14, AVAILABLE_MEMORY = 15 };

static int read_cpu(int64_t kind, TVMFFIAny* out) {
  int64_t bytes = kind == TOTAL_MEMORY || kind == AVAILABLE_MEMORY ? fc_memory_bytes(kind == AVAILABLE_MEMORY) : -1;
  if (bytes >= 0) *out = fc_any_int(bytes);
  return 0;
}

/* *out is None when the device does not have the attribute. */
static int read_attribute(DLDevice device, int64_t kind, TVMFFIAny* out) {
  const FcDeviceMemory* memory = fc_device_memory_of(device);
  bool here = fc_device_is_here(device);
  *out = fc_any_none();
  if (kind == FC_DEVICE_EXISTS) return *out = fc_any_int(here), 0;
  if (!here || kind < 0 || kind > INT32_MAX) return 0;
  if (!memory) return read_cpu(kind, out);
  return memory->attribute(memory->context, device.device_id, (int32_t)kind, out);
}

static int reply_attribute(FcServer* server, const fc_wire_packet* p) {
  TVMFFIAny value, held;
  FcWireResult wire;
  if (fc_server_expect(p, 2, (int32_t[]){kTVMFFIDevice, kTVMFFIInt}) != 0) return -1;
  if (read_attribute(p->args[0].v_device, p->args[1].v_int64, &value) != 0) return -1;
  int rc = fc_server_outgoing(server, &value, &wire, &held);
  if (rc == 0) rc = fc_server_reply(server, wire.values, 1);
  fc_any_clear(&held);
  fc_any_clear(&value);
  return rc;
}

static int synchronize(DLDevice device) {
  if (fc_device_check(device) != 0) return -1;
  const FcDeviceMemory* memory = fc_device_memory_of(device);
  return memory ? memory->synchronize(memory->context, device.device_id) : 0;
}

static int reply_synchronized(FcServer* server, const fc_wire_packet* p) {
  if (fc_server_expect(p, 2, (int32_t[]){kTVMFFIDevice, -1}) != 0) return -1;
  return synchronize(p->args[0].v_device) == 0 ? fc_server_reply_void(server) : -1;
}

static int reply_null_stream(FcServer* server, const fc_wire_packet* p) {
  if (fc_server_expect(p, 1, (int32_t[]){kTVMFFIDevice}) != 0) return -1;
  return synchronize(p->args[0].v_device) == 0 ? fc_server_reply_handle(server, 0) : -1;
}

static int reply_nothing_done(FcServer* server, const fc_wire_packet* p, int32_t n) {
  if (fc_server_expect(p, n, (int32_t[]){kTVMFFIDevice, -1}) != 0) return -1;
  return fc_server_reply_void(server);
}

int fc_server_device(FcServer* server, const fc_wire_packet* p) {
  switch (p->code) {
    case FC_WIRE_DEV_SET_DEVICE: return reply_nothing_done(server, p, 1);
    case FC_WIRE_DEV_GET_ATTR: return reply_attribute(server, p);
    case FC_WIRE_DEV_STREAM_SYNC: return reply_synchronized(server, p);
    case FC_WIRE_DEV_CREATE_STREAM:
    case FC_WIRE_DEV_GET_CURRENT_STREAM: return reply_null_stream(server, p);
    case FC_WIRE_DEV_FREE_STREAM:
    case FC_WIRE_DEV_SET_STREAM: return reply_nothing_done(server, p, 2);
    default: break;
  }
  fc_error_format("ProtocolError", "packet code %d is not one that a client sends", (int)p->code);
  return -1;
}
