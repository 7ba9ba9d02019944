/* The memory of a session: the program's allocator gives no more than a budget. */
#ifndef FARCALL_SERVER_BUDGET_H_
#define FARCALL_SERVER_BUDGET_H_

#include <stdbool.h>
#include <stdint.h>

/* From now on, the program holds at most this many bytes of allocated memory; beyond, malloc() returns NULL. */
void fc_budget_limit(uint64_t bytes);
/* The bytes that the program holds now. */
uint64_t fc_budget_used(void);

/* Counts memory that another allocator gives. False: the budget has no room for it. */
bool fc_budget_take(uint64_t bytes);
void fc_budget_give(uint64_t bytes);

#endif /* FARCALL_SERVER_BUDGET_H_ */
