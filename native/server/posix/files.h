/*
 * Files of a session: a folder of its own below the workpath, which ends with it, and a store beside it with contents
 * that earlier sessions of the same token uploaded.
 */
#ifndef FARCALL_SERVER_POSIX_FILES_H_
#define FARCALL_SERVER_POSIX_FILES_H_

#include <sys/types.h>

#include "server/session.h"

enum { FC_FILE_NAME = 255, FC_FILE_PARTS = 4 };

/* A file that is not whole yet: it is written under another name, and renamed. */
typedef struct FcFilePart {
  int fd; /* -1: free */
  int64_t next, total;
  char name[FC_FILE_NAME + 1], beside[24];
} FcFilePart;

typedef struct FcFolder {
  const char* workpath;
  int fd, store; /* descriptors of the two folders */
  uint64_t limit; /* bytes of all files of the session */
  uint32_t made;  /* files begun, which names them while they are not whole */
  FcFilePart parts[FC_FILE_PARTS];
} FcFolder;

/* The functions; the `folder` of their FcClient is an FcFolder. */
extern const FcServed fc_served_files[];

/* Makes the folder. -1 with an error. */
int fc_folder_open(FcFolder* folder, const FcOptions* options, const char* token);
void fc_folder_close(FcFolder* folder);
/* Removes the folder of a worker that has died. */
void fc_folder_remove(const char* workpath, pid_t pid);
/* Opens a file of the folder for reading. Its descriptor, or -1 with an error. *size: its bytes. */
int fc_folder_open_file(const FcFolder* folder, TVMFFIByteArray name, int64_t* size);

/* All bytes of a file of the folder, which the caller must free(). NULL with an error. */
uint8_t* fc_folder_read(const FcFolder* folder, TVMFFIByteArray name, size_t* size);

/* tvm.rpc.server.load_module(name): the module of a shared object. See server/posix/load.c. */
int fc_folder_load_module(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);

#endif /* FARCALL_SERVER_POSIX_FILES_H_ */
