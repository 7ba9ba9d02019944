/*
 * Token files, as `farcall token` writes them: JSON with the names of the tokens, SHA-256 of their secrets, scopes and
 * times. The file is read again when it has changed, so that a token can be revoked while the server runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/text.h"
#include "server/posix/host.h"
#include "server/sha256.h"

enum { FILE_BYTES = 1 << 20, DIGEST = 64 };

/* ---- the file ---- */

static int unusable(const FcTokens* tokens, const char* why) {
  fprintf(stderr, "farcall-server: %s: %s\n", tokens->path, why);
  fc_error_set("AccessDeniedError", "the server cannot read its tokens");
  return -1;
}

static const char* objection_to(const struct stat* about) {
  if (!S_ISREG(about->st_mode)) return "a token file is a regular file";
  if (about->st_mode & 077) return "others can read or change it; run chmod 600 on it";
  if (about->st_uid != geteuid() && about->st_uid != 0) return "it belongs to another user, who could admit anybody";
  return about->st_size > FILE_BYTES ? "a token file has at most 1 MiB" : NULL;
}

static int parse(FcTokens* tokens, int fd, size_t size) {
  char* text = malloc(size + 1);
  ssize_t got = text ? read(fd, text, size + 1) : -1;
  int rc = got < 0 ? -1 : fc_json_parse(text, (size_t)got, &tokens->content);
  free(text);
  if (rc == 0 && tokens->content.type_index == kTVMFFIMap) return 0;
  fc_any_clear(&tokens->content);
  fc_error_drop();
  return unusable(tokens, "no token file; make one by `farcall token create`");
}

static void stamp_of(const struct stat* about, int64_t out[4]) {
  out[0] = (int64_t)about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec;
  out[1] = (int64_t)about->st_ino;
  out[2] = (int64_t)about->st_size;
  out[3] = (int64_t)about->st_mode;
}

