/* The builtin functions of graphs: the loader of their kind. */
#ifndef FARCALL_RUNTIME_GRAPH_FUNCTIONS_H_
#define FARCALL_RUNTIME_GRAPH_FUNCTIONS_H_

#include "runtime/builtins.h"

extern const FcBuiltin fc_graph_builtins[];

#endif /* FARCALL_RUNTIME_GRAPH_FUNCTIONS_H_ */
