/*
 * Library files: inspecting a file before it is loaded, and the table of loaded libraries.
 *
 * A library stays loaded until the process ends. So loading a file again returns the loaded library without asking the
 * dynamic linker. A rebuilt file is a new library, even at the same path; but the linker identifies libraries by path
 * and would return the old one, so we pass it a different path to the same file.
 */
#include "runtime/dl/library.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS = 1024, PATH_ROOM = 4096 };

/* A file whose FileId is the same has not changed. */
typedef struct {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec changed;
} FileId;

typedef struct Known {
  struct Known* next;
  FileId id;
  FcLibrary library;
  bool plain; /* inspected, and not an artifact: see fc_library_open_plain */
  char path[];
} Known;

static Known* known[BUCKETS]; /* by path; never removed */
static FcMutex known_lock = FC_MUTEX_INIT;

/* ---- loaded libraries ---- */

static bool read_id(const struct stat* s, FileId* id) {
  *id = (FileId){s->st_dev, s->st_ino, s->st_size, s->st_mtim};
  return S_ISREG(s->st_mode);
}

static bool id_of_path(const char* path, FileId* id) {
  struct stat s;
  return stat(path, &s) == 0 && read_id(&s, id);
}

static bool is_same(const FileId* a, const FileId* b) {
  return a->inode == b->inode && a->device == b->device && a->size == b->size &&
         a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static Known** bucket_of(const char* path) { return &known[fc_hash_bytes(path, strlen(path)) % BUCKETS]; }

/* Call with the lock held. With an id, the entry of that exact file; else the first entry for the path. */
static Known* find(const char* path, const FileId* id) {
  Known* entry = *bucket_of(path);
  while (entry && (strcmp(entry->path, path) != 0 || (id && !is_same(&entry->id, id)))) entry = entry->next;
  return entry;
}

static bool is_known(const char* path) {
  fc_mutex_lock(&known_lock);
  bool found = find(path, NULL) != NULL;
  fc_mutex_unlock(&known_lock);
  return found;
}

static bool find_library(const char* path, const FileId* id, bool must_be_plain, FcLibrary* out) {
  fc_mutex_lock(&known_lock);
  const Known* entry = find(path, id);
  bool found = entry && (entry->plain || !must_be_plain);
  if (found) *out = entry->library;
  fc_mutex_unlock(&known_lock);
  return found;
}

/* When out of memory, the library is not recorded, and the next load asks the linker again. */
static void remember(const char* path, const FileId* id, const FcLibrary* library, bool plain) {
  fc_mutex_lock(&known_lock);
  Known* entry = find(path, id);
  if (entry) {
    entry->plain |= plain;
  } else if ((entry = malloc(sizeof *entry + strlen(path) + 1))) {
    *entry = (Known){*bucket_of(path), *id, *library, plain};
    strcpy(entry->path, path);
    *bucket_of(path) = entry;
  }
  fc_mutex_unlock(&known_lock);
}

/* "/a/b.so" -> "/a/./b.so" until no library was loaded by that path. The folder ($ORIGIN) stays the same. */
static bool free_name(const char* path, char out[PATH_ROOM]) {
  size_t size = strlen(path) + 1;
  if (size > PATH_ROOM) return false;
  memcpy(out, path, size);
  while (is_known(out)) {
    char* name = strrchr(out, '/');
    if ((size += 2) > PATH_ROOM) return false;
    memmove(name + 2, name, strlen(name) + 1);
    memcpy(name, "/.", 2);
  }
  return true;
}

/* ---- loading ---- */

static FcMutex load_lock; /* a library's constructors may load others */
static FcOnce load_lock_made = FC_ONCE_INIT;
static void make_load_lock(void) { fc_mutex_init_recursive(&load_lock); }

/* Call with the lock held, so that two files cannot get one name. id: NULL when the linker must search for the file. */
static FcLibrary load_new(const char* path, const FileId* id, bool plain, char* message, size_t size) {
  char room[PATH_ROOM];
  FcLibrary library = {NULL, false};
  if (id && find_library(path, id, false, &library)) return library; /* another thread loaded it first */
  const char* name = id && free_name(path, room) ? room : path;
  library.handle = fc_link_open(name, &library.bound_here, message, size);
  if (!library.handle || !id) return library;
  remember(path, id, &library, plain);
  if (strcmp(name, path) != 0) remember(name, id, &library, plain);
  return library;
}

static FcLibrary load(const char* path, const FileId* id, bool plain, char* message, size_t size) {
  fc_once(&load_lock_made, make_load_lock);
  fc_mutex_lock(&load_lock);
  FcLibrary library = load_new(path, id, plain, message, size);
  fc_mutex_unlock(&load_lock);
  return library;
}

FcLibrary fc_library_open(const char* path, char* message, size_t size) {
  FileId id;
  FcLibrary library;
  message[0] = 0;
  if (!strchr(path, '/') || !id_of_path(path, &id)) return load(path, NULL, false, message, size);
  return find_library(path, &id, false, &library) ? library : load(path, &id, false, message, size);
}

/* ---- inspecting a file ---- */

/* A part of the file that has been read. */
typedef struct {
  uint64_t begin, end;
  _Alignas(8) char data[4096];
} Window;

/* Names are near the beginning of a small library, and sections at the end of any: two reads often suffice. */
typedef struct {
  int file;
  uint64_t size;
  Window head, tail;
} Look;

static void read_window(const Look* look, Window* window, uint64_t end) {
  window->begin = end > sizeof window->data ? end - sizeof window->data : 0;
  ssize_t got = pread(look->file, window->data, sizeof window->data, (off_t)window->begin);
  window->end = window->begin + (got > 0 ? (uint64_t)got : 0);
}

static const void* in_window(const Window* window, uint64_t at, uint64_t size) {
  return at >= window->begin && at + size <= window->end ? window->data + (at - window->begin) : NULL;
}

/* A range of the file: in a window, or in `*made`, new memory that the caller frees. NULL if the file is too short. */
static const void* range(const Look* look, uint64_t at, uint64_t size, void** made) {
  enum { MOST = 256 << 20 };
  *made = NULL;
  if (at > look->size || size > look->size - at || size > MOST) return NULL;
  const void* seen = in_window(&look->head, at, size);
  if (!seen) seen = in_window(&look->tail, at, size);
  if (seen) return seen;
  *made = malloc((size_t)size + 1);
  return *made && pread(look->file, *made, (size_t)size, (off_t)at) == (ssize_t)size ? *made : NULL;
}

/* This core's own ELF header, as the linker names it: an example of a library for this machine. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static bool is_for_this_machine(const ElfW(Ehdr) * header) {
  return memcmp(header->e_ident, __ehdr_start.e_ident, EI_VERSION + 1) == 0 &&
         header->e_machine == __ehdr_start.e_machine && header->e_type == ET_DYN;
}

/* Whether a table of names contains the text; also true when it cannot be read. */
static bool may_have(const Look* look, const ElfW(Shdr) * names, const char* text) {
  void* made;
  const char* data = range(look, names->sh_offset, names->sh_size, &made);
  bool found = !data || memmem(data, names->sh_size, text, strlen(text));
  free(made);
  return found;
}

/* An artifact has a manifest and this symbol. Python code reads and checks the manifest when it loads an artifact. */
static bool may_be_artifact(const Look* look, const ElfW(Ehdr) * header, const ElfW(Shdr) * sections) {
  uint32_t count = header->e_shnum;
  if (header->e_shstrndx >= count || may_have(look, &sections[header->e_shstrndx], ".farcall.")) return true;
  for (uint32_t i = 0; i < count; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    uint32_t names = sections[i].sh_link;
    if (names >= count || may_have(look, &sections[names], FARCALL_RUNTIME_SYMBOL)) return true;
  }
  return false;
}

/* The section table is at the end of most files, so a truncated file has none. */
static bool is_plain(Look* look) {
  const ElfW(Ehdr)* header = in_window(&look->head, 0, sizeof *header);
  void* made;
  if (!header || !is_for_this_machine(header)) return false;
  uint64_t table_size = (uint64_t)header->e_shnum * sizeof(ElfW(Shdr));
  if (!table_size || header->e_shentsize != sizeof(ElfW(Shdr)) || header->e_shoff > look->size) return false;
  read_window(look, &look->tail, header->e_shoff + table_size);
  const void* sections = range(look, header->e_shoff, table_size, &made);
  bool plain = sections && (uintptr_t)sections % 8 == 0 && !may_be_artifact(look, header, sections);
  free(made);
  return plain;
}

static bool look_into(Look* look, FileId* id) {
  struct stat s;
  if (fstat(look->file, &s) != 0 || !read_id(&s, id)) return false;
  look->size = (uint64_t)s.st_size;
  read_window(look, &look->head, sizeof look->head.data);
  return is_plain(look);
}

static bool looks_plain(const char* path, FileId* id) {
  Look look;
  look.file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (look.file < 0) return false;
  bool plain = look_into(&look, id);
  close(look.file);
  return plain;
}

bool fc_library_open_plain(const char* path, FcLibrary* out, char* message, size_t size) {
  FileId id;
  message[0] = 0;
  if (!strchr(path, '/')) return false;
  if (is_known(path) && id_of_path(path, &id) && find_library(path, &id, true, out)) return true;
  if (!looks_plain(path, &id)) return false;
  if (find_library(path, &id, false, out)) {
    remember(path, &id, out, true);
  } else {
    *out = load(path, &id, true, message, size);
  }
  return true;
}
