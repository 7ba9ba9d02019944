/* Relocations: three actions, by a table of numbers for each machine (their psABIs' "Relocation" chapters). */
#include "runtime/image/machine.h"

#include <string.h>

#if defined(__x86_64__) && defined(__LP64__)
static const FcMachineType others[] = {{5, "COPY"},     {16, "DTPMOD64"},  {17, "DTPOFF64"}, {18, "TPOFF64"},
                                       {36, "TLSDESC"}, {37, "IRELATIVE"}, {0, NULL}};
const FcMachine fc_machine = {"x86_64", "x86_64-linux-musl", 62, 8, {6, 7}, 1, others};
#elif defined(__aarch64__) && defined(__LP64__)
static const FcMachineType others[] = {{1024, "COPY"},
                                       {1028, "TLS_DTPMOD"},
                                       {1029, "TLS_DTPREL"},
                                       {1030, "TLS_TPREL"},
                                       {1031, "TLSDESC"},
                                       {1032, "IRELATIVE"},
                                       {0, NULL}};
const FcMachine fc_machine = {"aarch64", "aarch64-linux-musl", 183, 1027, {1025, 1026}, 257, others};
#elif defined(__arm__)
static const FcMachineType others[] = {
    {13, "TLS_DESC"}, {17, "TLS_DTPMOD32"}, {18, "TLS_DTPOFF32"}, {19, "TLS_TPOFF32"}, {20, "COPY"}, {160, "IRELATIVE"},
    {0, NULL}};
const FcMachine fc_machine = {"arm", "arm-linux-musleabihf", 40, 23, {21, 22}, 2, others};
#elif defined(__riscv) && __riscv_xlen == 64
static const FcMachineType others[] = {
    {4, "COPY"}, {7, "TLS_DTPMOD64"}, {9, "TLS_DTPREL64"}, {11, "TLS_TPREL64"}, {12, "TLSDESC"}, {58, "IRELATIVE"},
    {0, NULL}};
const FcMachine fc_machine = {"riscv64", "riscv64-linux-musl", 243, 3, {5, 5}, 2, others};
#elif defined(__s390x__)
static const FcMachineType others[] = {{9, "COPY"},       {54, "TLS_DTPMOD"}, {55, "TLS_DTPOFF"},
                                       {56, "TLS_TPOFF"}, {61, "IRELATIVE"},  {0, NULL}};
const FcMachine fc_machine = {"s390x", "s390x-linux-musl", 22, 12, {10, 11}, 22, others};
#elif defined(__hexagon__)
static const FcMachineType others[] = {{32, "COPY"}, {44, "DTPMOD_32"}, {47, "DTPREL_32"}, {63, "TPREL_32"}, {0, NULL}};
const FcMachine fc_machine = {"hexagon", "hexagon-linux-musl", 164, 35, {33, 34}, 6, others};
#else
static const FcMachineType others[] = {{0, NULL}};
const FcMachine fc_machine = {
    "a machine for which farcall loads no images", "another machine", 0, 0, {0, 0}, 0, others};
#endif

#define INFO_SHIFT (sizeof(FcElfWord) == 8 ? 32 : 8)
#define TYPE_MASK (sizeof(FcElfWord) == 8 ? 0xffffffffu : 0xffu)

static uint32_t type_of(const FcElfRelocation* r) { return (uint32_t)(r->info & TYPE_MASK); }
static size_t symbol_of(const FcElfRelocation* r) { return (size_t)(r->info >> INFO_SHIFT); }

static size_t entry_size(const FcElf* elf, int which) {
  return elf->has_addends[which] ? sizeof(FcElfRelocation) : 2 * sizeof(FcElfWord);
}

static size_t count_of(const FcElf* elf, int which) { return elf->relocations[which].size / entry_size(elf, which); }

static FcElfRelocation relocation_of(const FcElf* elf, int which, size_t i) {
  FcElfRelocation r = {0, 0, 0};
  size_t size = entry_size(elf, which);
  memcpy(&r, elf->relocations[which].bytes + i * size, size);
  return r;
}

/* ---- checking ---- */

static bool is_slot(uint32_t type) { return type == fc_machine.slots[0] || type == fc_machine.slots[1]; }

static bool is_known(uint32_t type) {
  return type == fc_machine.relative || is_slot(type) || type == fc_machine.absolute;
}

