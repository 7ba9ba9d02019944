/*
 * handshake.h - the handshake that opens a TCP connection of farcall's RPC, in freestanding C11.
 *
 *   connector -> acceptor   i32 magic, i32 n, n bytes: "client:KEY -option=value ..."
 *   acceptor -> connector   i32 code; behind the magic also i32 m, m bytes: "server:KEY"
 *
 * All numbers are little endian. Packets follow (wire.h). The readers below take all bytes that have arrived since the
 * connection began. All functions keep no state, call no function of the C library and allocate nothing.
 */
#ifndef FARCALL_HANDSHAKE_H_
#define FARCALL_HANDSHAKE_H_

#include <stddef.h>
#include <stdint.h>

#define FC_HANDSHAKE_MAGIC INT32_C(0xFF271)
#define FC_HANDSHAKE_DUPLICATE INT32_C(0xFF272) /* the proxy already serves that key */
#define FC_HANDSHAKE_MISMATCH INT32_C(0xFF273)  /* the acceptor has another key */

enum { FC_HANDSHAKE_PREFIX_SIZE = 7 }; /* of "client:" and "server:" */

typedef enum fc_handshake_status {
  FC_HANDSHAKE_DONE,
  FC_HANDSHAKE_MORE,        /* *need bytes in all; bytes after those belong to the packets */
  FC_HANDSHAKE_E_MAGIC,     /* the first four bytes are not those of an RPC peer */
  FC_HANDSHAKE_E_SIZE,      /* the key field is too short or too long */
  FC_HANDSHAKE_E_PREFIX,    /* the key field does not begin with "client:" */
  FC_HANDSHAKE_E_TIMEOUT,   /* -timeout is not a number of seconds from 0 to below 1e9 */
  FC_HANDSHAKE_E_MISMATCH,  /* the acceptor refused the key */
  FC_HANDSHAKE_E_DUPLICATE, /* a proxy refused the key */
} fc_handshake_status;

/* Borrowed bytes of the caller's, without a NUL at the end. */
typedef struct fc_handshake_text {
  const char* data; /* NULL if absent */
  size_t size;
} fc_handshake_text;

/* The request of a connector. */
typedef struct fc_hello {
  fc_handshake_text key;
  fc_handshake_text token;
  fc_handshake_text timeout; /* the text of timeout_ns */
  int64_t timeout_ns;        /* how long the session may last at most; 0: the connector sets no limit */
} fc_hello;

