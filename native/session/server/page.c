/* The page that this process shares with its supervisor: who finds it dead, or at work for long, reads what it does. */
#include "session/server/serve.h"

void fc_page_note(const void** noted, volatile uint8_t* page, const void* who, const char* name) {
  page[FC_PAGE_CALLING] = 0; /* never a flag beside half a name */
  if (!who) return;
  if (*noted != who) {
    size_t size = strlen(name);
    if (size > FC_PAGE_NAME_MAX) size = FC_PAGE_NAME_MAX;
    memcpy((uint8_t*)page + FC_PAGE_NAME, name, size);
    page[FC_PAGE_NAME_SIZE] = (uint8_t)size;
    page[FC_PAGE_NAME_SIZE + 1] = (uint8_t)(size >> 8);
    *noted = who;
  }
  ++*(volatile uint64_t*)(page + FC_PAGE_CALLS);
  page[FC_PAGE_CALLING] = 1;
}
