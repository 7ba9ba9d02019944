/* Made by `farcall idl` from farcall_dsp.idl. Change that file, not this one. */

#include "server/dsp/farcall_dsp.h"

static int32_t fc_skel_farcall_dsp_open(fc_remote_call* _call) {
  const uint8_t* _in = fc_remote_in(_call, 4, 1, 1);
  if (!_in) return FC_REMOTE_BAD_PARAMETER;
  const char* _uri = fc_remote_text(_call, fc_remote_count(_call, _in), 1);
  fc_remote_arg* _opened = fc_remote_out_handle(_call);
  if (!fc_remote_complete(_call)) return FC_REMOTE_BAD_PARAMETER;
  return farcall_dsp_open(_uri, &_opened->handle);
}

static int32_t fc_skel_farcall_dsp_close(fc_remote_call* _call) {
  fc_remote_arg* _closed = fc_remote_in_handle(_call);
  if (!fc_remote_complete(_call)) return FC_REMOTE_BAD_PARAMETER;
  return farcall_dsp_close(_closed->handle);
}

static int32_t fc_skel_farcall_dsp_init(fc_remote_handle _h, fc_remote_call* _call) {
  const uint8_t* _in = fc_remote_in(_call, 8, 1, 1);
  if (!_in) return FC_REMOTE_BAD_PARAMETER;
  uint64_t memory;
  fc_remote_get(&memory, _in + 0, 8);
  if (!fc_remote_complete(_call)) return FC_REMOTE_BAD_PARAMETER;
  return farcall_dsp_init(_h, memory);
}

static int32_t fc_skel_farcall_dsp_send(fc_remote_handle _h, fc_remote_call* _call) {
  const uint8_t* _in = fc_remote_in(_call, 8, 1, 1);
  if (!_in) return FC_REMOTE_BAD_PARAMETER;
  uint8_t* _out = fc_remote_out(_call, 4, 1, 1);
  int32_t dataLen = fc_remote_count(_call, _in + 0);
  const uint8_t* data = fc_remote_in(_call, dataLen, 1, 1);
  uint8_t last;
  fc_remote_get(&last, _in + 4, 1);
  uint32_t taken;
  fc_remote_zero(&taken, sizeof taken);
  if (!fc_remote_complete(_call)) return FC_REMOTE_BAD_PARAMETER;
  int32_t _status = farcall_dsp_send(_h, data, dataLen, last, &taken);
  if (_status != FC_REMOTE_OK) return _status;
  fc_remote_put(_out + 0, &taken, 4);
  return FC_REMOTE_OK;
}

static int32_t fc_skel_farcall_dsp_receive(fc_remote_handle _h, fc_remote_call* _call) {
  const uint8_t* _in = fc_remote_in(_call, 8, 1, 1);
  if (!_in) return FC_REMOTE_BAD_PARAMETER;
  uint8_t* _out = fc_remote_out(_call, 8, 1, 1);
  uint32_t wait_ms;
  fc_remote_get(&wait_ms, _in + 0, 4);
  int32_t dataLen = fc_remote_count(_call, _in + 4);
  uint8_t* data = fc_remote_out(_call, dataLen, 1, 1);
  uint32_t written;
  fc_remote_zero(&written, sizeof written);
  uint8_t ended;
  fc_remote_zero(&ended, sizeof ended);
  if (!fc_remote_complete(_call)) return FC_REMOTE_BAD_PARAMETER;
  int32_t _status = farcall_dsp_receive(_h, wait_ms, data, dataLen, &written, &ended);
  if (_status != FC_REMOTE_OK) return _status;
  fc_remote_put(_out + 0, &written, 4);
  fc_remote_put(_out + 4, &ended, 1);
  return FC_REMOTE_OK;
}

int32_t farcall_dsp_skel_handle_invoke(fc_remote_handle _h, uint32_t _scalars, fc_remote_arg* _args) {
  fc_remote_call _call = fc_remote_begin(_scalars, _args);
  if (_call.bad) return FC_REMOTE_BAD_PARAMETER;
  switch (_call.method) {
    case FC_REMOTE_OPEN: return fc_skel_farcall_dsp_open(&_call);
    case FC_REMOTE_CLOSE: return fc_skel_farcall_dsp_close(&_call);
    case 2: return fc_skel_farcall_dsp_init(_h, &_call);
    case 3: return fc_skel_farcall_dsp_send(_h, &_call);
    case 4: return fc_skel_farcall_dsp_receive(_h, &_call);
    default: return FC_REMOTE_UNSUPPORTED;
  }
}
