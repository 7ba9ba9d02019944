/*
 * The walk through a module and its imports. A module may be reached on many ways (a chain of 40 diamonds has 2^40), so
 * the walk remembers which modules it has seen, and it keeps no frame of the C stack for each level.
 */
#include <stdlib.h>

#include "runtime/module.h"

enum { FEWEST = 16 };

typedef struct Walk {
  TVMFFIObject** waiting; /* references, the next one last */
  size_t count, room;
  TVMFFIObject** seen; /* references, so that no address is used again meanwhile: a hash table, at most half full */
  size_t known, slots; /* a power of two */
} Walk;

static bool grow(Walk* walk, size_t more) {
  size_t room = walk->room ? walk->room : FEWEST;
  while (room < walk->count + more) room *= 2;
  TVMFFIObject** longer = room == walk->room ? walk->waiting : realloc(walk->waiting, room * sizeof *longer);
  if (!longer) return false;
  walk->waiting = longer;
  walk->room = room;
  return true;
}

/* The first import comes last, since that is the next one. */
static int add_imports(Walk* walk, TVMFFIObject* module) {
  TVMFFIObject* imports = fc_module_imports(module);
  if (!imports) return -1;
  const TVMFFISeqCell* cell = TVMFFISeqGetCellPtr(imports);
  bool good = cell->size == 0 || grow(walk, (size_t)cell->size);
  for (int64_t i = cell->size; good && i-- > 0;) {
    TVMFFIObject* import = ((TVMFFIAny*)cell->data)[i].v_obj;
    fc_incref(import);
    walk->waiting[walk->count++] = import;
  }
  fc_decref(imports);
  if (!good) fc_error_no_memory();
  return good ? 0 : -1;
}

static TVMFFIObject** slot_of(const Walk* walk, const TVMFFIObject* module) {
  size_t at = (size_t)((uint64_t)(uintptr_t)module * 0x9e3779b97f4a7c15u >> 32);
  for (;; ++at) {
    TVMFFIObject** slot = &walk->seen[at & (walk->slots - 1)];
    if (!*slot || *slot == module) return slot;
  }
}

static bool make_room(Walk* walk) {
  Walk larger = {.slots = walk->slots ? 2 * walk->slots : FEWEST};
  if (2 * walk->known < walk->slots) return true;
  larger.seen = calloc(larger.slots, sizeof *larger.seen);
  if (!larger.seen) return false;
  for (size_t i = 0; i < walk->slots; ++i) {
    if (walk->seen[i]) *slot_of(&larger, walk->seen[i]) = walk->seen[i];
  }
  free(walk->seen);
  walk->seen = larger.seen;
  walk->slots = larger.slots;
  return true;
}

/* Takes ownership of the module. *is_new: it was not seen before. */
static int remember(Walk* walk, TVMFFIObject* module, bool* is_new) {
  *is_new = false;
  if (!make_room(walk)) {
    fc_decref(module);
    fc_error_no_memory();
    return -1;
  }
  TVMFFIObject** slot = slot_of(walk, module);
  if (*slot) {
    fc_decref(module);
    return 0;
  }
  *slot = module;
  ++walk->known;
  *is_new = true;
  return 0;
}

static void clear(Walk* walk) {
  for (size_t i = 0; i < walk->count; ++i) fc_decref(walk->waiting[i]);
  for (size_t i = 0; i < walk->slots; ++i) {
    if (walk->seen[i]) fc_decref(walk->seen[i]);
  }
  free(walk->waiting);
  free(walk->seen);
}

int fc_module_walk(TVMFFIObject* module, FcModuleVisitor visit, void* context) {
  Walk walk = {0};
  bool is_new;
  int step = visit(context, module), rc = step == FC_WALK_ON ? add_imports(&walk, module) : step < 0 ? -1 : 0;
  while (rc == 0 && walk.count > 0 && step != FC_WALK_END) {
    TVMFFIObject* next = walk.waiting[--walk.count];
    rc = remember(&walk, next, &is_new);
    if (rc != 0 || !is_new) continue;
    step = visit(context, next);
    rc = step == FC_WALK_ON ? add_imports(&walk, next) : step < 0 ? -1 : 0;
  }
  clear(&walk);
  return rc;
}
