/*
 * What one core of a machine can do at most: multiply-adds of float32 in registers, and bytes read from memory.
 * farcall.rpc.client._roof builds it for the machine that is measured.
 */

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <farcall/c_api.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { CHAINS = 12, ROUNDS = 100000, REPEATS = 40, PASSES = 4 };

/* Each measurement is shorter than a time slice of the system's scheduler, so that the best one is undisturbed. */
#define FC_PART ((size_t)4 << 20)

static volatile float fc_sink; /* so that no loop is left out */

static double seconds(void) {
  struct timespec now;
  (void)timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Twelve independent chains of multiply-adds: more than any core needs to hide the time that one takes. Where they
   begin is read from memory: the chain of a known 1 stays 1, and a compiler leaves it out. */
#define FC_CHAINS(name, attributes, width)                    \
  attributes static void name(void) {                         \
    typedef float vector __attribute__((vector_size(width))); \
    vector factor, term, sums[CHAINS];                        \
    for (int i = 0; i < (int)(width / sizeof(float)); ++i) {  \
      factor[i] = 0.999f;                                     \
      term[i] = 0.001f;                                       \
      for (int k = 0; k < CHAINS; ++k) sums[k][i] = fc_sink;  \
    }                                                         \
    for (int round = 0; round < ROUNDS; ++round) {            \
      FC_STEP(0);                                             \
      FC_STEP(1);                                             \
      FC_STEP(2);                                             \
      FC_STEP(3);                                             \
      FC_STEP(4);                                             \
      FC_STEP(5);                                             \
      FC_STEP(6);                                             \
      FC_STEP(7);                                             \
      FC_STEP(8);                                             \
      FC_STEP(9);                                             \
      FC_STEP(10);                                            \
      FC_STEP(11);                                            \
    }                                                         \
    float total = 0;                                          \
    for (int k = 0; k < CHAINS; ++k) total += sums[k][0];     \
    fc_sink = total;                                          \
  }
#define FC_STEP(k) sums[k] = sums[k] * factor + term

FC_CHAINS(chains_16, , 16)
#if defined(__x86_64__)
FC_CHAINS(chains_32, __attribute__((target("avx2,fma"))), 32)
FC_CHAINS(chains_64, __attribute__((target("avx512f,fma"))), 64)

/* The widest vectors of this CPU that the system saves: XCR0 has bits for the halves of the registers. */
static int widest(void) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 16;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 16;
  if ((low & 0xe6) == 0xe6 && (b & bit_AVX512F)) return 64;
  return (low & 0x6) == 0x6 && (b & bit_AVX2) ? 32 : 16;
}
#endif

/* Multiply-adds count as two operations. */
FARCALL_KERNEL(operations_per_second) {
  void (*run)(void) = chains_16;
  int width = 16;
#if defined(__x86_64__)
  width = widest();
  run = width == 64 ? chains_64 : width == 32 ? chains_32 : chains_16;
#endif
  double best = 0, operations = 2.0 * CHAINS * ROUNDS * (double)((size_t)width / sizeof(float));
  for (int i = 0; i < REPEATS; ++i) {
    double start = seconds();
    run();
    double rate = operations / (seconds() - start);
    best = rate > best ? rate : best;
  }
  *result = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = best};
  return 0;
}

/* The sum of `count` words, by four chains of vectors. */
static uint64_t sum(const uint64_t* data, size_t count) {
  typedef uint64_t vector __attribute__((vector_size(32)));
  const vector* from = (const vector*)data;
  vector sums[4] = {{0}};
  for (size_t i = 0; i + 4 <= count / 4; i += 4) {
    for (int k = 0; k < 4; ++k) sums[k] += from[i + (size_t)k];
  }
  vector total = sums[0] + sums[1] + sums[2] + sums[3];
  return total[0] + total[1] + total[2] + total[3];
}

/* Of memory that no cache holds; but no more than an eighth of the machine's. 0: there is too little. */
FARCALL_KERNEL(bytes_per_second) {
  size_t size = (size_t)256 << 20;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  while (pages > 0 && page > 0 && size > FC_PART && size / (size_t)page > (size_t)pages / 8) size /= 2;
  uint64_t* data = aligned_alloc(64, size);
  double best = 0;
  if (data) {
    for (size_t i = 0; i < size / sizeof *data; ++i) data[i] = i;
    for (size_t at = 0; at < PASSES * size; at += FC_PART) {
      double start = seconds();
      fc_sink = (float)sum(data + at % size / sizeof *data, FC_PART / sizeof *data);
      double rate = (double)FC_PART / (seconds() - start);
      best = rate > best ? rate : best;
    }
    free(data);
  }
  *result = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = best};
  return 0;
}