static bool refuse_type(FcElf* elf, uint32_t type) {
  const FcMachineType* other = fc_machine.others;
  while (other->name && other->type != type) ++other;
  return fc_elf_refuse(elf,
                       "it has a relocation of type %u%s%s of %s, which an image cannot have; build it by farcall, "
                       "without thread-local storage and ifuncs",
                       (unsigned)type, other->name ? " " : "", other->name ? other->name : "", fc_machine.name);
}

static bool check_symbol(FcElf* elf, size_t i) {
  enum { TYPE_TLS = 6, TYPE_IFUNC = 10, RESERVED = 0xff00 };
  if (i >= fc_elf_symbol_count(elf)) return fc_elf_refuse(elf, "a relocation names symbol %zu, which it lacks", i);
  FcElfSymbol symbol = fc_elf_symbol(elf, i);
  int type = symbol.info & 15;
  if (type != TYPE_TLS && type != TYPE_IFUNC && symbol.section < RESERVED) return true;
  const char* kind = type == TYPE_TLS ? "thread-local" : type == TYPE_IFUNC ? "an ifunc" : "absolute";
  return fc_elf_refuse(elf, "its symbol `%.60s` is %s, which an image cannot have", fc_elf_name(elf, &symbol), kind);
}

static bool check_one(FcElf* elf, const FcElfRelocation* r) {
  size_t at;
  const FcElfPart* part = NULL;
  if (type_of(r) == 0) return true;
  if (!is_known(type_of(r))) return refuse_type(elf, type_of(r));
  if (fc_elf_place(elf, r->offset, sizeof(FcElfWord), &at)) part = fc_elf_part(elf, at, sizeof(FcElfWord));
  if (!part || !(part->access & FC_ELF_WRITE)) {
    return fc_elf_refuse(elf, "a relocation changes memory that is not writable data of it; link it again");
  }
  return type_of(r) == fc_machine.relative || check_symbol(elf, symbol_of(r));
}

bool fc_machine_check(FcElf* elf) {
  for (int which = 0; which < 2; ++which) {
    for (size_t i = 0; i < count_of(elf, which); ++i) {
      FcElfRelocation r = relocation_of(elf, which, i);
      if (!check_one(elf, &r)) return false;
    }
  }
  return true;
}

/* ---- relocating: everything was checked ---- */

typedef struct {
  FcElf* elf;
  char* memory;
  FcMachineFind find;
  void* context;
} Work;

/* The address of a symbol. False: nobody has it, and it is not weak. */
static bool resolve(const Work* work, size_t i, uintptr_t* out) {
  FcElfSymbol symbol = fc_elf_symbol(work->elf, i);
  if (fc_elf_is_defined(&symbol)) {
    *out = (uintptr_t)work->memory + (uintptr_t)(symbol.value - work->elf->low);
    return true;
  }
  const char* name = fc_elf_name(work->elf, &symbol);
  *out = *name ? (uintptr_t)work->find(work->context, name) : 0;
  return *out || !*name || fc_elf_is_weak(&symbol) ||
         fc_elf_refuse(work->elf, "it needs the function `%.80s`, which this program does not export to images", name);
}

static bool relocate_one(const Work* work, const FcElfRelocation* r, bool has_addend) {
  uint32_t type = type_of(r);
  char* place = work->memory + (size_t)(r->offset - work->elf->low);
  uintptr_t addend = (uintptr_t)r->addend, value = 0;
  if (type == 0) return true;
  if (!has_addend && !is_slot(type)) memcpy(&addend, place, sizeof addend);
  if (type == fc_machine.relative) {
    value = (uintptr_t)work->memory - work->elf->low;
  } else if (!resolve(work, symbol_of(r), &value)) {
    return false;
  }
  value += addend;
  memcpy(place, &value, sizeof value);
  return true;
}

bool fc_machine_relocate(FcElf* elf, char* memory, FcMachineFind find, void* context) {
  const Work work = {elf, memory, find, context};
  for (int which = 0; which < 2; ++which) {
    for (size_t i = 0; i < count_of(elf, which); ++i) {
      FcElfRelocation r = relocation_of(elf, which, i);
      if (!relocate_one(&work, &r, elf->has_addends[which])) return false;
    }
  }
  return true;
}
