/* What the native core takes from its Python half: for programs that have none, and do not use it. */
#include <stdlib.h>

#include "trace.h"

int fc_trace_on;
void fc_trace_add(const char* category, const char* name, int32_t track, int64_t start, int64_t end) {
  (void)category, (void)name, (void)track, (void)start, (void)end;
}
FcTensorObj* fc_tensor_compact(const DLTensor* from) {
  (void)from;
  abort();
}
