/* The parts of the module, which python/init.c assembles. */
#ifndef FARCALL_PYTHON_INIT_H_
#define FARCALL_PYTHON_INIT_H_

#include "python/types.h"

extern PyMethodDef fc_registry_functions[], fc_module_functions[], fc_error_functions[], fc_tensor_functions[],
    fc_stream_functions[], fc_timing_functions[], fc_file_functions[], fc_trace_functions[],
    fc_device_memory_functions[], fc_handshake_functions[], fc_threads_functions[], fc_checksum_functions[];
int fc_errors_init(void);
int fc_dlpack_init(void);
int fc_callbacks_init(void);
void fc_streams_init(void);
void fc_module_kinds_init(void);

#endif /* FARCALL_PYTHON_INIT_H_ */
