/*
 * Drives wire.h for the tests: from bytes to the events as text, and the packets encoded again.
 *
 * The tests load it as a shared library. With -DWIRE_MAIN it is a program for sanitizers and other instruction
 * sets: its input is a list of cases (u32 little-endian length, bytes); for each it prints the events, and it
 * fails if another chunking gives other events.
 */
#if defined(WIRE_BARE)
#include "bare.h"
#else
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#endif

#include "farcall/wire.h"

typedef struct {
  char* text;
  size_t size, capacity;
} buffer;

static void append(buffer* b, const void* bytes, size_t n) {
  if (b->size + n + 1 > b->capacity) {
    char* grown = malloc(2 * (b->size + n + 1));
    if (!grown) abort();
    if (b->size) memcpy(grown, b->text, b->size);
    free(b->text);
    b->text = grown;
    b->capacity = 2 * (b->size + n + 1);
  }
  if (n) memcpy(b->text + b->size, bytes, n);
  b->size += n;
  b->text[b->size] = 0;
}

__attribute__((unused)) static int equal(const buffer* a, const buffer* b) {
  return a->size == b->size && (a->size == 0 || memcmp(a->text, b->text, a->size) == 0);
}

static void say(buffer* b, const char* text) { append(b, text, strlen(text)); }

/* Does not divide: on 32-bit machines, 64-bit division is a function of the compiler's runtime. */
static void say_number(buffer* b, const char* before, uint64_t number) {
  say(b, before);
  uint64_t powers[20] = {1};
  int i = 0;
  for (; i < 19 && powers[i] <= UINT64_MAX / 10 && powers[i] * 10 <= number; ++i) powers[i + 1] = powers[i] * 10;
  for (; i >= 0; --i) {
    char digit = '0';
    for (; number >= powers[i]; number -= powers[i]) ++digit;
    append(b, &digit, 1);
  }
}

