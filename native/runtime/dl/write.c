/* Writes files. A reader never sees half of one: it is written under another name, and then renamed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/dl/dl.h"

static bool write_all(int file, TVMFFIByteArray data) {
  while (data.size) {
    ssize_t n = write(file, data.data, data.size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.data += n;
    data.size -= (size_t)n;
  }
  return true;
}

/* `beside` ends in XXXXXX, which become the name of the new file. */
static bool write_beside(char* beside, const char* path, TVMFFIByteArray data) {
  int file = mkstemp(beside);
  if (file < 0) return false;
  bool good = write_all(file, data) && fchmod(file, 0644) == 0;
  good = close(file) == 0 && good && rename(beside, path) == 0;
  if (good) return true;
  int why = errno;
  unlink(beside);
  errno = why;
  return false;
}

int fc_dl_write_file(TVMFFIByteArray path, TVMFFIByteArray data) {
  size_t room = 2 * path.size + sizeof ".XXXXXX" + 1;
  char* names = malloc(room);
  if (!names) return fc_error_no_memory(), -1;
  snprintf(names, room, "%.*s%c%.*s.XXXXXX", (int)path.size, path.data, 0, (int)path.size, path.data);
  bool good = write_beside(names + path.size + 1, names, data);
  if (!good) {
    fc_error_format("UsageError", "cannot write '%s': %s; name a file in an existing folder that you may write to",
                    names, strerror(errno));
  }
  free(names);
  return good ? 0 : -1;
}
