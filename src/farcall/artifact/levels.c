/*
 * Chooses, once in a process, for which CPU level the functions of regions run: the generator puts this text in front
 * of a function for each of them, which calls the one of the level. FC_LEVELS is a table of the names, the lowest first.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <farcall/c_api.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FC_HIDDEN __attribute__((visibility("hidden")))
#pragma weak getenv /* a program without an environment has none */

static const char* const fc_levels[] = {FC_LEVELS};
enum { FC_LEVEL_COUNT = sizeof fc_levels / sizeof *fc_levels };

static int fc_has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

#if defined(__x86_64__)
#define FC_NAMES "x86-64, x86-64-v2, -v3 or -v4"

struct fc_features {
  uint32_t basic; /* cpuid 1, ecx */
  uint32_t wide;  /* cpuid 7, ebx */
  uint32_t late;  /* cpuid 7, ecx */
  uint32_t more;  /* cpuid 0x80000001, ecx */
  uint32_t saved; /* the registers that the system saves */
};

static struct fc_features fc_read(void) {
  struct fc_features f = {0, 0, 0, 0, 0};
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) f.basic = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) f.wide = b, f.late = c;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) f.more = c;
  if (fc_has(f.basic, 1u << 27)) __asm__ volatile("xgetbv" : "=a"(f.saved), "=d"(d) : "c"(0));
  return f;
}

/* The levels of the psABI: 1 to 4. A CPU that slows down for wide registers, which lacks VBMI2, counts as level 3. */
static int fc_detect(void) {
  const struct fc_features f = fc_read();
  /* SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF */
  if (!fc_has(f.basic, 1u | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23) || !fc_has(f.more, 1u)) return 1;
  /* FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; XMM, YMM */
  if (!fc_has(f.basic, 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)) return 2;
  if (!fc_has(f.wide, 1u << 3 | 1u << 5 | 1u << 8) || !fc_has(f.more, 1u << 5) || !fc_has(f.saved, 6)) return 2;
  /* AVX512F, DQ, CD, BW, VL; VBMI2; the registers of AVX-512 */
  if (!fc_has(f.wide, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)) return 3;
  return fc_has(f.late, 1u << 6) && fc_has(f.saved, 0xe6) ? 4 : 3;
}

/* The psABI's number of a level: "x86-64" is 1, "x86-64-v3" is 3. 0: it is none. */
static int fc_number(const char* name) {
  const size_t size = sizeof "x86-64" - 1;
  if (strncmp(name, "x86-64", size) != 0) return 0;
  if (!name[size]) return 1;
  const int is_level = name[size] == '-' && name[size + 1] == 'v' && name[size + 2] >= '1' && name[size + 2] <= '4';
  return is_level && !name[size + 3] ? name[size + 2] - '0' : 0;
}
#else
#define FC_NAMES "armv8-a or armv8.2-a+dotprod"

extern unsigned long getauxval(unsigned long type);
#pragma weak getauxval /* a program without Linux has none */

/* 1 is Armv8-A. 2 has what compilers use of Armv8.2-A: ATOMICS and ASIMDRDM; and ASIMDDP, the dot products. */
static int fc_detect(void) {
  const uint32_t found = getauxval ? (uint32_t)getauxval(16) : 0; /* AT_HWCAP */
  return fc_has(found, 1u << 8 | 1u << 12 | 1u << 20) ? 2 : 1;
}

/* 0: it is none. */
static int fc_number(const char* name) {
  return strcmp(name, "armv8-a") == 0 ? 1 : strcmp(name, "armv8.2-a+dotprod") == 0 ? 2 : 0;
}
#endif

/* An index of fc_levels. */
static int fc_choose(void) {
  int most = fc_detect(), chosen = 0;
  const char* limit = getenv ? getenv("FARCALL_CPU_LEVEL") : NULL;
  if (limit && *limit) {
    const int number = fc_number(limit);
    if (number == 0) return farcall_raise("ValueError", "FARCALL_CPU_LEVEL: expected " FC_NAMES);
    most = number < most ? number : most;
  }
  for (int i = 0; i < FC_LEVEL_COUNT; ++i) chosen = fc_number(fc_levels[i]) <= most ? i : chosen;
  return chosen;
}

/* An index of fc_levels; -1: raised. Every thread that asks early finds the same. */
static int fc_level(void) {
  static _Atomic int known; /* the index + 1 */
  const int found = atomic_load_explicit(&known, memory_order_relaxed);
  if (__builtin_expect(found > 0, 1)) return found - 1;
  const int chosen = fc_choose();
  if (chosen >= 0) atomic_store_explicit(&known, chosen + 1, memory_order_relaxed);
  return chosen;
}
