/* Dtypes and devices as text. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/runtime.h"

/* ---- dtypes ---- */

typedef struct {
  const char* name;
  uint8_t code;
  uint8_t bits; /* used when the text has no number */
  bool fixed;   /* the name includes the number of bits: no number follows, and none is printed */
} Base;

/* A name must come before its prefixes. The first entry of a code is the one that is printed. */
static const Base bases[] = {
    {"float8_e4m3b11fnuz", kDLFloat8_e4m3b11fnuz, 8, true},
    {"float8_e4m3fnuz", kDLFloat8_e4m3fnuz, 8, true},
    {"float8_e5m2fnuz", kDLFloat8_e5m2fnuz, 8, true},
    {"float8_e8m0fnu", kDLFloat8_e8m0fnu, 8, true},
    {"float8_e4m3fn", kDLFloat8_e4m3fn, 8, true},
    {"float8_e3m4", kDLFloat8_e3m4, 8, true},
    {"float8_e4m3", kDLFloat8_e4m3, 8, true},
    {"float8_e5m2", kDLFloat8_e5m2, 8, true},
    {"float6_e2m3fn", kDLFloat6_e2m3fn, 6, true},
    {"float6_e3m2fn", kDLFloat6_e3m2fn, 6, true},
    {"float4_e2m1fn", kDLFloat4_e2m1fn, 4, true},
    {"bfloat", kDLBfloat, 16, false},
    {"complex", kDLComplex, 64, false},
    {"handle", kDLOpaqueHandle, 64, false},
    {"float", kDLFloat, 32, false},
    {"uint", kDLUInt, 32, false},
    {"bool", kDLBool, 8, false},
    {"int", kDLInt, 32, false},
    {"bf", kDLBfloat, 16, false},
    {"f", kDLFloat, 32, false},
    {"u", kDLUInt, 32, false},
    {"i", kDLInt, 32, false},
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Reads digits; -1 when there are none or the number is above `limit`. */
static long read_number(const char** at, const char* end, long limit) {
  long value = -1;
  for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
    value = (value < 0 ? 0 : value) * 10 + (**at - '0');
    if (value > limit) return -1;
  }
  return value;
}

static const char scalable[] = "vscalex";

/* "x4" has 4 lanes, "xvscalex4" a multiple of 4 that the machine chooses, which DLPack writes as -4. */
static bool parse_lanes(const char* at, const char* end, DLDataType* out) {
  const size_t word = sizeof scalable - 1;
  if (at == end) return true;
  if (*at == '_') ++at;
  if (at == end || *at != 'x') return false;
  ++at;
  bool is_scalable = (size_t)(end - at) > word && memcmp(at, scalable, word) == 0;
  if (is_scalable) at += word;
  long lanes = read_number(&at, end, INT16_MAX);
  if (lanes < 1 || at != end) return false;
  out->lanes = (uint16_t)(is_scalable ? -lanes : lanes);
  return true;
}

static bool parse_tail(const Base* base, const char* at, const char* end, DLDataType* out) {
  *out = (DLDataType){base->code, base->bits, 1};
  if (!base->fixed && at < end && *at >= '0' && *at <= '9') {
    long bits = read_number(&at, end, 255);
    if (bits < 1) return false;
    out->bits = (uint8_t)bits;
  }
  return parse_lanes(at, end, out);
}

/* Length of the base's name at the start of the text. Small floats also have short names: fp8_e5m2, f8_e5m2. */
static size_t length_of_base(const Base* base, const char* text, size_t size) {
  static const char* const beginnings[] = {"float", "fp", "f"};
  size_t full = strlen(base->name), whole = strlen(beginnings[0]);
  if (size >= full && memcmp(text, base->name, full) == 0) return full;
  for (size_t i = 1; base->fixed && i < COUNT(beginnings); ++i) {
    size_t begin = strlen(beginnings[i]), length = full - whole + begin;
    if (size < length || memcmp(text, beginnings[i], begin) != 0) continue;
    if (memcmp(text + begin, base->name + whole, full - whole) == 0) return length;
  }
  return 0;
}

bool fc_dtype_parse(const char* text, size_t size, DLDataType* out) {
  if (size == 0 || (size == 4 && memcmp(text, "void", 4) == 0)) {
    *out = (DLDataType){kDLOpaqueHandle, 0, 0};
    return true;
  }
  for (size_t i = 0; i < COUNT(bases); ++i) {
    size_t length = length_of_base(&bases[i], text, size);
    if (length == 0) continue;
    if (parse_tail(&bases[i], text + length, text + size, out)) return true;
  }
  return false;
}

