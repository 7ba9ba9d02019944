/* Remote objects that have no local form: Modules, Maps, and Arrays that are not fetched yet. */
#include <stdlib.h>

#include "session/client/remote.h"

int32_t fc_remote_object_index(void) {
  static int32_t index;
  return fc_own_type(&index, "farcall.RemoteObject");
}

static void delete_object(void* self, int flags) {
  FcRemoteObj* object = self;
  if (flags & kTVMFFIObjectDeleterFlagBitMaskStrong) {
    fc_remote_free_later(object->owned.ep, object->owned.handle, fc_no_device());
    fc_endpoint_decref(object->owned.ep);
  }
  if (flags & kTVMFFIObjectDeleterFlagBitMaskWeak) free(self);
}

TVMFFIObject* fc_remote_object(FcEndpoint* ep, uint64_t handle, int32_t kind) {
  FcRemoteObj* object = malloc(sizeof *object);
  if (!object) {
    fc_error_no_memory();
    fc_remote_free_later(ep, handle, fc_no_device());
    return NULL;
  }
  fc_object_init(&object->header, fc_remote_object_index(), delete_object);
  fc_endpoint_incref(ep);
  object->owned = (FcOwned){ep, handle, fc_no_device()};
  object->kind = kind;
  return &object->header;
}
