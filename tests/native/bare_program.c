/*
 * A program without an operating system's libraries: it moves bytes between its standard streams and the small server.
 * The three system calls below are its whole hardware: an emulator carries them out.
 */
#include <string.h>

#include "platform/port.h"
#include "runtime/runtime.h"
#include "server/bare/bare.h"
#include "server/server.h"

/* ---- the hardware ---- */

#if defined(__hexagon__)
enum { READ = 63, WRITE = 64, EXIT = 93 };

static long call(long number, long a, const void* b, long c) {
  register long r6 __asm__("r6") = number;
  register long r0 __asm__("r0") = a;
  register const void* r1 __asm__("r1") = b;
  register long r2 __asm__("r2") = c;
  __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r6), "r"(r1), "r"(r2) : "memory");
  return r0;
}
#elif defined(__arm__)
enum { READ = 3, WRITE = 4, EXIT = 1 };

static long call(long number, long a, const void* b, long c) {
  register long r7 __asm__("r7") = number;
  register long r0 __asm__("r0") = a;
  register const void* r1 __asm__("r1") = b;
  register long r2 __asm__("r2") = c;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
  return r0;
}
#elif defined(__x86_64__)
enum { READ = 0, WRITE = 1, EXIT = 60 };

static long call(long number, long a, const void* b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}
#endif

/* Good enough for a test, whose client is no stranger. */
static bool dice(void* out, size_t size) {
  static uint32_t state = 2463534242u;
  for (size_t i = 0; i < size; ++i) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    ((uint8_t*)out)[i] = (uint8_t)state;
  }
  return true;
}

/* A clock that goes on by one microsecond at each look. */
static int64_t ticks(void) {
  static int64_t now;
  return now += 1000;
}

/* ---- functions for clients ---- */

static int add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self;
  if (n == 2 && args[0].type_index == kTVMFFIInt && args[1].type_index == kTVMFFIInt) {
    return *result = fc_any_int(args[0].v_int64 + args[1].v_int64), 0;
  }
  fc_error_format("TypeError", "expected two numbers, got %d values", (int)n);
  return -1;
}

static int twice(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const DLTensor* x = n == 1 ? fc_any_tensor(args) : NULL;
  (void)self, (void)result;
  if (!x || x->dtype.code != kDLFloat || x->dtype.bits != 32) return fc_error_set("TypeError", "expected floats"), -1;
  for (int64_t i = 0; i < fc_numel(x); ++i) ((float*)x->data)[i] *= 2;
  return 0;
}

static int offer(const char* name, TVMFFISafeCallType function) {
  TVMFFIObjectHandle object;
  TVMFFIByteArray key = {name, strlen(name)};
  if (fc_function_new(NULL, function, NULL, &object) != 0) return -1;
  int rc = TVMFFIFunctionSetGlobal(&key, object, 0);
  fc_decref(object);
  return rc;
}

#if defined(BARE_MODEL)
#include "model.h"

/* What the model's code takes from the C library, beside what server/bare/libc.c has: nearest, ties to even. */
float rintf(float x);
float rintf(float x) {
  volatile float large = x < 0 ? -8388608.0f : 8388608.0f; /* 2^23, from where on all numbers are whole */
  return x < 8388608.0f && x > -8388608.0f ? x + large - large : x;
}
#else
static int farcall_model_register(void) { return 0; }
#endif

int farcall_server_setup(void) {
  if (farcall_model_register() != 0) return -1;
  return offer("test.add", add) == 0 && offer("test.twice", twice) == 0 ? 0 : -1;
}

/* ---- the loop ---- */

#if !defined(BARE_MEMORY)
#define BARE_MEMORY 262144
#endif

static uint8_t memory[BARE_MEMORY], bytes[1024];

static void answer(void) {
  for (size_t n; (n = fc_bare_send(bytes, sizeof bytes)) != 0;) call(WRITE, 1, bytes, (long)n);
}

__attribute__((used)) static int run(void) {
  fc_bare_entropy = dice;
  fc_bare_clock = ticks;
  if (fc_bare_start(memory, sizeof memory) != 0) return 3;
  int state = 0;
  while (state == 0) {
    long n = call(READ, 0, bytes, sizeof bytes);
    if (n <= 0) break;
    state = fc_bare_receive(bytes, (size_t)n);
    answer();
  }
  fc_bare_stop();
  return state < 0;
}

void _start(void);
void _start(void) { call(EXIT, run(), NULL, 0); }
