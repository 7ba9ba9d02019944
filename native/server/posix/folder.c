/* The folders of sessions: making, reading and removing them. A name of a file has no slash, so it leads nowhere else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/posix/files.h"
#include "server/sha256.h"

static int failed(const char* what, const char* name) {
  fc_error_format("OSError", "%s '%.80s': %s", what, name, strerror(errno));
  return -1;
}

static void name_of(pid_t pid, char out[32]) { snprintf(out, 32, "session-%ld", (long)pid); }

/* Removes what is in a folder. A session can have made folders in it only by code that it loaded; `depth` more levels
 * are removed, too. */
static void empty(int fd, int depth) {
  DIR* list = fdopendir(fd);
  if (!list) {
    close(fd);
    return;
  }
  for (const struct dirent* entry; (entry = readdir(list));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (unlinkat(fd, entry->d_name, 0) == 0 || depth == 0) continue;
    int inner = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner >= 0) empty(inner, depth - 1);
    unlinkat(fd, entry->d_name, AT_REMOVEDIR);
  }
  closedir(list);
}

static void remove_named(const char* workpath, const char* name) {
  enum { LEVELS = 8 };
  int work = open(workpath, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (work < 0) return;
  int fd = openat(work, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) empty(fd, LEVELS);
  unlinkat(work, name, AT_REMOVEDIR);
  close(work);
}

void fc_folder_remove(const char* workpath, pid_t pid) {
  char name[32];
  name_of(pid, name);
  remove_named(workpath, name);
}

static int open_inside(int work, const char* name) {
  if (mkdirat(work, name, 0700) != 0 && errno != EEXIST) return failed("the workpath's folder", name);
  int fd = openat(work, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return fd >= 0 ? fd : failed("the workpath's folder", name);
}

/* Sessions find only contents that were uploaded with the same token. */
static void store_name(const char* token, char out[32]) {
  FcSha256 hash;
  char digest[65];
  fc_sha256_begin(&hash);
  fc_sha256_add(&hash, token, strlen(token));
  fc_sha256_end(&hash, digest);
  snprintf(out, 32, "store-%.16s", digest);
}

int fc_folder_open(FcFolder* folder, const FcOptions* options, const char* token) {
  char own[32], shared[32];
  int work = open(options->workpath, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  *folder = (FcFolder){.workpath = options->workpath, .fd = -1, .store = -1, .limit = options->memory};
  for (int i = 0; i < FC_FILE_PARTS; ++i) folder->parts[i].fd = -1;
  if (work < 0) return failed("--workpath", options->workpath);
  name_of(getpid(), own);
  store_name(token, shared);
  remove_named(options->workpath, own); /* of a process that had this number before */
  folder->fd = open_inside(work, own);
  folder->store = folder->fd >= 0 ? open_inside(work, shared) : -1;
  close(work);
  if (folder->store >= 0) return fchdir(folder->fd); /* code that a session loads writes there, too */
  if (folder->fd >= 0) close(folder->fd);
  return -1;
}

void fc_folder_close(FcFolder* folder) {
  for (int i = 0; i < FC_FILE_PARTS; ++i) {
    if (folder->parts[i].fd >= 0) close(folder->parts[i].fd);
  }
  close(folder->fd);
  close(folder->store);
  fc_folder_remove(folder->workpath, getpid());
}