static inline int32_t fc_handshake__load(const uint8_t* at) {
  return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

static inline int fc_handshake__is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static inline int fc_handshake__begins(fc_handshake_text text, const char* with) {
  size_t i = 0;
  for (; with[i]; ++i) {
    if (i == text.size || text.data[i] != with[i]) return 0;
  }
  return 1;
}

static inline fc_handshake_text fc_handshake__behind(fc_handshake_text text, size_t n) {
  return (fc_handshake_text){text.data + n, text.size - n};
}

/* Removes the first word of a text and returns it; NULL if no word is left. */
static inline fc_handshake_text fc_handshake__word(fc_handshake_text* rest) {
  size_t begin = 0, end;
  while (begin < rest->size && fc_handshake__is_blank(rest->data[begin])) ++begin;
  for (end = begin; end < rest->size && !fc_handshake__is_blank(rest->data[end]);) ++end;
  fc_handshake_text word = {begin == end ? NULL : rest->data + begin, end - begin};
  *rest = fc_handshake__behind(*rest, end);
  return word;
}

/* Reads digits with at most one point: the number is *value times ten to the *power. Returns the bytes read. */
static inline size_t fc_handshake__mantissa(fc_handshake_text text, uint64_t* value, int32_t* power) {
  size_t at = 0;
  int digits = 0, behind_point = 0;
  for (; at < text.size; ++at) {
    char c = text.data[at];
    if (c == '.' && !behind_point) {
      behind_point = 1;
      continue;
    }
    if (c < '0' || c > '9') break;
    digits = 1;
    if (*value < UINT64_C(100000000000000000)) {
      *value = *value * 10 + (uint64_t)(c - '0');
      *power -= behind_point;
    } else {
      *power += !behind_point;
    }
  }
  return digits ? at : 0;
}

/* Reads an exponent such as "e-3" and adds it to *power. Returns 0 if the text is not an exponent. */
static inline int fc_handshake__exponent(fc_handshake_text text, int32_t* power) {
  size_t at = 1;
  int32_t sign = 1, value = 0;
  if (text.size == 0) return 1;
  if (text.data[0] != 'e' && text.data[0] != 'E') return 0;
  if (at < text.size && (text.data[at] == '+' || text.data[at] == '-')) sign = text.data[at++] == '-' ? -1 : 1;
  if (at == text.size || text.size - at > 4) return 0;
  for (; at < text.size; ++at) {
    if (text.data[at] < '0' || text.data[at] > '9') return 0;
    value = value * 10 + (text.data[at] - '0');
  }
  *power += sign * value;
  return 1;
}

/* Reads a number of seconds, as Python and C print it, as nanoseconds, rounded down. */
static inline fc_handshake_status fc_handshake__seconds(fc_handshake_text text, int64_t* out) {
  const uint64_t limit = UINT64_C(1000000000000000000);
  uint64_t value = 0;
  int32_t power = 9;
  size_t used = fc_handshake__mantissa(text, &value, &power);
  if (used == 0 || !fc_handshake__exponent(fc_handshake__behind(text, used), &power)) return FC_HANDSHAKE_E_TIMEOUT;
  for (; power < 0 && value != 0; ++power) value /= 10;
  for (; power > 0 && value != 0; --power) {
    if (value >= limit / 10) return FC_HANDSHAKE_E_TIMEOUT;
    value *= 10;
  }
  if (value >= limit) return FC_HANDSHAKE_E_TIMEOUT;
  *out = (int64_t)value;
  return FC_HANDSHAKE_DONE;
}

/* Reads the key field of a connector. Skips unknown options, because a later connector may send more. */
static inline fc_handshake_status fc_hello_parse(fc_handshake_text field, fc_hello* out) {
  static const char timeout[] = "-timeout=", token[] = "-token=";
  fc_handshake_text word = fc_handshake__word(&field);
  *out = (fc_hello){.timeout_ns = 0};
  if (!word.data || !fc_handshake__begins(word, "client:")) return FC_HANDSHAKE_E_PREFIX;
  out->key = fc_handshake__behind(word, FC_HANDSHAKE_PREFIX_SIZE);
  while ((word = fc_handshake__word(&field)).data) {
    if (fc_handshake__begins(word, token)) out->token = fc_handshake__behind(word, sizeof token - 1);
    if (!fc_handshake__begins(word, timeout)) continue;
    out->timeout = fc_handshake__behind(word, sizeof timeout - 1);
    if (fc_handshake__seconds(out->timeout, &out->timeout_ns) != FC_HANDSHAKE_DONE) return FC_HANDSHAKE_E_TIMEOUT;
  }
  return FC_HANDSHAKE_DONE;
}

/* Reads the field after the first four bytes: its size, then its text. */
static inline fc_handshake_status fc_handshake__field(const uint8_t* bytes, size_t n, size_t least, size_t most,
                                                      size_t* need, fc_handshake_text* out) {
  *need = 8;
  if (n < 8) return FC_HANDSHAKE_MORE;
  int32_t size = fc_handshake__load(bytes + 4);
  if (size < 0 || (size_t)size < least || (size_t)size > most) return FC_HANDSHAKE_E_SIZE;
  *need = 8 + (size_t)size;
  if (n < *need) return FC_HANDSHAKE_MORE;
  *out = (fc_handshake_text){(const char*)bytes + 8, (size_t)size};
  return FC_HANDSHAKE_DONE;
}

/* Writes the magic and a field, which is what both sides send. Returns the number of bytes; 0 if they exceed `room`. */
static inline size_t fc_handshake__write(uint8_t* out, size_t room, const char prefix[FC_HANDSHAKE_PREFIX_SIZE],
                                         fc_handshake_text key) {
  size_t field = FC_HANDSHAKE_PREFIX_SIZE + key.size;
  if (room < 8 || field > room - 8 || field > INT32_MAX) return 0;
  for (int i = 0; i < 4; ++i) {
    out[i] = (uint8_t)((uint32_t)FC_HANDSHAKE_MAGIC >> (8 * i));
    out[4 + i] = (uint8_t)((uint32_t)field >> (8 * i));
  }
  for (size_t i = 0; i < field; ++i) {
    out[8 + i] = (uint8_t)(i < FC_HANDSHAKE_PREFIX_SIZE ? prefix[i] : key.data[i - FC_HANDSHAKE_PREFIX_SIZE]);
  }
  return 8 + field;
}

/* The connector's request: the acceptor's key, and behind it the options, if any. */
static inline size_t fc_hello_write(uint8_t* out, size_t room, fc_handshake_text key) {
  return fc_handshake__write(out, room, "client:", key);
}

/* The acceptor's answer to a request that it accepts. */
static inline size_t fc_welcome_write(uint8_t* out, size_t room, fc_handshake_text key) {
  return fc_handshake__write(out, room, "server:", key);
}

/*
 * The acceptor reads a connector's first bytes. max_key limits the key field, so that a false length allocates nothing.
 * *out points into the bytes.
 */
static inline fc_handshake_status fc_hello_read(const uint8_t* bytes, size_t n, size_t max_key, size_t* need,
                                                fc_hello* out) {
  fc_handshake_text field = {NULL, 0};
  *need = 4;
  if (n < 4) return FC_HANDSHAKE_MORE;
  if (fc_handshake__load(bytes) != FC_HANDSHAKE_MAGIC) return FC_HANDSHAKE_E_MAGIC;
  fc_handshake_status status = fc_handshake__field(bytes, n, FC_HANDSHAKE_PREFIX_SIZE, max_key, need, &field);
  return status == FC_HANDSHAKE_DONE ? fc_hello_parse(field, out) : status;
}

/* The connector reads the answer. *key is the acceptor's key, with its prefix "server:". */
static inline fc_handshake_status fc_welcome_read(const uint8_t* bytes, size_t n, size_t max_key, size_t* need,
                                                  fc_handshake_text* key) {
  *need = 4;
  if (n < 4) return FC_HANDSHAKE_MORE;
  switch (fc_handshake__load(bytes)) {
    case FC_HANDSHAKE_MAGIC: return fc_handshake__field(bytes, n, 0, max_key, need, key);
    case FC_HANDSHAKE_MISMATCH: return FC_HANDSHAKE_E_MISMATCH;
    case FC_HANDSHAKE_DUPLICATE: return FC_HANDSHAKE_E_DUPLICATE;
    default: return FC_HANDSHAKE_E_MAGIC;
  }
}

#endif /* FARCALL_HANDSHAKE_H_ */
