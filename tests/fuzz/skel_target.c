/*
 * Hostile calls against a generated skel: any word, any number of buffers of any size. Each buffer ends where memory
 * ends, so that a read or write behind it is a crash; the implementation touches all that it was given.
 *
 * An input: u32 word, then for each buffer a byte (its size), which takes its bytes from what follows.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "everything.h"

enum { PAGE = 4096, BUFFERS = 255 + 255 + 15 + 15 };

static volatile uint8_t sink;

static void see(const void* data, size_t n) {
  for (size_t i = 0; i < n; ++i) sink ^= ((const uint8_t*)data)[i];
}
static void fill(void* data, size_t n) {
  see(data, n);
  if (n) memset(data, 0x5a, n);
}

int32_t everything_open(const char* uri, fc_remote_handle* h) {
  see(uri, strlen(uri) + 1);
  *h = 1;
  return 0;
}
int32_t everything_close(fc_remote_handle h) { return h != 1; }
int32_t everything_reset(fc_remote_handle h) { return h != 1; }
int32_t everything_sum(fc_remote_handle h, const int32_t* values, int32_t valuesLen, int64_t* result) {
  (void)h;
  for (int32_t i = 0; i < valuesLen; ++i) *result ^= values[i];
  return 0;
}
int32_t everything_paint(fc_remote_handle h, color c, pixel* p, const int32_t g[8], int32_t i[8], everything_mode m,
                         color* d) {
  see(g, 32);
  fill(p, sizeof *p);
  fill(i, 32);
  *d = c;
  return h == 3 && m == 1;
}
int32_t everything_rows(fc_remote_handle h, const row* a, int32_t aLen, fc_remote_string* b, int32_t bLen, row* f,
                        int32_t fLen) {
  (void)h;
  for (int32_t i = 0; i < aLen; ++i) see(a[i].data, (size_t)a[i].dataLen * sizeof(pixel));
  for (int32_t i = 0; i < bLen; ++i) fill(b[i].data, (size_t)b[i].dataLen);
  for (int32_t i = 0; i < fLen; ++i) fill(f[i].data, (size_t)f[i].dataLen * sizeof(pixel));
  return 0;
}
int32_t everything_texts(fc_remote_handle h, const char* a, char* b, int32_t bLen, char* f, int32_t fLen,
                         const uint16_t* d, uint16_t* e, int32_t eLen) {
  (void)h;
  see(a, strlen(a) + 1);
  fill(b, (size_t)bLen);
  fill(f, (size_t)fLen);
  for (size_t i = 0; d[i]; ++i) sink ^= (uint8_t)d[i];
  fill(e, (size_t)eLen * 2);
  return 0;
}
int32_t everything_send(fc_remote_handle h, const packet* p, packet* q, int32_t k, uint32_t kOffset, uint32_t kSize,
                        uint8_t x, char y, float z) {
  see(p->body, (size_t)p->bodyLen);
  see(p->note, strlen(p->note) + 1);
  fill(q->body, (size_t)q->bodyLen);
  fill(q->note, (size_t)q->noteLen);
  q->id = p->id;
  return (int32_t)(h + (uint32_t)k + kOffset + kSize + x + (uint8_t)y) * (z > 1);
}

/* A buffer of n bytes whose end is the end of the memory. */
static uint8_t* buffer_at_the_end(uint32_t index, size_t n) {
  static uint8_t* pages;
  if (!pages) {
    pages = mmap(NULL, 2 * PAGE * BUFFERS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) abort();
    for (size_t i = 0; i < BUFFERS; ++i) mprotect(pages + (2 * i + 1) * PAGE, PAGE, PROT_NONE);
  }
  return pages + (2 * (size_t)index + 1) * PAGE - n;
}

static size_t take(const uint8_t** from, size_t* left, uint8_t* to, size_t n) {
  size_t got = n < *left ? n : *left;
  if (got) memcpy(to, *from, got);
  memset(to + got, 0, n - got);
  *from += got;
  *left -= got;
  return got;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fc_remote_arg args[BUFFERS];
  uint32_t word = 0;
  take(&data, &size, (uint8_t*)&word, 4);
  uint32_t buffers = fc_remote_ins(word) + fc_remote_outs(word);
  uint32_t handles = fc_remote_in_handles(word) + fc_remote_out_handles(word);
  for (uint32_t i = 0; i < buffers; ++i) {
    uint8_t n = 0;
    take(&data, &size, &n, 1);
    uint8_t* at = buffer_at_the_end(i, n);
    take(&data, &size, at, n);
    args[i].buffer.data = n == 255 ? NULL : at;
    args[i].buffer.size = n;
  }
  for (uint32_t i = 0; i < handles; ++i) args[buffers + i].handle = i + 1;
  everything_skel_handle_invoke(1, word, args);
  return 0;
}

#ifdef FUZZ_PROGRAM
/* Calls with words that the skel knows, and random buffers: many, the same in every run. */
int main(void) {
  static const uint32_t words[] = {0x00020001, 0x01000010, 0x02000000, 0x03020100, 0x04010100,
                                   0x05040100, 0x05070200, 0x06050300, 0x07030310};
  uint8_t input[2048];
  uint32_t state = 2026;
  for (int run = 0; run < 300000; ++run) {
    for (size_t i = 0; i < sizeof input; ++i) {
      state = state * 1664525 + 1013904223;
      input[i] = (uint8_t)(state >> 24) % (run % 3 == 0 ? 256 : run % 3 == 1 ? 5 : 2);
    }
    uint32_t word = words[(uint32_t)run % (sizeof words / sizeof *words)];
    memcpy(input, &word, 4);
    /* A first buffer that is long enough, most of the time: the counts in it decide what follows. */
    if (run % 4) input[4] = (uint8_t)(4 + run % 70);
    LLVMFuzzerTestOneInput(input, sizeof input);
  }
  return 0;
}
#endif
