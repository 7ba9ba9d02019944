/* wire.h and handshake.h alone: compiled with -ffreestanding -nostdlib, and nothing may stay undefined. */
#include "farcall/handshake.h"
#include "farcall/wire.h"

__attribute__((visibility("default"))) fc_wire_event feed(fc_wire_reader* reader, const uint8_t* bytes, uint64_t n,
                                                          uint64_t* used, fc_wire_packet* out) {
  return fc_wire_feed(reader, bytes, n, used, out);
}

__attribute__((visibility("default"))) fc_wire_status encode(const fc_wire_packet* packet, uint8_t* out,
                                                             uint64_t capacity, uint64_t* size) {
  return fc_wire_encode(packet, out, capacity, size);
}

__attribute__((visibility("default"))) void start(fc_wire_reader* reader, const fc_wire_limits* limits) {
  fc_wire_reader_init(reader, limits);
}

__attribute__((visibility("default"))) fc_handshake_status accept(const uint8_t* bytes, size_t n, size_t* need,
                                                                  fc_hello* out) {
  return fc_hello_read(bytes, n, 1024, need, out);
}

__attribute__((visibility("default"))) fc_handshake_status connect(const uint8_t* bytes, size_t n, size_t* need,
                                                                   fc_handshake_text* key) {
  return fc_welcome_read(bytes, n, 1024, need, key);
}
