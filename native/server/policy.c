/* What a session of the small server may do: the functions that it offers, and how a session begins. */
#include "runtime/builtins.h"
#include "runtime/text.h"
#include "server/session.h"

/* ---- registered functions; those of the runtime itself (ffi.*) are not served ---- */

static bool is_export(const char* name, size_t size) { return size < 4 || memcmp(name, "ffi.", 4) != 0; }

TVMFFIObject* fc_session_export(TVMFFIByteArray name) {
  return is_export(name.data, name.size) ? fc_global_get(name.data, name.size) : NULL;
}

static bool collect(void* context, const char* name, size_t size) {
  TVMFFIAny item;
  TVMFFIObject* list = context;
  if (!is_export(name, size)) return true;
  if (fc_any_from_bytes(kTVMFFIStr, name, size, &item) != 0) return false;
  return fc_list_insert(list, TVMFFISeqGetCellPtr(list)->size, item) == 0;
}

/* farcall.rpc.functions(): a JSON list of the exported functions' names. */
static int list_functions(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  TVMFFIObjectHandle list = NULL;
  (void)self, (void)args, (void)n;
  if (fc_list_new(NULL, 0, &list) != 0) return -1;
  fc_global_each(collect, list);
  TVMFFIAny any = fc_any_object(list);
  int rc = fc_json_print(&any, -1, result);
  fc_decref(list);
  return rc;
}

/* tvm.rpc.server.GetCRTMaxPacketSize(): TVM's clients, and ours, copy in pieces that fit. */
static int packet_size(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  const FcSession* session = self;
  (void)args, (void)n;
  *result = fc_any_int((int64_t)session->options->packet);
  return 0;
}

static const FcServed registry[] = {{"farcall.rpc.functions", list_functions, -1}, {NULL, NULL, 0}};
static const FcServed packet = {"tvm.rpc.server.GetCRTMaxPacketSize", packet_size, -1};

/* ---- the functions of the server itself ---- */

static const FcServed* find_served(const FcSession* session, TVMFFIByteArray name) {
  const FcServed* const tables[] = {registry,
                                    fc_served_timing,
                                    fc_served_modules,
                                    fc_served_containers,
                                    session->client->files,
                                    session->client->devices};
  if (session->options->packet && fc_is_named(name, packet.name)) return &packet;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    for (const FcServed* served = tables[i]; served && served->name; ++served) {
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

/* ---- the policy ---- */

static int find(void* context, TVMFFIByteArray name, FcExport** out) {
  const FcServed* served = find_served(context, name);
  *out = NULL;
  if (served) return export_served(context, served, out);
  TVMFFIObject* function = fc_session_export(name);
  if (!function) return 0;
  *out = fc_export_new(function, name.data, name.size, fc_scope_of(name));
  return *out ? 0 : -1;
}

static int begin(void* context, FcServer* server, const fc_wire_packet* init) {
  FcSession* session = context;
  const TVMFFIAny* first = init->args;
  bool here = init->num_args == 1 && fc_wire_is_text(first->type_index) &&
              fc_is_named(*(const TVMFFIByteArray*)first->v_ptr, "rpc.LocalSession");
  if (init->num_args == 0 || here) return fc_server_reply_void(server);
  if (session->client->onward) return session->client->onward->begin(session, init);
  fc_error_set("NotImplementedError",
               "this server has no threads, which a relay needs, so no session can go on from here; connect to it as "
               "the last hop");
  return -1;
}

static TVMFFIObject* take_error(void) { return NULL; }

const FcPolicy fc_session_policy = {
    .find = find, .begin = begin, .container_function = fc_container_function, .take_error = take_error};
