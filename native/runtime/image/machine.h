/* What differs between machines when an image is loaded: the numbers of their relocations, and their caches. */
#ifndef FARCALL_RUNTIME_IMAGE_MACHINE_H_
#define FARCALL_RUNTIME_IMAGE_MACHINE_H_

#include "runtime/image/elf.h"

typedef struct {
  uint32_t type;
  const char* name;
} FcMachineType;

/* The numbers of the three actions; 0 where a machine has none. */
typedef struct {
  const char* name;
  const char* target;          /* to build for, of farcall build */
  uint16_t number;             /* e_machine */
  uint32_t relative;           /* base + addend */
  uint32_t slots[2];           /* symbol */
  uint32_t absolute;           /* symbol + addend */
  const FcMachineType* others; /* those that are refused, by name; ends with type 0 */
} FcMachine;

/* This machine. A machine without a table has number 0, which no file has. */
extern const FcMachine fc_machine;

/* Finds a symbol that the image imports; NULL when there is none. */
typedef void* (*FcMachineFind)(void* context, const char* name);

/* Checks every relocation of the image. False with its problem. */
bool fc_machine_check(FcElf* elf);
/* Relocates the copy of the image at `memory`. False with its problem: a symbol is missing. */
bool fc_machine_relocate(FcElf* elf, char* memory, FcMachineFind find, void* context);

#endif /* FARCALL_RUNTIME_IMAGE_MACHINE_H_ */
