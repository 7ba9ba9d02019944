/* The small server: sessions for machines without Python (see native/server/main.c). */
#ifndef FARCALL_SERVER_SERVER_H_
#define FARCALL_SERVER_SERVER_H_

/*
 * Registers the functions that the server exports, by TVMFFIFunctionSetGlobal. A program defines it beside its
 * functions; without it, the server exports nothing. 0, or -1 with an error.
 */
int farcall_server_setup(void);

#endif /* FARCALL_SERVER_SERVER_H_ */
