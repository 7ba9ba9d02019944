/* What a session of the small server may do: the functions that it offers, and how a session begins. */
#include "runtime/builtins.h"
#include "server/session.h"

/* ---- the functions of the server itself ---- */

static const FcServed* const tables[] = {fc_served_registry};

static const FcServed* find_served(TVMFFIByteArray name) {
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    for (const FcServed* served = tables[i]; served->name; ++served) {
      if (fc_is_named(name, served->name)) return served;
    }
  }
  return NULL;
}

static int export_served(FcSession* session, const FcServed* served, FcExport** out) {
  TVMFFIByteArray name = {served->name, strlen(served->name)};
  TVMFFIObjectHandle function;
  if (fc_function_new(session, served->call, NULL, &function) != 0) return -1;
  *out = fc_export_new(function, name.data, name.size, fc_scope_of(name));
  if (*out) (*out)->naming = served->naming;
  return *out ? 0 : -1;
}

/* ---- registered functions; those of the runtime itself (ffi.*) are not served ---- */

/* farcall.rpc.clock(): nanoseconds of this machine's monotonic clock. */
static int read_clock(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n;
  *result = fc_any_int(fc_now_ns());
  return 0;
}

const FcServed fc_served_registry[] = {{"farcall.rpc.clock", read_clock, -1}, {NULL, NULL, 0}};

/* ---- the policy ---- */

static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  const FcServed* served = find_served(name);
  *out = NULL;
  if (served) return export_served(context, served, out);
  if (name.size >= 4 && memcmp(name.data, "ffi.", 4) == 0) return 0;
  TVMFFIObject* function = fc_global_get(name.data, name.size);
  if (!function) return 0;
  *out = fc_export_new(function, name.data, name.size, fc_scope_of(name));
  return *out ? 0 : -1;
}

static int begin(void* context, FcServer* server, const fc_wire_packet* init) {
  (void)context;
  if (init->num_args == 0) return fc_server_reply_void(server);
  fc_error_set("NotImplementedError", "this server does not relay sessions; connect to it as the last hop");
  return -1;
}

static TVMFFIObject* take_error(void) { return NULL; }

const FcPolicy fc_session_policy = {
    .find = find, .begin = begin, .container_function = fc_container_function, .take_error = take_error};
