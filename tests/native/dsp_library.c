/* The skel of farcall_dsp as a library that a driver of FastRPC loads, here the fake one of the tests. */
#include <stddef.h>

#include "server/dsp/sessions.h"

__attribute__((constructor)) static void prepare(void) {
  char* words[] = {"dsp", NULL};
  fc_dsp_prepare(1, words);
}
