/*
 * The small server for machines without an operating system: one session, bytes in and bytes out, in memory that the
 * program gives. It needs no files, sockets, threads or processes, and no C library (native/server/bare/libc.c). The
 * program moves the bytes: from a UART, a mailbox, a call of FastRPC.
 */
#ifndef FARCALL_SERVER_BARE_BARE_H_
#define FARCALL_SERVER_BARE_BARE_H_

#include <stddef.h>

/*
 * Begins a session. `memory` holds everything that the server and its clients allocate; it is given once, at the first
 * call, and later calls go on with it. Set fc_bare_entropy and, for times, fc_bare_clock before (native/platform/port.h), and
 * register functions as farcall_server_setup does (native/server/server.h). 0, or -1: there is too little memory.
 */
int fc_bare_start(void* memory, size_t bytes);
/* Takes bytes from the client, and serves the requests that are complete. 0: the session goes on; 1: the client has
 * ended it; -1: it broke the protocol, and fc_bare_send has the last words for it. */
int fc_bare_receive(const void* bytes, size_t n);
/* Copies bytes for the client, at most `room`; call it until it returns 0. */
size_t fc_bare_send(void* out, size_t room);
/* Ends the session and frees what its client holds. fc_bare_start may follow. */
void fc_bare_stop(void);

/* The heap: malloc() and its kin take from it. native/server/bare/heap.c */
void fc_heap_give(void* memory, size_t bytes);
size_t fc_heap_used(void);

#endif /* FARCALL_SERVER_BARE_BARE_H_ */
