/* Registers this folder's functions with the runtime. */
#include "runtime/dl/dl.h"
#include "runtime/module.h"

void fc_dl_start(void) {
  fc_foreign = &fc_dl_foreign;
  fc_cxx_find = fc_dl_cxx;
  fc_file_write = fc_dl_write_file;
  fc_note_callers = fc_dl_note_callers;
  fc_builtins_add(fc_load_builtins);
}
