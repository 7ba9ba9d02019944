/* Reading a shared object: the tables for the dynamic linker. */
#include <string.h>

#include "runtime/image/elf.h"
#include "runtime/image/machine.h"

/* Tags of the dynamic section: System V ABI, figure 5-10. */
enum {
  NEEDED = 1,
  PLT_SIZE = 2,
  HASH = 4,
  NAMES = 5,
  SYMBOLS = 6,
  RELA = 7,
  RELA_SIZE = 8,
  RELA_ENTRY = 9,
  NAMES_SIZE = 10,
  SYMBOL_ENTRY = 11,
  INIT = 12,
  FINI = 13,
  REL = 17,
  REL_SIZE = 18,
  REL_ENTRY = 19,
  PLT_KIND = 20,
  TEXT_RELOCATIONS = 22,
  PLT = 23,
  INIT_ARRAY = 25,
  FINI_ARRAY = 26,
  INIT_ARRAY_SIZE = 27,
  FINI_ARRAY_SIZE = 28,
  FLAGS = 30,
  PREINIT_ARRAY = 32,
  PACKED = 36,
  TAGS = 37,
  FLAG_TEXT_RELOCATIONS = 4
};
enum { REL_BYTES = 2 * sizeof(FcElfWord), RELA_BYTES = 3 * sizeof(FcElfWord) };
#define MOST_ENTRIES 4096

typedef struct {
  FcElfWord of[TAGS];
  bool has[TAGS];
  FcElfTable entries;
} Tags;

/* A range of the file that is in the span: in one part, in bytes that the file has, and not writable if `fixed`. */
static bool read_table(FcElf* elf, const char* what, FcElfWord address, FcElfWord size, bool fixed, FcElfTable* out) {
  size_t at;
  const FcElfPart* part = NULL;
  if (size <= elf->span && fc_elf_place(elf, address, (size_t)size, &at)) part = fc_elf_part(elf, at, (size_t)size);
  if (!part || at - part->at > part->in_file || size > part->in_file - (at - part->at)) {
    return fc_elf_refuse(elf, "its %s is not inside a loaded segment of the file; link it again", what);
  }
  if (fixed && (part->access & FC_ELF_WRITE)) {
    return fc_elf_refuse(elf, "its %s is in writable memory; link it again", what);
  }
  *out = (FcElfTable){at, (size_t)size, elf->data + part->file_at + (at - part->at)};
  return true;
}

static FcElfDynamic entry_of(const Tags* tags, size_t i) {
  FcElfDynamic entry;
  memcpy(&entry, tags->entries.bytes + i * sizeof entry, sizeof entry);
  return entry;
}

static bool read_tags(FcElf* elf, const FcElfSegment* segment, Tags* tags) {
  if (!read_table(elf, "dynamic section", segment->address, segment->in_file, false, &tags->entries)) return false;
  size_t count = tags->entries.size / sizeof(FcElfDynamic);
  if (count > MOST_ENTRIES) return fc_elf_refuse(elf, "its dynamic section has %zu entries; link it again", count);
  for (size_t i = 0; i < count; ++i) {
    FcElfDynamic entry = entry_of(tags, i);
    if (entry.tag == 0) {
      tags->entries.size = i * sizeof entry;
      return true;
    }
    if (entry.tag >= TAGS) continue;
    tags->of[entry.tag] = entry.value;
    tags->has[entry.tag] = true;
  }
  return fc_elf_refuse(elf, "its dynamic section does not end; link it again");
}

/* ---- what an image cannot have ---- */

/* The C library of the machine that built it: its functions are those that the loader exports. */
static bool is_c_library(const char* name) {
  static const char* const known[] = {"libc.", "libm.", "libpthread.", "libdl.", "ld-"};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strncmp(name, known[i], strlen(known[i])) == 0) return true;
  }
  return false;
}

static bool check_needed(FcElf* elf, const Tags* tags) {
  for (size_t i = 0; i < tags->entries.size / sizeof(FcElfDynamic); ++i) {
    FcElfDynamic entry = entry_of(tags, i);
    if (entry.tag != NEEDED) continue;
    if (entry.value >= elf->names.size) return fc_elf_refuse(elf, "the name of a library is not in it; link it again");
    const char* name = (const char*)elf->names.bytes + entry.value;
    if (!is_c_library(name)) {
      return fc_elf_refuse(elf, "it needs the library `%.60s`, and an image has only itself; link that statically",
                           name);
    }
  }
  return true;
}

static bool check_tags(FcElf* elf, const Tags* tags) {
  if (tags->has[TEXT_RELOCATIONS] || (tags->of[FLAGS] & FLAG_TEXT_RELOCATIONS)) {
    return fc_elf_refuse(elf, "it has relocations in its code (DT_TEXTREL); compile it with -fPIC");
  }
  if (tags->has[PACKED]) {
    return fc_elf_refuse(elf, "it has packed relocations (DT_RELR); link it with -Wl,-z,nopack-relative-relocs");
  }
  if (tags->has[PREINIT_ARRAY]) return fc_elf_refuse(elf, "it has functions of a program (DT_PREINIT_ARRAY)");
  return true;
}

/* ---- symbols ---- */

static uint32_t word_of(const uint8_t* bytes, size_t i) {
  uint32_t word;
  memcpy(&word, bytes + 4 * i, 4);
  return word;
}

