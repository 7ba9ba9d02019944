/* The error of a kException. It names the hop that raised it, even if TVM servers are among the hops. */
#include <stdio.h>
#include <stdlib.h>

#include "session/client/remote.h"
#include "session/error_text.h"

/* ---- the prefixes of TVM servers among the hops ---- */

static const char arrow[] = " -> "; /* separates the hops in a peer's name */
static const char caught[] = "Error caught from RPC call:\n";

static int count_hops(const char* way) {
  int n = 1;
  while ((way = strstr(way, arrow))) way += sizeof arrow - 1, ++n;
  return n;
}

/* Finds the n-th hop; returns the size of its URL. */
static int nth_hop(const char* way, int n, const char** url) {
  while (--n > 0 && strstr(way, arrow)) way = strstr(way, arrow) + sizeof arrow - 1;
  const char* end = strstr(way, arrow);
  *url = way;
  return (int)(end ? (size_t)(end - way) : strlen(way));
}

typedef struct Said { /* the parts of an exception's text */
  char kind[FC_KIND_MAX];
  const char* message; /* the text after the kind */
  const char* place;   /* "(URL): ..."; NULL when the message names no hop */
  const char* words;   /* the text after kind and hop */
  int hop;             /* the hop that raised it; 1 is the nearest server */
} Said;

static void read_said(const char* text, int speaker, Said* said) {
  said->message = said->words = fc_error_split_kind(text, said->kind);
  said->place = NULL;
  int n = fc_error_read_hop(said->message, &said->place);
  const char* end = n ? strstr(said->place, "): ") : NULL;
  said->hop = speaker + (n ? n - 1 : 0);
  if (end) said->words = end + 3;
}

/* Removes the wrapping that each TVM server adds to an error that it passes on (facts A.11). Returns whether there was
 * any. */
static bool unwrap(const char* text, int hops, Said* said) {
  bool wrapped = false;
  read_said(text, 1, said);
  while (said->hop < hops && strcmp(said->kind, "RPCError") == 0 &&
         strncmp(said->words, caught, sizeof caught - 1) == 0) {
    read_said(said->words + sizeof caught - 1, said->hop + 1, said);
    wrapped = true;
  }
  return wrapped;
}

/* "hop 3 (URL): message", the form that farcall's servers use. The caller must free() it; NULL without memory. */
static char* name_place(const char* way, const Said* said) {
  const char* url;
  int url_size = nth_hop(way, said->hop, &url);
  size_t size = strlen(said->message) + (size_t)url_size + 32;
  char* text = malloc(size);
  if (text && said->place) snprintf(text, size, "hop %d %s", said->hop, said->place);
  else if (text) snprintf(text, size, "hop %d (%.*s): %s", said->hop, url_size, url, said->message);
  return text;
}

/* ---- the error ---- */

/* Raises the error. A crashed worker, and a session that ran out of time, end the connection. */
static int raise_said(FcEndpoint* ep, const char* kind, const char* message) {
  if (strcmp(kind, "RPCSessionTimeoutError") == 0) return fc_endpoint_lose(ep, "DeadlineExceededError", "%s", message);
  if (fc_error_is_last_word(kind)) return fc_endpoint_lose(ep, kind, "%s", message);
  fc_error_set(kind, message);
  return -1;
}

FC_COLD int fc_remote_error(FcEndpoint* ep, const fc_wire_packet* packet) {
  if (packet->num_args != 1 || !fc_wire_is_text(packet->args[0].type_index)) {
    return fc_endpoint_lose(ep, "ProtocolError", "%s sent a kException without a text", ep->peer);
  }
  Said said;
  bool wrapped = unwrap(((const TVMFFIByteArray*)packet->args[0].v_ptr)->data, count_hops(ep->peer), &said);
  char* named = wrapped ? name_place(ep->peer, &said) : NULL;
  raise_said(ep, said.kind, named ? named : said.message);
  free(named);
  return -1;
}
