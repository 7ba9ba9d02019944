/* The sessions of a DSP are those of the small server. */
#ifndef FARCALL_SERVER_DSP_SESSIONS_H_
#define FARCALL_SERVER_DSP_SESSIONS_H_

/* Gets ready to serve sessions behind the interface farcall_dsp, by the words of a command; of the server's options,
 * --memory counts, which is what all sessions may use together. FC_OPTIONS_GO_ON, or an exit status. */
int fc_dsp_prepare(int argc, char** argv);

#endif /* FARCALL_SERVER_DSP_SESSIONS_H_ */
