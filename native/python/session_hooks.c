/* The table of python/session_hooks.h. It has a file of its own, so that its users do not depend on each other. */
#include "python/session_hooks.h"

FcSessionHooks fc_session_hooks;
