/*
 * The parts of a C library that driver.c needs, for Linux without one. Programs for other instruction sets then
 * compile fast (zig would compile all of musl first), and prove that wire.h needs no C library.
 */
#include <stddef.h>
#include <stdint.h>

/* The system call instruction; the registers of the number and of three arguments; the registers that it clobbers. */
#if defined(__aarch64__)
#define SYSTEM_CALL "svc 0", "x8", "x0", "x1", "x2", "cc"
#elif defined(__arm__)
#define SYSTEM_CALL "svc 0", "r7", "r0", "r1", "r2", "cc"
#elif defined(__hexagon__)
#define SYSTEM_CALL "trap0(#1)", "r6", "r0", "r1", "r2", "memory"
#elif defined(__i386__)
#define SYSTEM_CALL "int $0x80", "eax", "ebx", "ecx", "edx", "cc"
#elif defined(__powerpc__)
#define SYSTEM_CALL \
  "sc", "r0", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "cr0", "ctr", "xer"
#elif defined(__riscv)
#define SYSTEM_CALL "ecall", "a7", "a0", "a1", "a2", "memory"
#elif defined(__s390x__)
#define SYSTEM_CALL "svc 0", "r1", "r2", "r3", "r4", "cc"
#endif

#if defined(__aarch64__) || defined(__hexagon__) || defined(__riscv)
enum { READ = 63, WRITE = 64, EXIT = 93 };
#else
enum { READ = 3, WRITE = 4, EXIT = 1 };
#endif

#define SYSTEM_CALL_BY(instruction, in_number, in_a, in_b, in_c, ...) \
  register long number_ __asm__(in_number) = number;                  \
  register long a_ __asm__(in_a) = a;                                 \
  register long b_ __asm__(in_b) = b;                                 \
  register long c_ __asm__(in_c) = c;                                 \
  __asm__ volatile(instruction : "+r"(number_), "+r"(a_), "+r"(b_), "+r"(c_) : : "memory", __VA_ARGS__)
#define EXPANDED(macro, ...) macro(__VA_ARGS__)

static long system_call(long number, long a, long b, long c) {
  EXPANDED(SYSTEM_CALL_BY, SYSTEM_CALL);
#if defined(__i386__)
  return number_;
#else
  return a_;
#endif
}

static long read(int file, void* to, size_t n) { return system_call(READ, file, (long)to, (long)n); }
static long write(int file, const void* from, size_t n) { return system_call(WRITE, file, (long)from, (long)n); }

static _Noreturn void _exit(int status) {
  for (;;) system_call(EXIT, status, 0, 0);
}

static _Noreturn void abort(void) { _exit(134); }

/* A bump allocator: it resets when the last block is freed. */
static _Alignas(16) uint8_t memory[64 << 20];
static size_t memory_used, blocks;

static void* malloc(size_t n) {
  size_t size = (n + 15) & ~(size_t)15;
  if (size < n || size > sizeof memory - memory_used) return NULL;
  ++blocks;
  memory_used += size;
  return memory + memory_used - size;
}

static void free(void* block) {
  if (block && --blocks == 0) memory_used = 0;
}

/* The compiler generates calls of these three. */
void* memcpy(void* to, const void* from, size_t n) {
  for (size_t i = 0; i < n; ++i) ((uint8_t*)to)[i] = ((const uint8_t*)from)[i];
  return to;
}

void* memset(void* to, int value, size_t n) {
  for (size_t i = 0; i < n; ++i) ((uint8_t*)to)[i] = (uint8_t)value;
  return to;
}

int memcmp(const void* one, const void* other, size_t n) {
  const uint8_t *a = one, *b = other;
  for (size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

static size_t strlen(const char* text) {
  size_t n = 0;
  while (text[n]) ++n;
  return n;
}

int main(void);

#if defined(__i386__)
__attribute__((force_align_arg_pointer)) /* the kernel aligns the stack differently from a caller */
#endif
_Noreturn void _start(void) {
  _exit(main());
}
