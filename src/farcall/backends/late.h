/* Outputs that a region allocates. This text is a part of the code of such regions, and of their artifacts. */

/* An output whose sizes are known only when the region runs. */
struct farcall_late {
  const char* node; /* "NonZero `nz`" */
  TVMFFIAny* made;
  int64_t* left; /* bytes that the call may still allocate */
  DLDataType dtype;
  int32_t ndim;
};

/* Allocates the output, and returns its elements. NULL: raised, for a negative size or more bytes than are left. */
__attribute__((visibility("hidden"))) void* farcall_allocate(const struct farcall_late* late, const int64_t* shape);
/* Returns the outputs: one, or an Array. If `status` is not 0, it releases them, and returns -1. */
__attribute__((visibility("hidden"))) int farcall_give(TVMFFIAny* made, int32_t count, int status, TVMFFIAny* result);
