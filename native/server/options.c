/* The options of the program: words `--name value` or `--name=value`. */
#include "server/options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FARCALL_VERSION
#define FARCALL_VERSION "unversioned"
#endif

enum {
  USAGE = 2,
  SECOND = 1000000000,
  DEFAULT_SESSIONS = 16,
  DEFAULT_MEMORY = 1 << 28,
  DEFAULT_DRAIN = 5,
  MOST = 1024
};

static const char help[] =
    "usage: farcall-server [options]\n"
    "  --listen URL       tcp://HOST:PORT or unix:PATH [tcp://127.0.0.1:9090]; port 0: any that is free\n"
    "  --mailbox FILE     serve a mailbox: a file that the client maps, too\n"
    "  --stdio            one session on standard input and output\n"
    "  --key WORD         that clients must name; not a secret\n"
    "  --token-file FILE  of `farcall token create`: only clients with one of its tokens get in\n"
    "  --insecure         allow a public address: anyone who reaches it can run code here, in plain text\n"
    "  --workpath DIR     where sessions may keep files; without it, they have none\n"
    "  --memory SIZE      of one session, as 64M [256M]\n"
    "  --sessions N       at a time [16]\n"
    "  --sessions-per-token N, --sessions-per-peer N\n"
    "                     of one token; of one address, or user of this machine\n"
    "  --packet SIZE      largest packet; clients copy in pieces of it\n"
    "  --device NAME=URL  a device behind this one, at mailbox:PATH, unix:PATH or tcp://NUMBER:PORT: clients come to\n"
    "                     it via=[\"device:NAME\"]; up to 16, and the first is hexagon:0\n"
    "  --lease SECONDS    of silence between calls, after which a session ends\n"
    "  --drain SECONDS    that running calls have to finish after SIGTERM or SIGHUP [5]\n"
    "  --version\n";

static int complain(const char* name, const char* expected, const char* got) {
  fprintf(stderr, "farcall-server: %s: expected %s, got '%.80s'; --help lists the options\n", name, expected, got);
  return USAGE;
}

/* A whole number with an optional K, M or G. */
static bool read_size(const char* text, uint64_t* out) {
  char* end;
  if (*text < '0' || *text > '9') return false;
  unsigned long long number = strtoull(text, &end, 10);
  const char* unit = *end ? strchr("KMG", *end) : NULL;
  int shift = !*end ? 0 : unit ? 10 * (int)(unit - "KMG" + 1) : -1;
  if (shift < 0 || (unit && end[1]) || number > UINT64_MAX >> 11 >> shift) return false;
  *out = (uint64_t)number << shift;
  return true;
}

static bool read_seconds(const char* text, int64_t* out) {
  char* end;
  double seconds = strtod(text, &end);
  if (end == text || *end || !(seconds >= 0 && seconds < 1e9)) return false;
  *out = (int64_t)(seconds * SECOND);
  return true;
}

/* The value of an option: NULL when it has none. */
static const char* value_of(const char* word, size_t size, char** argv, int* at) {
  if (word[size] == '=') return word + size + 1;
  return argv[*at + 1] ? argv[++*at] : NULL;
}

/* The packets that begin a session are up to this long: with a smaller limit, no client could begin one. */
enum { LEAST_PACKET = 64 };

typedef struct Option {
  const char* name;
  enum { TEXT, FLAG, SIZE, COUNT, SECONDS, DEVICE } kind;
  size_t place;   /* in FcOptions */
  uint64_t least; /* of a SIZE or COUNT */
} Option;

static const Option options[] = {
    {"--listen", TEXT, offsetof(FcOptions, listen)},
    {"--mailbox", TEXT, offsetof(FcOptions, mailbox)},
    {"--stdio", FLAG, offsetof(FcOptions, stdio)},
    {"--key", TEXT, offsetof(FcOptions, key)},
    {"--token-file", TEXT, offsetof(FcOptions, token_file)},
    {"--workpath", TEXT, offsetof(FcOptions, workpath)},
    {"--insecure", FLAG, offsetof(FcOptions, insecure)},
    {"--memory", SIZE, offsetof(FcOptions, memory), 1},
    {"--packet", SIZE, offsetof(FcOptions, packet), LEAST_PACKET},
    {"--sessions", COUNT, offsetof(FcOptions, sessions), 1},
    {"--sessions-per-token", COUNT, offsetof(FcOptions, sessions_per_token)},
    {"--sessions-per-peer", COUNT, offsetof(FcOptions, sessions_per_peer)},
    {"--lease", SECONDS, offsetof(FcOptions, lease_ns)},
    {"--device", DEVICE, 0},
    {"--drain", SECONDS, offsetof(FcOptions, drain_ns)},
};

