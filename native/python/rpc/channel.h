/* farcall._core.Channel and its kinds: channels for Python. */
#ifndef FARCALL_PYTHON_RPC_CHANNEL_H_
#define FARCALL_PYTHON_RPC_CHANNEL_H_

#include "session/channel.h"
#include "python/types.h"

int fc_channel_types_init(PyObject* module);
/* The channel of a Channel, or one over a descriptor (an int), of which it takes ownership. A new reference; NULL with
 * an exception. */
FcChannel* fc_channel_of(PyObject* object);

#endif /* FARCALL_PYTHON_RPC_CHANNEL_H_ */