/* The number of symbols stands in the hash table only. */
static bool read_hash(FcElf* elf, const Tags* tags) {
  if (!tags->has[HASH]) {
    return fc_elf_refuse(elf,
                         "it has no table DT_HASH; build it with --target %s, or link it with -Wl,--hash-style=both",
                         fc_machine.target);
  }
  if (!read_table(elf, "hash table", tags->of[HASH], 8, true, &elf->hash)) return false;
  uint64_t words = 2 + (uint64_t)word_of(elf->hash.bytes, 0) + word_of(elf->hash.bytes, 1);
  if (words > elf->span / 4) return fc_elf_refuse(elf, "its hash table is larger than it is; link it again");
  return read_table(elf, "hash table", tags->of[HASH], (FcElfWord)words * 4, true, &elf->hash);
}

static bool read_symbols(FcElf* elf, const Tags* tags) {
  if (!read_hash(elf, tags)) return false;
  uint64_t size = (uint64_t)word_of(elf->hash.bytes, 1) * sizeof(FcElfSymbol);
  if (size > elf->span || tags->of[SYMBOL_ENTRY] != sizeof(FcElfSymbol)) {
    return fc_elf_refuse(elf, "its symbols do not fit in it; link it again");
  }
  if (!read_table(elf, "symbol table", tags->of[SYMBOLS], (FcElfWord)size, true, &elf->symbols)) return false;
  if (!read_table(elf, "table of names", tags->of[NAMES], tags->of[NAMES_SIZE], true, &elf->names)) return false;
  if (elf->names.size == 0 || elf->names.bytes[elf->names.size - 1] != 0) {
    return fc_elf_refuse(elf, "its table of names does not end in NUL; link it again");
  }
  for (size_t i = 0; i < fc_elf_symbol_count(elf); ++i) {
    size_t at;
    FcElfSymbol symbol = fc_elf_symbol(elf, i);
    if (symbol.name >= elf->names.size) return fc_elf_refuse(elf, "the name of symbol %zu is not in it", i);
    if (fc_elf_is_defined(&symbol) && symbol.section < 0xff00 && !fc_elf_place(elf, symbol.value, 0, &at)) {
      return fc_elf_refuse(elf, "symbol `%.60s` is outside of it; link it again", fc_elf_name(elf, &symbol));
    }
  }
  return true;
}

size_t fc_elf_symbol_count(const FcElf* elf) { return elf->symbols.size / sizeof(FcElfSymbol); }

FcElfSymbol fc_elf_symbol(const FcElf* elf, size_t i) {
  FcElfSymbol symbol;
  memcpy(&symbol, elf->symbols.bytes + i * sizeof symbol, sizeof symbol);
  return symbol;
}

const char* fc_elf_name(const FcElf* elf, const FcElfSymbol* symbol) {
  return (const char*)elf->names.bytes + symbol->name;
}

/* ---- relocations and functions ---- */

static bool read_relocations(FcElf* elf, int which, FcElfWord at, FcElfWord size, FcElfWord entry, bool addends) {
  if (size == 0) return true;
  FcElfWord expected = addends ? RELA_BYTES : REL_BYTES;
  if (entry != expected || size % expected != 0) {
    return fc_elf_refuse(elf, "its relocations have a size that is not possible; link it again");
  }
  elf->has_addends[which] = addends;
  return read_table(elf, "relocation table", at, size, true, &elf->relocations[which]);
}

static bool read_all_relocations(FcElf* elf, const Tags* tags) {
  bool plt_addends = tags->of[PLT_KIND] == RELA;
  if (tags->of[RELA_SIZE] && tags->of[REL_SIZE]) return fc_elf_refuse(elf, "it has both kinds of relocations");
  if (tags->of[PLT_SIZE] && !plt_addends && tags->of[PLT_KIND] != REL) {
    return fc_elf_refuse(elf, "its relocations of functions are of no known kind; link it again");
  }
  return read_relocations(elf, 0, tags->of[RELA], tags->of[RELA_SIZE], tags->of[RELA_ENTRY], true) &&
         (tags->of[RELA_SIZE] ||
          read_relocations(elf, 0, tags->of[REL], tags->of[REL_SIZE], tags->of[REL_ENTRY], false)) &&
         read_relocations(elf, 1, tags->of[PLT], tags->of[PLT_SIZE], plt_addends ? RELA_BYTES : REL_BYTES, plt_addends);
}

static bool read_function(FcElf* elf, const Tags* tags, int tag, size_t* out) {
  if (!tags->has[tag]) return true;
  const FcElfPart* part = NULL;
  if (fc_elf_place(elf, tags->of[tag], 1, out)) part = fc_elf_part(elf, *out, 1);
  return (part && (part->access & FC_ELF_EXECUTE)) ||
         fc_elf_refuse(elf, "a function that begins or ends it is not in its code; link it again");
}

static bool read_functions(FcElf* elf, const Tags* tags, int tag, int size, FcElfTable* out) {
  if (!tags->has[tag] || tags->of[size] == 0) return true;
  if (!read_table(elf, "array of functions", tags->of[tag], tags->of[size], false, out)) return false;
  return out->size % sizeof(FcElfWord) == 0 || fc_elf_refuse(elf, "its array of functions has an impossible size");
}

bool fc_elf_read_dynamic(FcElf* elf, const FcElfSegment* segment) {
  Tags tags = {0};
  return read_tags(elf, segment, &tags) && check_tags(elf, &tags) && read_symbols(elf, &tags) &&
         check_needed(elf, &tags) && read_all_relocations(elf, &tags) && read_function(elf, &tags, INIT, &elf->begin) &&
         read_function(elf, &tags, FINI, &elf->end) &&
         read_functions(elf, &tags, INIT_ARRAY, INIT_ARRAY_SIZE, &elf->begins) &&
         read_functions(elf, &tags, FINI_ARRAY, FINI_ARRAY_SIZE, &elf->ends);
}
