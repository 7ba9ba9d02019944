/* The client's half of an endpoint, and the table of client sessions, which maps the device of a remote tensor to its
 * endpoint. */
#include <stdlib.h>

#include "session/client/remote.h"

static FcMutex table_lock = FC_MUTEX_INIT;
static FcEndpoint** table;
static int32_t table_size;

static int grow_table(void) {
  int32_t size = table_size ? 2 * table_size : 32;
  FcEndpoint** grown = size <= INT32_MAX / FC_REMOTE_STEP - 1 ? realloc(table, (size_t)size * sizeof *table) : NULL;
  if (!grown) {
    fc_error_no_memory();
    return -1;
  }
  memset(grown + table_size, 0, (size_t)(size - table_size) * sizeof *table);
  table = grown;
  table_size = size;
  return 0;
}

static int enter_table(FcEndpoint* ep) {
  int32_t slot = 0;
  fc_mutex_lock(&table_lock);
  while (slot < table_size && table[slot]) ++slot;
  int rc = slot == table_size ? grow_table() : 0;
  if (rc == 0) table[ep->client->slot = slot] = ep;
  fc_mutex_unlock(&table_lock);
  return rc;
}

static void leave_table(FcEndpoint* ep) {
  fc_mutex_lock(&table_lock);
  if (ep->client->slot >= 0) table[ep->client->slot] = NULL;
  fc_mutex_unlock(&table_lock);
}

/* A new reference to an endpoint of the table; NULL when its last reference was released and it is about to leave the
 * table. */
static FcEndpoint* take(FcEndpoint* ep) { return ep && fc_endpoint_try_incref(ep) ? ep : NULL; }

FcEndpoint* fc_remote_endpoint_of(DLDevice device) {
  int32_t slot = (int32_t)device.device_type / FC_REMOTE_STEP - 1;
  fc_mutex_lock(&table_lock);
  FcEndpoint* found = take(slot >= 0 && slot < table_size ? table[slot] : NULL);
  fc_mutex_unlock(&table_lock);
  if (!found) fc_error_format("ValueError", "device type %d belongs to no open session", (int)device.device_type);
  return found;
}

FcEndpoint* fc_remote_endpoint_of_serial(uint64_t serial) {
  FcEndpoint* found = NULL;
  fc_mutex_lock(&table_lock);
  for (int32_t i = 0; i < table_size && !found; ++i) {
    if (table[i] && table[i]->client->serial == serial) found = take(table[i]);
  }
  fc_mutex_unlock(&table_lock);
  return found;
}

/* ---- life ---- */

static FcClient* new_client(void) {
  static uint64_t serials;
  FcClient* client = calloc(1, sizeof *client);
  if (!client) {
    fc_error_no_memory();
    return NULL;
  }
  client->slot = -1;
  client->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
  fc_mutex_init(&client->free_lock);
  return client;
}

/* Calls keep the endpoint alive, so the queue holds only requests that no thread waits for. */
static void free_client(FcEndpoint* ep) {
  FcClient* client = ep->client;
  leave_table(ep);
  fc_call_forget(&client->queue);
  fc_exports_delete(client);
  fc_mutex_destroy(&client->free_lock);
  free(client->frees);
  free(client);
}

static const FcSide client_side = {fc_remote_grace, fc_call_unsent, fc_call_abandon, free_client};

FcEndpoint* fc_client_endpoint_new(FcChannel* channel, const char* peer, const fc_wire_limits* limits) {
  FcClient* client = new_client();
  FcEndpoint* ep = client ? fc_endpoint_new(channel, peer, limits) : NULL;
  if (!ep) {
    free(client);
    return NULL;
  }
  ep->side = &client_side;
  ep->client = client;
  if (enter_table(ep) == 0) return ep;
  fc_endpoint_decref(ep);
  return NULL;
}
