/* The functions of files: uploads, downloads, lists, and the store of contents (docs/spec/wire.md, feature `files`). */
#include "server/posix/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/sha256.h"

enum { BLOCK = 4096, PIECE = 1 << 16, ANSWER = 4 << 20, STORED = 16, HINT = 64 };

static FcFolder* folder_of(void* self) { return ((FcSession*)self)->client->folder; }

static bool takes(int32_t n, int32_t expected, const char* what) {
  if (n == expected) return true;
  fc_error_format("TypeError", "expected %s, got %d argument%s", what, (int)n, n == 1 ? "" : "s");
  return false;
}

static int failed(const char* what, const char* name) {
  fc_error_format("OSError", "%s of file '%.80s': %s", what, name, strerror(errno));
  return -1;
}

/* ---- names ---- */

/* A plain name: no slash, so that it can lead nowhere else; no dot at its beginning, which unfinished files have. */
static int read_name(const TVMFFIAny* arg, char out[FC_FILE_NAME + 1]) {
  TVMFFIByteArray text = {"", 0};
  bool good = fc_any_text(arg, &text) && text.size != 0 && text.size <= FC_FILE_NAME && text.data[0] != '.';
  for (size_t i = 0; good && i < text.size; ++i) {
    char c = text.data[i];
    good = c != '/' && c != '\\' && c != ':' && c != 0 && !(i == 0 && c == '~');
  }
  if (!good) {
    fc_error_format("UsageError", "file name '%.*s': give a plain name such as 'model.so', without folders",
                    (int)(text.size < 80 ? text.size : 80), text.data);
    return -1;
  }
  memcpy(out, text.data, text.size);
  out[text.size] = 0;
  return 0;
}

static int open_file(const FcFolder* folder, const char* name, int64_t* size) {
  struct stat about;
  int fd = openat(folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) return *size = (int64_t)about.st_size, fd;
  if (fd >= 0) close(fd);
  fc_error_format("FileNotFoundError", "no file '%.80s' in this session; upload it first", name);
  return -1;
}

int fc_folder_open_file(const FcFolder* folder, TVMFFIByteArray name, int64_t* size) {
  char plain[FC_FILE_NAME + 1];
  TVMFFIAny text = fc_any_none();
  if (fc_any_from_bytes(kTVMFFIStr, name.data, name.size, &text) != 0) return -1;
  int rc = read_name(&text, plain);
  fc_any_clear(&text);
  return rc == 0 ? open_file(folder, plain, size) : -1;
}

/* ---- the bound on all files ---- */

/* Bytes of all files, each as one block of the disk at least. */
static uint64_t total(const FcFolder* folder) {
  uint64_t bytes = 0;
  int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = fd >= 0 ? fdopendir(fd) : NULL;
  for (const struct dirent* entry; list && (entry = readdir(list));) {
    struct stat about;
    if (fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode)) continue;
    bytes += about.st_size > BLOCK ? (uint64_t)about.st_size : BLOCK;
  }
  if (list) closedir(list);
  else if (fd >= 0) close(fd);
  for (int i = 0; i < FC_FILE_PARTS; ++i) {
    const FcFilePart* part = &folder->parts[i];
    if (part->fd >= 0) bytes += (uint64_t)(part->total - part->next);
  }
  return bytes;
}

static int reserve(const FcFolder* folder, const char* name, int64_t size) {
  uint64_t held = total(folder);
  if (held <= folder->limit && (uint64_t)size <= folder->limit - held) return 0;
  fc_error_format("MemoryError", "file '%.80s' of %lld bytes: the session's files have %llu, the limit is %llu", name,
                  (long long)size, (unsigned long long)held, (unsigned long long)folder->limit);
  return -1;
}

/* ---- uploads ---- */

/* Gives the file its name if it is `whole`, and removes it if not. -1 with an error: it cannot have that name. */
static int end_part(FcFolder* folder, FcFilePart* part, bool whole) {
  close(part->fd);
  part->fd = -1;
  if (whole && renameat(folder->fd, part->beside, folder->fd, part->name) == 0) return 0;
  int rc = whole ? failed("writing", part->name) : 0;
  unlinkat(folder->fd, part->beside, 0);
  return rc;
}