static void say_signed(buffer* b, const char* before, int64_t number) {
  say(b, before);
  say_number(b, number < 0 ? "-" : "", number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void say_hex(buffer* b, const void* bytes, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    append(b, &"0123456789abcdef"[((const uint8_t*)bytes)[i] >> 4], 1);
    append(b, &"0123456789abcdef"[((const uint8_t*)bytes)[i] & 15], 1);
  }
}

static void say_device(buffer* b, DLDevice device) {
  say_signed(b, " device ", device.device_type);
  say_signed(b, ":", device.device_id);
}

static void say_dtype(buffer* b, DLDataType dtype) {
  say_number(b, " dtype ", dtype.code);
  say_number(b, ",", dtype.bits);
  say_number(b, ",", dtype.lanes);
}

static void say_tensor(buffer* b, const fc_wire_tensor* t) {
  say_number(b, " tensor ", t->data);
  say_number(b, "+", t->byte_offset);
  say_device(b, t->device);
  say_dtype(b, t->dtype);
  say(b, " of");
  for (int32_t i = 0; i < t->ndim; ++i) say_signed(b, " ", t->shape[i]);
}

static void say_value(buffer* b, const TVMFFIAny* v) {
  say_signed(b, " ", v->type_index);
  say(b, ":");
  if (fc_wire_is_text(v->type_index) || fc_wire_is_bytes(v->type_index)) {
    const TVMFFIByteArray* s = v->v_ptr;
    say_hex(b, s->data, s->size);
    say(b, s->data[s->size] == 0 ? "'" : "' WITHOUT NUL");
    return;
  }
  switch (v->type_index) {
    case kTVMFFIDLTensorPtr: say_tensor(b, v->v_ptr); return;
    case kTVMFFIDataType: say_dtype(b, v->v_dtype); return;
    case kTVMFFIDevice: say_device(b, v->v_device); return;
    default: say_number(b, "", v->v_uint64);
  }
}

static void say_packet(buffer* b, const fc_wire_packet* p) {
  say(b, fc_wire_code_name(p->code));
  say_number(b, " handle ", p->handle);
  say(b, " version ");
  say_hex(b, p->version.data, p->version.size);
  if (p->code == FC_WIRE_COPY_FROM_REMOTE || p->code == FC_WIRE_COPY_TO_REMOTE) say_tensor(b, &p->tensor);
  say_number(b, " nbytes ", p->nbytes);
  say_signed(b, " args ", p->num_args);
  for (int32_t i = 0; i < p->num_args; ++i) say_value(b, &p->args[i]);
  say(b, "\n");
}

static void say_failure(buffer* b, const fc_wire_reader* reader) {
  say(b, "failed: ");
  say(b, fc_wire_status_text(reader->status));
  say_number(b, ", ", reader->measured);
  say_number(b, " of ", reader->allowed);
  say(b, "\n");
}

static void encode_again(buffer* again, const fc_wire_packet* p) {
  uint64_t size = 0, written = 0;
  if (fc_wire_encode(p, NULL, 0, &size) != FC_WIRE_OK) abort();
  uint8_t* bytes = malloc(size); /* the exact size, so that the sanitizer detects a read of one byte more */
  if (!bytes || fc_wire_encode(p, bytes, size, &written) != FC_WIRE_OK || written != size) abort();
  append(again, bytes, size);
  free(bytes);
}

typedef struct {
  fc_wire_reader reader;
  uint8_t* sink;
  buffer* log;
  buffer* again;
} run;

/* One event. Returns 0 when the stream has ended. */
static int on_event(run* r, fc_wire_event event, const fc_wire_packet* p) {
  fc_wire_reader* reader = &r->reader;
  switch (event) {
    case FC_WIRE_MORE: return 1;
    case FC_WIRE_SPACE: {
      uint8_t* grown = malloc(reader->need); /* not realloc: the old memory must not be used again */
      if (!grown) abort();
      if (reader->body_have) memcpy(grown, reader->body, reader->body_have);
      free(reader->body);
      reader->body = grown;
      reader->body_capacity = reader->need;
      return 1;
    }
    case FC_WIRE_ARENA:
      free(reader->arena);
      reader->arena = malloc(reader->need);
      if (!reader->arena) abort();
      reader->arena_capacity = reader->need;
      return 1;
    case FC_WIRE_PACKET:
      encode_again(r->again, p);
      say_packet(r->log, p);
      return 1;
    case FC_WIRE_PAYLOAD:
      encode_again(r->again, p);
      say_packet(r->log, p);
      free(r->sink);
      r->sink = malloc(p->nbytes + 1);
      if (!r->sink) abort();
      memset(r->sink, 0, p->nbytes + 1);
      reader->sink = r->sink;
      return 1;
    case FC_WIRE_PAYLOAD_END:
      append(r->again, r->sink, reader->payload_size);
      say(r->log, "payload ");
      say_hex(r->log, r->sink, reader->payload_size);
      say(r->log, "\n");
      return 1;
    case FC_WIRE_FAILED:
      say_failure(r->log, reader);
      return 0;
  }
  abort();
}

static int feed(run* r, const uint8_t* bytes, uint64_t n) {
  uint64_t at = 0, used = 0;
  for (;;) {
    fc_wire_packet packet;
    fc_wire_event event = fc_wire_feed(&r->reader, bytes + at, n - at, &used, &packet);
    at += used;
    if (!on_event(r, event, &packet)) return 0;
    if (event == FC_WIRE_MORE) {
      if (at != n) abort();
      return 1;
    }
  }
}

/* The same as an endpoint that receives payloads directly into their destination. */
static uint64_t put_in_place(run* r, const uint8_t* bytes, uint64_t n) {
  uint8_t* to = NULL;
  uint64_t room = fc_wire_room(&r->reader, &to);
  if (room > n) room = n;
  if (room != 0) {
    memcpy(to, bytes, room);
    fc_wire_wrote(&r->reader, room);
  }
  return room;
}

static void run_case(const uint8_t* data, uint64_t n, uint64_t chunk, int in_place, buffer* log, buffer* again) {
  static const fc_wire_limits limits = {4096, 65536, 65536, 4096, 64, 8};
  run r = {.log = log, .again = again};
  fc_wire_reader_init(&r.reader, &limits);
  if (chunk == 0) chunk = n ? n : 1;
  for (uint64_t at = 0; at < n;) {
    uint64_t size = n - at < chunk ? n - at : chunk;
    uint64_t placed = in_place ? put_in_place(&r, data + at, size) : 0;
    uint8_t* piece = malloc(size - placed + 1);
    if (!piece) abort();
    memcpy(piece, data + at + placed, size - placed);
    int alive = feed(&r, piece, size - placed);
    free(piece);
    if (!alive) break;
    at += size;
  }
  say(log, fc_wire_at_boundary(&r.reader) ? "at a boundary\n" : "inside a packet\n");
  free(r.reader.body);
  free(r.reader.arena);
  free(r.sink);
}

#if defined(WIRE_MAIN)

static uint64_t take(void* to, uint64_t n) {
  uint64_t have = 0;
  for (long got; have < n && (got = (long)read(0, (uint8_t*)to + have, n - have)) > 0;) have += (uint64_t)got;
  return have;
}

static void give(const char* from, uint64_t n) {
  for (uint64_t sent = 0; sent < n;) {
    long put = (long)write(1, from + sent, n - sent);
    if (put <= 0) abort();
    sent += (uint64_t)put;
  }
}

static int one_case(const uint8_t* data, uint64_t n) {
  static const uint64_t chunks[] = {1, 7, 13, 64};
  buffer log = {0}, again = {0};
  run_case(data, n, 0, 0, &log, &again);
  give(log.text, log.size);
  int same = 1;
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; ++i) {
    buffer other = {0}, other_again = {0};
    run_case(data, n, chunks[i], (int)(i & 1), &other, &other_again);
    same &= equal(&other, &log) & equal(&other_again, &again);
    free(other.text);
    free(other_again.text);
  }
  free(log.text);
  free(again.text);
  return same;
}

int main(void) {
  uint8_t head[4];
  int good = 1;
  while (take(head, 4) == 4) {
    uint32_t n = fc_wire_load32(head);
    uint8_t* data = malloc((size_t)n + 1);
    if (!data || take(data, n) != n) return 2;
    good &= one_case(data, n);
    free(data);
  }
  return good ? 0 : 1;
}

#else

/* The text of events and the packets encoded again; wire_free both. */
void wire_run(const uint8_t* data, uint64_t n, uint64_t chunk, int in_place, char** log, uint64_t* log_size,
              char** again, uint64_t* again_size) {
  buffer text = {0}, bytes = {0};
  run_case(data, n, chunk, in_place, &text, &bytes);
  *log = text.text;
  *log_size = text.size;
  *again = bytes.text;
  *again_size = bytes.size;
}

void wire_free(void* memory) { free(memory); }

int wire_tensor_nbytes(const int64_t* shape, int32_t ndim, uint8_t bits, uint16_t lanes, uint64_t* nbytes) {
  fc_wire_tensor tensor = {.shape = shape, .ndim = ndim, .dtype = {0, bits, lanes}};
  return fc_wire_tensor_nbytes(&tensor, nbytes);
}

#endif
