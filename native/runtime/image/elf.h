/*
 * A shared object as bytes: its layout, checked whole before anything is done with it. The bytes are hostile: every
 * offset, size and index is compared with what it points into, and what is not understood is refused.
 *
 * The reader is compiled for the machine that it runs on, and reads that machine's files: its word size, its byte order,
 * its number. Layouts: System V ABI, chapters 4 and 5. docs/spec/image.md is the specification.
 */
#ifndef FARCALL_RUNTIME_IMAGE_ELF_H_
#define FARCALL_RUNTIME_IMAGE_ELF_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX > 0xffffffffu
typedef uint64_t FcElfWord;
typedef int64_t FcElfAddend;
typedef struct {
  uint32_t type, flags;
  uint64_t offset, address, physical, in_file, in_memory, alignment;
} FcElfSegment;
typedef struct {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, size;
} FcElfSymbol;
#else
typedef uint32_t FcElfWord;
typedef int32_t FcElfAddend;
typedef struct {
  uint32_t type, offset, address, physical, in_file, in_memory, flags, alignment;
} FcElfSegment;
typedef struct {
  uint32_t name, value, size;
  uint8_t info, other;
  uint16_t section;
} FcElfSymbol;
#endif

typedef struct {
  uint8_t ident[16];
  uint16_t type, machine;
  uint32_t version;
  FcElfWord entry, segments_at, sections_at;
  uint32_t flags;
  uint16_t size, segment_size, segments, section_size, sections, names;
} FcElfHeader;

typedef struct {
  FcElfWord tag, value;
} FcElfDynamic;

/* A relocation with its addend; DT_REL tables leave the addend out, and it stands at the place itself. */
typedef struct {
  FcElfWord offset, info;
  FcElfAddend addend;
} FcElfRelocation;

enum { FC_ELF_WRITE = 2, FC_ELF_EXECUTE = 1, FC_ELF_READ = 4 }; /* flags of a segment */
enum { FC_ELF_PARTS = 16, FC_ELF_PROBLEM = 240 };

/* A segment that is loaded. Offsets count from the beginning of the span. */
typedef struct {
  size_t at, size;         /* in the span */
  size_t file_at, in_file; /* the bytes that the file has; zeros follow */
  uint32_t access;
} FcElfPart;

/* A table: `at` is in the span, `bytes` in the file. */
typedef struct {
  size_t at, size;
  const uint8_t* bytes;
} FcElfTable;

/* What the machine that loads it allows. */
typedef struct {
  size_t page;      /* granularity of memory protection */
  size_t most_span; /* bytes */
} FcElfLimits;

typedef struct {
  const uint8_t* data;
  size_t size;
  uintptr_t low; /* the address at which the file would have the span begin */
  size_t span, alignment;
  uint32_t count;
  FcElfPart parts[FC_ELF_PARTS];
  FcElfTable symbols, names, hash;
  FcElfTable relocations[2]; /* of data, of the procedure linkage table */
  bool has_addends[2];
  FcElfTable begins, ends; /* arrays of functions to call after loading and before unloading */
  size_t begin, end;       /* one more of each, as offsets; NOWHERE */
  char problem[FC_ELF_PROBLEM];
} FcElf;

#define FC_ELF_NOWHERE SIZE_MAX

/*
 * Reads and checks the whole file; `data` must stay as it is while `elf` is used. False with `elf->problem`: what is
 * wrong and what to do about it.
 */
bool fc_elf_read(FcElf* elf, const uint8_t* data, size_t size, FcElfLimits limits);

/* ---- for the files of this room ---- */

/* Notes what is wrong. Returns false. */
__attribute__((format(printf, 2, 3))) bool fc_elf_refuse(FcElf* elf, const char* format, ...);
/* An address of the file as an offset in the span; false when `size` bytes from there are not in it. */
bool fc_elf_place(const FcElf* elf, FcElfWord address, size_t size, size_t* at);
/* The part that has all of these bytes of the span; NULL when none has. */
const FcElfPart* fc_elf_part(const FcElf* elf, size_t at, size_t size);
/* Reads the table of the dynamic linker: symbols, names, relocations, functions. */
bool fc_elf_read_dynamic(FcElf* elf, const FcElfSegment* segment);

/* Symbol i; i is less than the number of symbols. */
FcElfSymbol fc_elf_symbol(const FcElf* elf, size_t i);
size_t fc_elf_symbol_count(const FcElf* elf);
const char* fc_elf_name(const FcElf* elf, const FcElfSymbol* symbol);
static inline bool fc_elf_is_defined(const FcElfSymbol* symbol) { return symbol->section != 0; }
static inline bool fc_elf_is_weak(const FcElfSymbol* symbol) { return symbol->info >> 4 == 2; }

#endif /* FARCALL_RUNTIME_IMAGE_ELF_H_ */
