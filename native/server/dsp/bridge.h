/* Sessions behind the interface farcall_dsp: each open handle is one. */
#ifndef FARCALL_SERVER_DSP_BRIDGE_H_
#define FARCALL_SERVER_DSP_BRIDGE_H_

#include "session/channel.h"

/* Serves one session over a channel to its end, with so many bytes of memory (0: no limit of its own). */
typedef int FcDspServe(FcChannel* channel, uint64_t memory);

/* What the program does with new sessions; called once, before the first call. */
void fc_dsp_serve_by(FcDspServe* serve);

#endif /* FARCALL_SERVER_DSP_BRIDGE_H_ */
