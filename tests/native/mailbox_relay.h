#ifndef FARCALL_TESTS_NATIVE_MAILBOX_RELAY_H_
#define FARCALL_TESTS_NATIVE_MAILBOX_RELAY_H_

/* Relays one session of the mailbox, then returns the exit status of the program. */
int relay_mailbox(const char* place);
/* From now on, an emulated DSP relays its session. */
void relay_sessions(void);

#endif /* FARCALL_TESTS_NATIVE_MAILBOX_RELAY_H_ */