static const Option* find(const char* word) {
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
    size_t size = strlen(options[i].name);
    if (strncmp(word, options[i].name, size) == 0 && (!word[size] || word[size] == '=')) return &options[i];
  }
  return NULL;
}

/* A name that clients can write behind "device:". */
static bool is_device_name(const char* name, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return size != 0 && size <= FC_DEVICE_NAME_MAX && strspn(name, letters) == size;
}

static int add_device(const char* value, FcOptions* out) {
  const char* equals = strchr(value, '=');
  size_t size = equals ? (size_t)(equals - value) : 0;
  if (!is_device_name(value, size)) return complain("--device", "NAME=URL, as dsp0=mailbox:/run/dsp0", value);
  for (uint32_t i = 0; i < out->device_count; ++i) {
    bool same = out->devices[i].name_size == size && memcmp(out->devices[i].name, value, size) == 0;
    if (same) return complain("--device", "a name that no other device has", value);
  }
  if (out->device_count == FC_DEVICES_MAX) return complain("--device", "16 devices at most", value);
  out->devices[out->device_count++] = (FcFarDevice){value, size, equals + 1};
  return FC_OPTIONS_GO_ON;
}

static int set_size(const Option* option, const char* value, uint64_t* out) {
  char least[32];
  if (!read_size(value, out)) return complain(option->name, "a size such as 64M", value);
  snprintf(least, sizeof least, "%llu or more", (unsigned long long)option->least);
  return *out < option->least ? complain(option->name, least, value) : FC_OPTIONS_GO_ON;
}

static int set_count(const Option* option, const char* value, uint32_t* out) {
  char expected[40];
  uint64_t number;
  snprintf(expected, sizeof expected, "a number from %d to %d", (int)option->least, MOST);
  if (!read_size(value, &number) || number < option->least || number > MOST) {
    return complain(option->name, expected, value);
  }
  *out = (uint32_t)number;
  return FC_OPTIONS_GO_ON;
}

static int set(const Option* option, const char* value, FcOptions* out) {
  void* place = (char*)out + option->place;
  if (option->kind == DEVICE) return add_device(value, out);
  if (option->kind == SIZE) return set_size(option, value, place);
  if (option->kind == COUNT) return set_count(option, value, place);
  if (option->kind == SECONDS && !read_seconds(value, place)) return complain(option->name, "seconds", value);
  if (option->kind == TEXT) *(const char**)place = value;
  return FC_OPTIONS_GO_ON;
}

int fc_options_read(int argc, char** argv, FcOptions* out) {
  *out = (FcOptions){.listen = "tcp://127.0.0.1:9090",
                     .key = "",
                     .sessions = DEFAULT_SESSIONS,
                     .memory = DEFAULT_MEMORY,
                     .drain_ns = (int64_t)DEFAULT_DRAIN * SECOND};
  for (int at = 1; at < argc; ++at) {
    if (strcmp(argv[at], "--version") == 0) return puts("farcall-server " FARCALL_VERSION), 0;
    if (strcmp(argv[at], "--help") == 0) return fputs(help, stdout), 0;
    const Option* option = find(argv[at]);
    if (!option) {
      fprintf(stderr, "farcall-server: there is no option '%.80s'; --help lists the options\n", argv[at]);
      return USAGE;
    }
    size_t size = strlen(option->name);
    if (option->kind == FLAG) {
      *(bool*)((char*)out + option->place) = true;
      continue;
    }
    const char* value = value_of(argv[at], size, argv, &at);
    if (!value) return complain(option->name, "a value", "");
    int rc = set(option, value, out);
    if (rc != FC_OPTIONS_GO_ON) return rc;
  }
  return FC_OPTIONS_GO_ON;
}
