/* The table of python/session_hooks.h, in a separate file, so that its users do not depend on each other. */
#include "python/session_hooks.h"

FcSessionHooks fc_session_hooks;
