/* Loading a shared object whose layout was checked: copying, relocating, protecting, running its first functions. */
#include "runtime/image/image.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/image/machine.h"

typedef void (*Function)(int, char**, char**);

static void* find_export(void* context, const char* name) {
  (void)context;
  return fc_image_export(name);
}

static void copy_parts(FcImage* image) {
  for (uint32_t i = 0; i < image->elf.count; ++i) {
    const FcElfPart* part = &image->elf.parts[i];
    memcpy(image->base + part->at, image->elf.data + part->file_at, part->in_file);
  }
}

/* The caller's bytes go; the same tables are in the span, where no relocation could write. */
static void move_tables(FcImage* image) {
  FcElfTable* const tables[] = {&image->elf.symbols, &image->elf.names, &image->elf.hash, &image->elf.begins,
                                &image->elf.ends};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    tables[i]->bytes = (const uint8_t*)image->base + tables[i]->at;
  }
  image->elf.data = NULL;
}

/* Writing ends before executing begins. Pages between the parts stay as they were reserved. */
static bool protect(FcImage* image) {
  size_t page = image->memory->page;
  for (uint32_t i = 0; i < image->elf.count; ++i) {
    const FcElfPart* part = &image->elf.parts[i];
    size_t begin = part->at & ~(page - 1), end = (part->at + part->size + page - 1) & ~(page - 1);
    if (part->access & FC_ELF_WRITE) continue;
    if (!image->memory->protect(image->base + begin, end - begin, part->access)) return false;
  }
  return true;
}

/* ---- functions that begin and end it ---- */

static bool is_code(const FcImage* image, uintptr_t address) {
  const FcElfPart* part = fc_elf_part(&image->elf, (size_t)(address - (uintptr_t)image->base), 1);
  return part && (part->access & FC_ELF_EXECUTE);
}

static uintptr_t function_of(const FcElfTable* table, size_t i) {
  uintptr_t address;
  memcpy(&address, table->bytes + i * sizeof address, sizeof address);
  return address;
}

static size_t functions_in(const FcElfTable* table) { return table->size / sizeof(uintptr_t); }

static bool check_functions(FcImage* image, const FcElfTable* table) {
  for (size_t i = 0; i < functions_in(table); ++i) {
    if (!is_code(image, function_of(table, i))) {
      return fc_elf_refuse(&image->elf, "a function that begins or ends it is not in its code; link it again");
    }
  }
  return true;
}

static void call(uintptr_t address) {
  Function function;
  memcpy(&function, &address, sizeof function);
  function(0, NULL, NULL);
}

static void begin(FcImage* image) {
  image->begun = true;
  if (image->elf.begin != FC_ELF_NOWHERE) call((uintptr_t)image->base + image->elf.begin);
  for (size_t i = 0; i < functions_in(&image->elf.begins); ++i) call(function_of(&image->elf.begins, i));
}

/* Its data may have changed since it was loaded: an address that is no code any more is left out. */
static void end(FcImage* image) {
  for (size_t i = functions_in(&image->elf.ends); i > 0; --i) {
    uintptr_t address = function_of(&image->elf.ends, i - 1);
    if (is_code(image, address)) call(address);
  }
  if (image->elf.end != FC_ELF_NOWHERE) call((uintptr_t)image->base + image->elf.end);
}

/* ---- loading ---- */

void fc_image_free(FcImage* image) {
  if (image->begun) end(image);
  if (image->base) image->memory->release(image->base, image->elf.span);
  free(image);
}

static FcImage* refuse(FcImage* image, const char* kind, const char* what) {
  fc_error_format(kind, "%s: %s", what, image->elf.problem);
  fc_image_free(image);
  return NULL;
}

static bool relocate(FcImage* image) { return fc_machine_relocate(&image->elf, image->base, find_export, NULL); }

FcImage* fc_image_load(const uint8_t* data, size_t size, const char* what, const FcImageMemory* memory, size_t most) {
  FcImage* image = calloc(1, sizeof *image);
  if (!image) return fc_error_no_memory(), NULL;
  image->memory = memory;
  if (!fc_elf_read(&image->elf, data, size, (FcElfLimits){memory->page, most})) {
    return refuse(image, "ArtifactError", what);
  }
  image->base = memory->reserve(image->elf.span, image->elf.alignment);
  if (!image->base) {
    fc_elf_refuse(&image->elf, "no memory for its %zu bytes", image->elf.span);
    return refuse(image, "MemoryError", what);
  }
  copy_parts(image);
  if (!relocate(image)) return refuse(image, "ArtifactError", what);
  move_tables(image);
  if (!check_functions(image, &image->elf.begins) || !check_functions(image, &image->elf.ends)) {
    return refuse(image, "ArtifactError", what);
  }
  if (!protect(image)) {
    fc_elf_refuse(&image->elf, "the system refuses to make its code executable");
    return refuse(image, "ArtifactError", what);
  }
  begin(image);
  return image;
}

/* ---- symbols ---- */

static uint32_t hash_of(const char* name) {
  uint32_t hash = 0;
  for (; *name; ++name) {
    hash = (hash << 4) + (uint8_t)*name;
    hash ^= (hash >> 24) & 0xf0;
    hash &= 0x0fffffff;
  }
  return hash;
}

static uint32_t word_of(const FcElfTable* table, size_t i) {
  uint32_t word;
  memcpy(&word, table->bytes + 4 * i, 4);
  return word;
}

/* A chain has at most as many links as there are symbols: one that is longer goes round in a circle. */
void* fc_image_symbol(const FcImage* image, const char* name) {
  enum { TYPE_FUNCTION = 2, RESERVED = 0xff00 };
  const FcElfTable* table = &image->elf.hash;
  uint32_t buckets = word_of(table, 0), count = word_of(table, 1);
  if (buckets == 0) return NULL;
  uint32_t i = word_of(table, 2 + hash_of(name) % buckets);
  for (uint32_t steps = 0; steps < count && i != 0 && i < count; ++steps) {
    FcElfSymbol symbol = fc_elf_symbol(&image->elf, i);
    bool usable = fc_elf_is_defined(&symbol) && symbol.section < RESERVED && (symbol.info & 15) <= TYPE_FUNCTION;
    if (usable && symbol.info >> 4 != 0 && strcmp(fc_elf_name(&image->elf, &symbol), name) == 0) {
      return image->base + (size_t)(symbol.value - image->elf.low);
    }
    i = word_of(table, 2 + (size_t)buckets + i);
  }
  return NULL;
}

size_t fc_image_left(const FcImage* image, const void* at) {
  size_t offset = (size_t)((const char*)at - image->base);
  const FcElfPart* part = fc_elf_part(&image->elf, offset, 0);
  return part ? part->size - (offset - part->at) : 0;
}
