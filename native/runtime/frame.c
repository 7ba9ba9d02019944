/* Frames. The bytes are not trusted: each read is checked against the number of bytes left. */
#include "runtime/frame.h"

enum { HEAD = 32, CHECKED_FROM = 16, MOST_PRODUCER = 255 };

static const char magic[] =
    "\x89"
    "FCBLOB\n";

/* The features that a module may ask of the runtime itself. */
static const char* const runtime_features[] = {
#ifndef FARCALL_BARE
    "farcall.files",
    "farcall.threads",
#endif
    NULL,
};

/* ---- CRC-32, as zlib computes it ---- */

static uint32_t checksum(const uint8_t* data, size_t size) {
  uint32_t table[256], crc = 0xffffffffu;
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    table[i] = value;
  }
  for (size_t i = 0; i < size; ++i) crc = crc >> 8 ^ table[(crc ^ data[i]) & 255];
  return ~crc;
}

/* ---- the fields ---- */

typedef struct {
  TVMFFIByteArray kind; /* for messages */
  const uint8_t* data;
  size_t size, at;
} Reader;

static uint64_t number(const uint8_t* at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static int refuse(const Reader* reader, const char* problem) {
  fc_error_format("ArtifactError", "a module of kind `%.*s`: truncated or corrupted: %s; copy or build it again",
                  (int)reader->kind.size, reader->kind.data, problem);
  return -1;
}

static bool read_number(Reader* reader, size_t* out) {
  if (reader->size - reader->at < 2) return false;
  *out = (size_t)number(reader->data + reader->at, 2);
  reader->at += 2;
  return true;
}

static bool read_text(Reader* reader, TVMFFIByteArray* out) {
  size_t size = 0;
  if (!read_number(reader, &size) || reader->size - reader->at < size) return false;
  *out = (TVMFFIByteArray){(const char*)reader->data + reader->at, size};
  reader->at += size;
  return true;
}

static bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool fc_frame_is_name(TVMFFIByteArray text) {
  if (text.size == 0 || text.size > FC_FRAME_NAME) return false;
  for (size_t i = 0; i < text.size; ++i) {
    char c = text.data[i];
    if (!is_alphanumeric(c) && c != '_' && c != '.' && c != '-') return false;
  }
  return true;
}

static bool is_producer(TVMFFIByteArray text) {
  if (text.size > MOST_PRODUCER) return false;
  for (size_t i = 0; i < text.size; ++i) {
    if (text.data[i] < ' ' || text.data[i] > '~') return false;
  }
  return true;
}

static int read_features(Reader* reader, FcFrame* out) {
  size_t count = 0;
  if (!read_number(reader, &count)) return refuse(reader, "it ends in its head");
  if (count > FC_FRAME_FEATURES) return refuse(reader, "it states more than 64 features");
  for (size_t i = 0; i < count; ++i) {
    if (!read_text(reader, &out->features[i])) return refuse(reader, "it ends in its head");
    if (!fc_frame_is_name(out->features[i])) return refuse(reader, "a feature's name is not one");
  }
  out->feature_count = (uint32_t)count;
  return 0;
}

static int read_head(Reader* reader, FcFrame* out) {
  if (!read_text(reader, &out->kind) || !read_text(reader, &out->producer)) {
    return refuse(reader, "it ends in its head");
  }
  if (!fc_frame_is_name(out->kind)) return refuse(reader, "its kind is not a name");
  if (!is_producer(out->producer)) return refuse(reader, "its producer is not printable ASCII");
  return read_features(reader, out);
}

static int read_data(Reader* reader, FcFrame* out) {
  size_t start = (size_t)number(reader->data + 28, 4);
  bool follows = start >= reader->at && start - reader->at < FC_FRAME_ALIGNMENT && start <= reader->size;
  for (size_t i = reader->at; follows && i < start; ++i) follows = reader->data[i] == 0;
  if (!follows) return refuse(reader, "its data does not follow its head");
  out->data = (TVMFFIByteArray){(const char*)reader->data + start, reader->size - start};
  return 0;
}

static int check(const Reader* reader) {
  if (!fc_frame_begins((const char*)reader->data, reader->size)) return refuse(reader, "it does not begin as a frame");
  if (reader->size < HEAD) return refuse(reader, "it ends in its head");
  uint32_t version = (uint32_t)number(reader->data + 8, 4);
  if (version != FC_FRAME_VERSION) {
    fc_error_format("ArtifactError",
                    "a module of kind `%.*s`: its frame has version %u, and this farcall reads version %u; install a "
                    "newer farcall",
                    (int)reader->kind.size, reader->kind.data, version, FC_FRAME_VERSION);
    return -1;
  }
  if (number(reader->data + 16, 8) != reader->size) return refuse(reader, "its length is not the one that it states");
  uint32_t crc = checksum(reader->data + CHECKED_FROM, reader->size - CHECKED_FROM);
  return crc == number(reader->data + 12, 4) ? 0 : refuse(reader, "its checksum does not match");
}

bool fc_frame_begins(const char* data, size_t size) {
  return size >= sizeof magic - 1 && memcmp(data, magic, sizeof magic - 1) == 0;
}

int fc_frame_read(TVMFFIByteArray kind, const char* data, size_t size, FcFrame* out) {
  Reader reader = {kind, (const uint8_t*)data, size, HEAD};
  if (check(&reader) != 0 || read_head(&reader, out) != 0 || read_data(&reader, out) != 0) return -1;
  out->version = (uint32_t)number(reader.data + 24, 4);
  if (out->kind.size == kind.size && memcmp(out->kind.data, kind.data, kind.size) == 0) return 0;
  fc_error_format("ArtifactError", "a module is stored as kind `%.*s`, and its frame says `%.*s`; build it again",
                  (int)kind.size, kind.data, (int)out->kind.size, out->kind.data);
  return -1;
}

/* ---- questions ---- */

static bool equal(TVMFFIByteArray text, const char* other) {
  return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

static bool has_feature(TVMFFIByteArray name) {
  for (const char* const* at = runtime_features; *at; ++at) {
    if (equal(name, *at)) return true;
  }
  return false;
}

bool fc_frame_asks_runtime(TVMFFIByteArray name) {
  static const char own[] = "farcall.";
  return name.size >= sizeof own - 1 && memcmp(name.data, own, sizeof own - 1) == 0;
}

const TVMFFIByteArray* fc_frame_missing(const FcFrame* frame) {
  for (uint32_t i = 0; i < frame->feature_count; ++i) {
    TVMFFIByteArray name = frame->features[i];
    if (fc_frame_asks_runtime(name) && !has_feature(name)) return &frame->features[i];
  }
  return NULL;
}

static bool is_inner(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; }

TVMFFIByteArray fc_frame_package(const FcFrame* frame) {
  TVMFFIByteArray all = frame->producer, none = {"", 0};
  size_t n = 0;
  while (n < all.size && is_inner(all.data[n])) ++n;
  if (n == 0 || (n < all.size && all.data[n] != ' ')) return none;
  if (!is_alphanumeric(all.data[0]) || !is_alphanumeric(all.data[n - 1])) return none;
  return (TVMFFIByteArray){all.data, n};
}
