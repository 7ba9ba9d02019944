/* The names of the functions that pass through a relay, by handle, for traces. */
#include <stdio.h>
#include <stdlib.h>

#include "session/relay/relay.h"

enum { NAME_MAX_SIZE = 60 };

FcName* fc_name_new(const char* prefix, const char* text) {
  FcName* name = malloc(sizeof *name + NAME_MAX_SIZE);
  if (!name) return NULL;
  name->refs = 1;
  snprintf(name->text, NAME_MAX_SIZE, "%s%s", prefix, text);
  return name;
}

FcName* fc_name_share(FcName* name) {
  if (name) ++name->refs;
  return name;
}

void fc_name_drop(FcName* name) {
  if (name && --name->refs == 0) free(name);
}

FcName* fc_relay_name_of(const FcRelay* relay, uint64_t handle) {
  uint32_t slot = (uint32_t)handle;
  return slot < relay->names_size ? fc_name_share(relay->names[slot]) : NULL;
}

static bool make_room(FcRelay* relay, uint32_t slot) {
  if (slot < relay->names_size) return true;
  uint32_t wanted = slot < 32 ? 64 : 2 * slot;
  FcName** grown = realloc(relay->names, wanted * sizeof *grown);
  if (!grown) return false;
  for (uint32_t i = relay->names_size; i < wanted; ++i) grown[i] = NULL;
  relay->names = grown;
  relay->names_size = wanted;
  return true;
}

void fc_relay_set_name(FcRelay* relay, uint64_t handle, FcName* name) {
  uint32_t slot = (uint32_t)handle;
  if (name ? !make_room(relay, slot) : slot >= relay->names_size) return;
  fc_name_drop(relay->names[slot]);
  relay->names[slot] = fc_name_share(name);
}

void fc_relay_clear_names(FcRelay* relay) {
  for (uint32_t i = 0; i < relay->names_size; ++i) fc_name_drop(relay->names[i]);
  free(relay->names);
}
