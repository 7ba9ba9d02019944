/*
 * Stands for the vendor's driver library: it routes calls to skels in this process. Libraries of skels are found in
 * the folder DSP_LIBRARY_PATH, by the URI's file name and symbol.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <farcall/fastrpc.h>

typedef int32_t Skel(fc_remote_handle h, uint32_t scalars, fc_remote_arg* args);

enum { OPENED_MAX = 256, NOT_FOUND = 6 };
static struct {
  Skel* skel;
  fc_remote_handle inner;
} opened[OPENED_MAX];

static Skel* find(const char* uri) {
  char file[256], symbol[256], path[1024];
  if (sscanf(uri, "file:///%255[^?]?%255[^&]", file, symbol) != 2) return NULL;
  const char* folder = getenv("DSP_LIBRARY_PATH");
  snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", file);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Skel* skel = NULL;
  if (library) *(void**)&skel = dlsym(library, symbol);
  return skel;
}

int remote_handle64_open(const char* uri, fc_remote_handle* handle) {
  Skel* skel = find(uri);
  if (!skel) return NOT_FOUND;
  for (int i = 1; i < OPENED_MAX; ++i) {
    if (opened[i].skel) continue;
    uint32_t size = (uint32_t)strlen(uri) + 1;
    fc_remote_arg args[3] = {{{&size, 4}}, {{(void*)uri, size}}, {{0}}};
    int status = skel(0, fc_remote_scalars(FC_REMOTE_OPEN, 2, 0, 0, 1), args);
    if (status != 0) return status;
    opened[i].skel = skel;
    opened[i].inner = args[2].handle;
    *handle = (fc_remote_handle)i;
    return 0;
  }
  return FC_REMOTE_NO_MEMORY;
}

static int known(fc_remote_handle handle) { return handle < OPENED_MAX && opened[handle].skel != NULL; }

int remote_handle64_invoke(fc_remote_handle handle, uint32_t scalars, fc_remote_arg* args) {
  if (!known(handle)) return FC_REMOTE_BAD_PARAMETER;
  return opened[handle].skel(opened[handle].inner, scalars, args);
}

int remote_handle64_close(fc_remote_handle handle) {
  if (!known(handle)) return FC_REMOTE_BAD_PARAMETER;
  fc_remote_arg arg = {.handle = opened[handle].inner};
  Skel* skel = opened[handle].skel;
  opened[handle].skel = NULL;
  return skel(0, fc_remote_scalars(FC_REMOTE_CLOSE, 0, 0, 1, 0), &arg);
}
