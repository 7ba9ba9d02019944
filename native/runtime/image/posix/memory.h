/* Memory for code, from a POSIX system. */
#ifndef FARCALL_RUNTIME_IMAGE_POSIX_MEMORY_H_
#define FARCALL_RUNTIME_IMAGE_POSIX_MEMORY_H_

#include "runtime/image/image.h"

/* Pages of their own, writable or executable, never both. */
const FcImageMemory* fc_image_posix_memory(void);

#endif /* FARCALL_RUNTIME_IMAGE_POSIX_MEMORY_H_ */