/* Reads the file again if it has changed. A file that is not there has no tokens. */
static int refresh(FcTokens* tokens) {
  struct stat about;
  int64_t stamp[4] = {0};
  int fd = open(tokens->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error = errno;
  if (fd >= 0 && fstat(fd, &about) == 0) stamp_of(&about, stamp);
  int rc = 0;
  if (memcmp(stamp, tokens->stamp, sizeof stamp) != 0 || tokens->content.type_index != kTVMFFIMap) {
    fc_any_clear(&tokens->content);
    memcpy(tokens->stamp, stamp, sizeof stamp);
    const char* why = fd >= 0 ? objection_to(&about) : error == ENOENT ? NULL : strerror(error);
    rc = why ? unusable(tokens, why) : fd >= 0 ? parse(tokens, fd, (size_t)about.st_size) : 0;
  }
  if (fd >= 0) close(fd);
  return rc;
}

/* ---- a token ---- */

static const TVMFFIAny* field(const TVMFFIAny* map, const char* name) {
  TVMFFIAny key = {.type_index = kTVMFFIRawStr, .v_c_str = name};
  return map && map->type_index == kTVMFFIMap ? fc_map_find(map->v_obj, &key) : NULL;
}

static const TVMFFISeqCell* items(const TVMFFIAny* array) {
  return array && array->type_index == kTVMFFIArray ? TVMFFISeqGetCellPtr(array->v_obj) : NULL;
}

static TVMFFIByteArray text_of(const TVMFFIAny* any) {
  TVMFFIByteArray text = {"", 0};
  if (any) fc_any_text(any, &text);
  return text;
}

static const TVMFFIAny* find(const FcTokens* tokens, const char* name, size_t size) {
  const TVMFFISeqCell* all = items(field(&tokens->content, "tokens"));
  for (int64_t i = 0; all && i < all->size; ++i) {
    const TVMFFIAny* token = &((const TVMFFIAny*)all->data)[i];
    TVMFFIByteArray its = text_of(field(token, "name"));
    if (size != 0 && its.size == size && memcmp(its.data, name, size) == 0) return token;
  }
  return NULL;
}

static double number_of(const TVMFFIAny* any, double missing) {
  if (any && any->type_index == kTVMFFIInt) return (double)any->v_int64;
  return any && any->type_index == kTVMFFIFloat ? any->v_float64 : missing;
}

static bool has_expired(const TVMFFIAny* token) {
  const TVMFFIAny* expires = field(token, "expires");
  /* A text where a time belongs admits nobody. */
  bool never = expires && expires->type_index == kTVMFFINone;
  return !never && !((double)time(NULL) < number_of(expires, 0));
}

static uint32_t scopes_of(const FcTokens* tokens, const TVMFFIAny* token) {
  const TVMFFISeqCell* names = items(field(token, "scopes"));
  uint32_t scopes = 0, all_of_1 = FC_SCOPE_ALL & ~(uint32_t)FC_SCOPE_RELAY;
  for (int64_t i = 0; names && i < names->size; ++i) {
    TVMFFIByteArray name = text_of(&((const TVMFFIAny*)names->data)[i]);
    for (int bit = 0; fc_scope_names[bit]; ++bit) {
      if (fc_is_named(name, fc_scope_names[bit])) scopes |= 1u << bit;
    }
  }
  /* In version 1 of the files every token allowed relays. */
  bool old = number_of(field(&tokens->content, "version"), 0) < 2;
  return old && scopes == all_of_1 ? FC_SCOPE_ALL : scopes;
}

/* Compares all digits, so that the time does not tell how many were right. An unknown name takes as long. */
static bool is_secret(const TVMFFIAny* token, const char* secret, size_t size) {
  FcSha256 hash;
  char digest[DIGEST + 1];
  TVMFFIByteArray stored = text_of(field(token, "sha256"));
  fc_sha256_begin(&hash);
  fc_sha256_add(&hash, secret, size);
  fc_sha256_end(&hash, digest);
  if (stored.size != DIGEST) stored = (TVMFFIByteArray){"", 0};
  uint8_t differ = stored.size != DIGEST;
  for (size_t i = 0; i < DIGEST; ++i) differ |= (uint8_t)(digest[i] ^ stored.data[i % (stored.size ? DIGEST : 1)]);
  return differ == 0;
}

void fc_tokens_look(FcTokens* tokens) {
  if (refresh(tokens) != 0) {
    fc_error_drop();
  } else if (tokens->content.type_index != kTVMFFIMap) {
    fprintf(stderr, "farcall-server: %s is missing, so no client gets in; make it by `farcall token create`\n",
            tokens->path);
  }
}

int fc_tokens_admit(FcTokens* tokens, const char* presented, size_t size, FcPeer* peer) {
  if (!presented) {
    fc_error_set("AccessDeniedError",
                 "this server wants a token; pass token=..., or --token (`farcall token create` makes one)");
    return -1;
  }
  if (refresh(tokens) != 0) return -1;
  const char* dot = memchr(presented, '.', size);
  size_t name = dot ? (size_t)(dot - presented) : size, secret = dot ? size - name - 1 : 0;
  const TVMFFIAny* token = find(tokens, presented, name);
  bool right = is_secret(token, dot ? dot + 1 : "", secret);
  if (!token || !right || name > FC_TOKEN_NAME) {
    fc_error_set("AccessDeniedError", "the token is not known here; it was mistyped, revoked, or is of another server");
    return -1;
  }
  if (has_expired(token)) {
    fc_error_format("AccessDeniedError", "the token '%.*s' has expired; ask for a new one", (int)name, presented);
    return -1;
  }
  snprintf(peer->token, sizeof peer->token, "%.*s", (int)name, presented);
  peer->rights = scopes_of(tokens, token);
  return 0;
}

const char* fc_tokens_objection(FcTokens* tokens, const FcPeer* peer) {
  if (refresh(tokens) != 0) {
    fc_error_drop();
    return "cannot be checked: the server cannot read its tokens any more";
  }
  const TVMFFIAny* token = find(tokens, peer->token, strlen(peer->token));
  if (!token) return "was revoked";
  if (scopes_of(tokens, token) != peer->rights) return "was changed";
  return has_expired(token) ? "has expired" : NULL;
}