static FcFilePart* find_part(FcFolder* folder, const char* name) {
  for (int i = 0; i < FC_FILE_PARTS; ++i) {
    if (folder->parts[i].fd >= 0 && strcmp(folder->parts[i].name, name) == 0) return &folder->parts[i];
  }
  return NULL;
}

static FcFilePart* begin_part(FcFolder* folder, const char* name, int64_t size) {
  FcFilePart* part = find_part(folder, name);
  if (part) end_part(folder, part, false);
  if (reserve(folder, name, size) != 0) return NULL;
  for (int i = 0; i < FC_FILE_PARTS; ++i) {
    part = &folder->parts[i];
    if (part->fd >= 0) continue;
    snprintf(part->name, sizeof part->name, "%s", name);
    snprintf(part->beside, sizeof part->beside, ".%u.part", (unsigned)folder->made++);
    part->next = 0;
    part->total = size;
    part->fd = openat(folder->fd, part->beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
    return part->fd >= 0 ? part : (failed("writing", name), NULL);
  }
  fc_error_format("UsageError", "%d files are being uploaded already; finish one first", FC_FILE_PARTS);
  return NULL;
}

static int write_piece(FcFilePart* part, TVMFFIByteArray data) {
  for (size_t at = 0; at < data.size;) {
    ssize_t written = write(part->fd, data.data + at, data.size - at);
    if (written < 0 && errno != EINTR) return failed("writing", part->name);
    if (written > 0) at += (size_t)written;
  }
  part->next += (int64_t)data.size;
  return 0;
}

/* (name, bytes), or (name, offset, total, bytes) for the pieces of a file, in order. */
static int upload(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcFolder* folder = folder_of(self);
  char name[FC_FILE_NAME + 1];
  TVMFFIByteArray data;
  (void)result;
  bool pieces = n == 4 && args[1].type_index == kTVMFFIInt && args[2].type_index == kTVMFFIInt;
  if ((n != 2 && !pieces) || !(fc_any_bytes(&args[n - 1], &data) || fc_any_text(&args[n - 1], &data))) {
    fc_error_set("TypeError", "an upload is (name, bytes), or (name, offset, total, bytes)");
    return -1;
  }
  int64_t offset = pieces ? args[1].v_int64 : 0, size = pieces ? args[2].v_int64 : (int64_t)data.size;
  if (read_name(&args[0], name) != 0) return -1;
  bool inside = offset >= 0 && offset <= size && data.size <= (uint64_t)(size - offset);
  FcFilePart* part = !inside ? NULL : offset == 0 ? begin_part(folder, name, size) : find_part(folder, name);
  if (inside && offset == 0 && !part) return -1;
  if (!part || part->next != offset || part->total != size) {
    fc_error_format("UsageError", "file '%.80s': no piece is awaited at byte %lld of %lld; send them in order", name,
                    (long long)offset, (long long)size);
    return -1;
  }
  int rc = write_piece(part, data);
  if (rc == 0 && part->next < part->total) return 0;
  return end_part(folder, part, rc == 0) != 0 ? -1 : rc;
}

/* ---- downloads ---- */

static int read_at(int fd, int64_t offset, int64_t size, const char* name, TVMFFIAny* result) {
  char* data = malloc((size_t)size + 1);
  ssize_t got = data ? pread(fd, data, (size_t)size, (off_t)offset) : 0;
  int rc = -1;
  if (!data) fc_error_no_memory();
  else rc = got < 0 ? failed("reading", name) : fc_any_from_bytes(kTVMFFIBytes, data, (size_t)got, result);
  free(data);
  return rc;
}

/* (name): all bytes; (name, offset, size): a piece, of at most 4 MiB. */
static int download(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char name[FC_FILE_NAME + 1];
  int64_t size, offset = n == 3 ? args[1].v_int64 : 0;
  bool good = n == 1 || (n == 3 && args[1].type_index == kTVMFFIInt && args[2].type_index == kTVMFFIInt &&
                         args[1].v_int64 >= 0 && args[2].v_int64 >= 0);
  if (!good) {
    fc_error_set("TypeError", "a download is (name), or (name, offset, size)");
    return -1;
  }
  if (read_name(&args[0], name) != 0) return -1;
  int fd = open_file(folder_of(self), name, &size);
  if (fd < 0) return -1;
  int64_t left = offset < size ? size - offset : 0, wanted = n == 3 && args[2].v_int64 < left ? args[2].v_int64 : left;
  int rc = read_at(fd, offset, n == 3 && wanted > ANSWER ? ANSWER : wanted, name, result);
  close(fd);
  return rc;
}

static int size_of(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char name[FC_FILE_NAME + 1];
  int64_t size;
  if (!takes(n, 1, "(name)") || read_name(&args[0], name) != 0) return -1;
  int fd = open_file(folder_of(self), name, &size);
  if (fd < 0) return -1;
  close(fd);
  *result = fc_any_int(size);
  return 0;
}

static int remove_file(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char name[FC_FILE_NAME + 1];
  (void)result;
  if (!takes(n, 1, "(name)") || read_name(&args[0], name) != 0) return -1;
  if (unlinkat(folder_of(self)->fd, name, 0) == 0) return 0;
  fc_error_format("FileNotFoundError", "no file '%.80s' in this session", name);
  return -1;
}

/* The name unchanged: a client may pass it back, and does not learn where the folder is. */
static int workpath(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char name[FC_FILE_NAME + 1];
  (void)self;
  if (!takes(n, 1, "(name)") || read_name(&args[0], name) != 0) return -1;
  return fc_any_from_bytes(kTVMFFIStr, name, strlen(name), result);
}

static int compare(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

/* The names, sorted, separated by commas (the form that TVM's clients expect). */
static int listdir(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  enum { MOST = 1024 };
  char* names[MOST];
  size_t count = 0, room = 1;
  int fd = openat(folder_of(self)->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = fd >= 0 ? fdopendir(fd) : NULL;
  (void)args, (void)n;
  for (const struct dirent* entry; list && count < MOST && (entry = readdir(list));) {
    if (entry->d_name[0] == '.') continue;
    if (!(names[count] = strdup(entry->d_name))) break;
    room += strlen(names[count++]) + 1;
  }
  if (list) closedir(list);
  else if (fd >= 0) close(fd);
  qsort(names, count, sizeof *names, compare);
  char *text = malloc(room), *at = text;
  for (size_t i = 0; i < count; ++i) {
    if (text) at += sprintf(at, i ? ",%s" : "%s", names[i]);
    free(names[i]);
  }
  int rc = text ? fc_any_from_bytes(kTVMFFIStr, text, (size_t)(at - text), result) : (fc_error_no_memory(), -1);
  free(text);
  return rc;
}

/* ---- the store ---- */

/* SIZE-HASH: digits, a dash, 32 hexadecimal digits. */
static int read_hint(const TVMFFIAny* arg, char out[HINT]) {
  TVMFFIByteArray text = {"", 0};
  fc_any_text(arg, &text);
  size_t digits = 0, at = 0;
  while (digits < text.size && digits < 20 && text.data[digits] >= '0' && text.data[digits] <= '9') ++digits;
  if (digits != 0 && digits < text.size && text.data[digits] == '-') at = digits + 1;
  size_t letters = strspn(at ? text.data + at : "", "0123456789abcdef");
  if (letters != 32 || at + 32 != text.size) {
    fc_error_set("UsageError", "this is no hint of a content; expected SIZE-HASH");
    return -1;
  }
  memcpy(out, text.data, text.size);
  out[text.size] = 0;
  return 0;
}

static int known(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  char hint[HINT];
  if (!takes(n, 1, "(hint)") || read_hint(&args[0], hint) != 0) return -1;
  bool there = faccessat(folder_of(self)->store, hint, R_OK, 0) == 0;
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = there};
  return 0;
}

/* Copies a content; its hash. A session that uploaded it may still write to it, so only the copy counts. */
static int copy(int from, FcFilePart* part, char digest[65]) {
  FcSha256 hash;
  static char piece[PIECE];
  int rc = 0;
  fc_sha256_begin(&hash);
  for (ssize_t got; rc == 0 && (got = read(from, piece, sizeof piece)) > 0;) {
    fc_sha256_add(&hash, piece, (size_t)got);
    rc = write_piece(part, (TVMFFIByteArray){piece, (size_t)got});
  }
  fc_sha256_end(&hash, digest);
  return rc;
}

/* (name, sha256, hint): whether the content is there; then it is the file `name`. */
static int have(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcFolder* folder = folder_of(self);
  char name[FC_FILE_NAME + 1], hint[HINT], digest[65] = "";
  TVMFFIByteArray wanted;
  struct stat about;
  if (!takes(n, 3, "(name, sha256, hint)") || read_name(&args[0], name) != 0 || read_hint(&args[2], hint) != 0)
    return -1;
  if (!fc_any_text(&args[1], &wanted)) wanted.size = 0; /* is no content's hash */
  *result = (TVMFFIAny){.type_index = kTVMFFIBool};
  int from = openat(folder->store, hint, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (from < 0 || fstat(from, &about) != 0 || !S_ISREG(about.st_mode)) return from < 0 ? 0 : close(from);
  FcFilePart* part = begin_part(folder, name, (int64_t)about.st_size);
  int rc = part ? copy(from, part, digest) : -1;
  close(from);
  if (!part) return -1;
  bool same = rc == 0 && wanted.size == 64 && memcmp(wanted.data, digest, 64) == 0;
  if (end_part(folder, part, same) != 0) return -1;
  result->v_int64 = same;
  return rc;
}

/* Removes the oldest contents beyond STORED. */
static void tidy(int store) {
  for (int removed = 1; removed;) {
    char oldest[FC_FILE_NAME + 1] = "";
    int64_t when = INT64_MAX;
    int count = 0, fd = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* list = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent* entry; list && (entry = readdir(list));) {
      struct stat about;
      if (entry->d_name[0] == '.' || fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
      ++count;
      if ((int64_t)about.st_ctim.tv_sec >= when) continue;
      when = (int64_t)about.st_ctim.tv_sec;
      snprintf(oldest, sizeof oldest, "%s", entry->d_name);
    }
    if (list) closedir(list);
    else if (fd >= 0) close(fd);
    removed = count > STORED && unlinkat(store, oldest, 0) == 0;
  }
}

/* (name, hint): keeps the file's content for later sessions, where the disk can link. */
static int share(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  FcFolder* folder = folder_of(self);
  char name[FC_FILE_NAME + 1], hint[HINT];
  (void)result;
  if (!takes(n, 2, "(name, hint)") || read_name(&args[0], name) != 0 || read_hint(&args[1], hint) != 0) return -1;
  unlinkat(folder->store, hint, 0);
  if (linkat(folder->fd, name, folder->store, hint, 0) == 0) tidy(folder->store);
  return 0;
}

const FcServed fc_served_files[] = {{"tvm.rpc.server.upload", upload, -1},
                                    {"tvm.rpc.server.download", download, -1},
                                    {"tvm.rpc.server.remove", remove_file, -1},
                                    {"tvm.rpc.server.listdir", listdir, -1},
                                    {"tvm.rpc.server.workpath", workpath, -1},
                                    {"farcall.rpc.write", upload, -1},
                                    {"farcall.rpc.read", download, -1},
                                    {"farcall.rpc.size", size_of, -1},
                                    {"farcall.rpc.known", known, -1},
                                    {"farcall.rpc.have", have, -1},
                                    {"farcall.rpc.share", share, -1},
                                    {"tvm.rpc.server.load_module", fc_folder_load_module, -1},
                                    {NULL, NULL, 0}};
