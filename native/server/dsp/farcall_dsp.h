/* Made by `farcall idl` from farcall_dsp.idl. Change that file, not this one. */

#ifndef FARCALL_IDL_FARCALL_DSP_H_
#define FARCALL_IDL_FARCALL_DSP_H_

#include <farcall/fastrpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- farcall_dsp ---- */

#define farcall_dsp_URI "file:///libfarcall_dsp_skel.so?farcall_dsp_skel_handle_invoke&_modver=1.0"

int32_t farcall_dsp_open(const char* uri, fc_remote_handle* h);
int32_t farcall_dsp_close(fc_remote_handle h);
int32_t farcall_dsp_init(fc_remote_handle _h, uint64_t memory);
int32_t farcall_dsp_send(fc_remote_handle _h, const uint8_t* data, int32_t dataLen, uint8_t last, uint32_t* taken);
int32_t farcall_dsp_receive(fc_remote_handle _h, uint32_t wait_ms, uint8_t* data, int32_t dataLen, uint32_t* written,
                            uint8_t* ended);

/* The entry of the skel, which checks a call and passes it to the functions above. */
int32_t farcall_dsp_skel_handle_invoke(fc_remote_handle _h, uint32_t _scalars, fc_remote_arg* _args);

#ifdef __cplusplus
}
#endif

#endif /* FARCALL_IDL_FARCALL_DSP_H_ */