static const Base* base_of(uint8_t code) {
  for (size_t i = 0; i < COUNT(bases); ++i) {
    if (bases[i].code == code) return &bases[i];
  }
  return NULL;
}

static bool is_void(DLDataType dtype) { return dtype.code == kDLOpaqueHandle && dtype.bits == 0 && dtype.lanes == 0; }

static void print_lanes(int lanes, char* out, size_t size) {
  if (lanes < 0) {
    snprintf(out, size, "x%s%d", scalable, -lanes);
  } else if (lanes > 1) {
    snprintf(out, size, "x%d", lanes);
  }
}

/* Handles are printed without a size. */
void fc_dtype_print(DLDataType dtype, char out[FC_NAME_MAX]) {
  const Base* base = base_of(dtype.code);
  if (!base) {
    snprintf(out, FC_NAME_MAX, "custom[%u]%u", dtype.code, dtype.bits);
  } else if (dtype.code == kDLOpaqueHandle) {
    snprintf(out, FC_NAME_MAX, "%s", is_void(dtype) ? "void" : base->name);
    return;
  } else if (base->fixed || (dtype.bits == base->bits && dtype.code == kDLBool)) {
    snprintf(out, FC_NAME_MAX, "%s", base->name);
  } else {
    snprintf(out, FC_NAME_MAX, "%s%u", base->name, dtype.bits);
  }
  size_t used = strlen(out);
  print_lanes((int16_t)dtype.lanes, out + used, FC_NAME_MAX - used);
}

int TVMFFIDataTypeFromString(const TVMFFIByteArray* str, DLDataType* out) {
  if (fc_dtype_parse(str->data, str->size, out)) return 0;
  fc_error_format("ValueError", "unknown dtype `%.*s`", (int)str->size, str->data);
  return -1;
}

/* TVM FFI prints void as an empty text. */
int TVMFFIDataTypeToString(const DLDataType* dtype, TVMFFIAny* out) {
  char text[FC_NAME_MAX] = "";
  if (!is_void(*dtype)) fc_dtype_print(*dtype, text);
  return fc_any_from_bytes(kTVMFFIStr, text, strlen(text), out);
}

/* ---- devices ---- */

typedef struct {
  const char* name;
  int32_t type;
} DeviceName;

/* The first name of a type is the one that is printed. */
static const DeviceName device_names[] = {
    {"cpu", kDLCPU},
    {"cuda", kDLCUDA},
    {"cuda_host", kDLCUDAHost},
    {"opencl", kDLOpenCL},
    {"vulkan", kDLVulkan},
    {"metal", kDLMetal},
    {"mps", kDLMetal},
    {"vpi", kDLVPI},
    {"rocm", kDLROCM},
    {"rocm_host", kDLROCMHost},
    {"ext_dev", kDLExtDev},
    {"cuda_managed", kDLCUDAManaged},
    {"oneapi", kDLOneAPI},
    {"webgpu", kDLWebGPU},
    {"wgpu", kDLWebGPU},
    {"hexagon", kDLHexagon},
    {"maia", kDLMAIA},
    {"trn", kDLTrn},
};

bool fc_device_parse(const char* text, size_t size, DLDevice* out) {
  const char* end = text + size;
  const char* colon = memchr(text, ':', size);
  size_t length = colon ? (size_t)(colon - text) : size;
  long id = 0;
  if (colon) {
    const char* at = colon + 1;
    id = read_number(&at, end, INT32_MAX);
    if (id < 0 || at != end) return false;
  }
  for (size_t i = 0; i < COUNT(device_names); ++i) {
    if (strlen(device_names[i].name) != length || memcmp(device_names[i].name, text, length) != 0) continue;
    *out = (DLDevice){(DLDeviceType)device_names[i].type, (int32_t)id};
    return true;
  }
  return false;
}

static const char* device_name(int32_t type) {
  for (size_t i = 0; i < COUNT(device_names); ++i) {
    if (device_names[i].type == type) return device_names[i].name;
  }
  return NULL;
}

void fc_device_print(DLDevice device, char out[FC_NAME_MAX]) {
  int type = (int)device.device_type;
  int session = type / FC_REMOTE_STEP - 1;
  const char* name = device_name(type < 0 ? type : type % FC_REMOTE_STEP);
  char unknown[24];
  if (!name) {
    snprintf(unknown, sizeof unknown, "device%d", type);
    name = unknown;
  }
  if (session >= 0) {
    snprintf(out, FC_NAME_MAX, "remote[%d]/%s:%d", session, name, device.device_id);
  } else {
    snprintf(out, FC_NAME_MAX, "%s:%d", name, device.device_id);
  }
}
