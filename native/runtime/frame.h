/* The frame around the bytes of a custom module: docs/spec/blob.md. farcall/library/_blob.py has it in Python. */
#ifndef FARCALL_RUNTIME_FRAME_H_
#define FARCALL_RUNTIME_FRAME_H_

#include "runtime/runtime.h"

enum { FC_FRAME_VERSION = 1, FC_FRAME_ALIGNMENT = 64, FC_FRAME_FEATURES = 64, FC_FRAME_NAME = 64 };

/* Everything is borrowed from the frame's bytes. */
typedef struct {
  TVMFFIByteArray kind;
  TVMFFIByteArray producer; /* "package version", or anything */
  TVMFFIByteArray data;
  TVMFFIByteArray features[FC_FRAME_FEATURES];
  uint32_t version; /* of the kind */
  uint32_t feature_count;
} FcFrame;

/* Whether a text is 1 to 64 letters, digits and `_.-`, as kinds and features are. */
bool fc_frame_is_name(TVMFFIByteArray text);
/* Whether bytes claim to be a frame. */
bool fc_frame_begins(const char* data, size_t size);
/* Reads and checks a frame, which is exactly these bytes. -1 with an ArtifactError; `kind` is for its message. */
int fc_frame_read(TVMFFIByteArray kind, const char* data, size_t size, FcFrame* out);
/* Whether a feature is one of the runtime, and not of a loader. */
bool fc_frame_asks_runtime(TVMFFIByteArray feature);
/* The first feature that begins with "farcall." and that this runtime does not have; NULL when there is none. */
const TVMFFIByteArray* fc_frame_missing(const FcFrame* frame);
/* The package that the producer names, for `pip install`; size 0 when it names none. */
TVMFFIByteArray fc_frame_package(const FcFrame* frame);

#endif /* FARCALL_RUNTIME_FRAME_H_ */
