/* The checksum of artifacts (docs/spec/artifact.md). It finds accidents at the speed of memory; it is no signature. */
#ifndef FARCALL_RUNTIME_CHECKSUM_H_
#define FARCALL_RUNTIME_CHECKSUM_H_

#include <stddef.h>
#include <stdint.h>

enum { FC_CHECKSUM_LANES = 8, FC_CHECKSUM_BLOCK = 8 * FC_CHECKSUM_LANES, FC_CHECKSUM_SIZE = 16 };

typedef struct {
  uint64_t lanes[FC_CHECKSUM_LANES];
  uint64_t size; /* bytes so far */
  unsigned char rest[FC_CHECKSUM_BLOCK];
} FcChecksum;

void fc_checksum_begin(FcChecksum* sum);
void fc_checksum_add(FcChecksum* sum, const unsigned char* data, size_t size);
void fc_checksum_end(FcChecksum* sum, unsigned char out[FC_CHECKSUM_SIZE]);

#endif
