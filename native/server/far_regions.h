/* Regions of an artifact that a device behind this server computes: what a module of kind farcall.remote keeps. */
#ifndef FARCALL_SERVER_FAR_REGIONS_H_
#define FARCALL_SERVER_FAR_REGIONS_H_

#include "runtime/runtime.h"

/* Memory of the device. */
typedef struct FcFarBuffer {
  struct FcFarBuffer* next;
  uint64_t data, size; /* its handle, and its bytes */
  bool taken;          /* a call uses it, or a value that stays there */
} FcFarBuffer;

struct FcFarModule;

typedef struct FcFarRegion {
  struct FcFarModule* module;
  char* name;
  int32_t inputs;
  int32_t part; /* the index of its artifact */
} FcFarRegion;

typedef struct FcFarModule {
  int64_t references; /* the module's own, and values that stay on the device */
  TVMFFIByteArray on; /* the device's name, while the module is loaded */
  int32_t index;      /* of the device */
  uint32_t serial;    /* of the session that has everything below */
  uint64_t compute;   /* the handle of farcall.rpc.compute */
  uint64_t* mains;    /* the handles of `main` of each artifact */
  int64_t part_count;
  FcFarRegion* regions;
  int64_t region_count;
  FcFarBuffer* buffers;
} FcFarModule;

/* Drops a reference. */
void fc_far_module_drop(void* module);
/* The function of a region; server/far_call.c. */
int fc_far_region_call(void* region, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);

#endif /* FARCALL_SERVER_FAR_REGIONS_H_ */
