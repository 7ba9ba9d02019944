/* Modules of images. */
#include "runtime/image/image.h"

static void* find(void* image, const char* name) { return fc_image_symbol(image, name); }

static void each(void* library, FcNameVisitor visit, void* context) {
  enum { TYPE_FUNCTION = 2 };
  const FcElf* elf = &((FcImage*)library)->elf;
  for (size_t i = 1; i < fc_elf_symbol_count(elf); ++i) {
    FcElfSymbol symbol = fc_elf_symbol(elf, i);
    const char* name = fc_elf_name(elf, &symbol);
    if (!fc_elf_is_defined(&symbol) || (symbol.info & 15) != TYPE_FUNCTION) continue;
    if (!visit(context, name, strlen(name))) return;
  }
}

static void unload(void* image) { fc_image_free(image); }
static size_t size_of(void* image, const char* at) { return fc_image_left(image, at); }

TVMFFIObject* fc_image_module(const uint8_t* data, size_t size, const char* what, const FcImageMemory* memory,
                              size_t most) {
  FcImage* image = fc_image_load(data, size, what, memory, most);
  if (!image) return NULL;
  bool prepared = fc_module_prepare(image, find, what) == 0;
  TVMFFIObject* module = prepared ? fc_module_of_library(image, find, true) : NULL;
  if (!module) return fc_image_free(image), NULL;
  fc_module_of(module)->each = each;
  if (fc_image_symbol(image, FC_IMAGE_UNLOADS)) fc_module_of(module)->unload = unload;
  return fc_module_root(module, find, size_of);
}
