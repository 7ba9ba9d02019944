/* Memory of large tensors, kept for the next ones. */
#ifndef FARCALL_RUNTIME_BLOCKS_H_
#define FARCALL_RUNTIME_BLOCKS_H_

/* From now on, memory of large tensors that were released is kept for the next ones, 64 MiB at most. */
void fc_blocks_keep(void);

#endif
