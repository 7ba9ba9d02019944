/* SHA-256 (FIPS 180-4): of the secrets of tokens, and of files that clients name by their content. */
#ifndef FARCALL_SERVER_SHA256_H_
#define FARCALL_SERVER_SHA256_H_

#include <stddef.h>
#include <stdint.h>

typedef struct FcSha256 {
  uint32_t state[8];
  uint64_t size;
  uint8_t block[64];
} FcSha256;

void fc_sha256_begin(FcSha256* hash);
void fc_sha256_add(FcSha256* hash, const void* data, size_t size);
/* The digest as 64 hexadecimal digits and a NUL. */
void fc_sha256_end(FcSha256* hash, char out[65]);

#endif /* FARCALL_SERVER_SHA256_H_ */
