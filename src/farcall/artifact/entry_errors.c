/* Error messages of an artifact's entries, and numbers that are passed for tensors: see entry.h. */

FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;

/* Marks an artifact, so that the loader notices when its manifest was stripped: farcall/library/_manifest.py. */
__attribute__((used)) static const char fc_mark[] = "farcall: the entry of an artifact";

void farcall_put(struct fc_text* text, const char* format, ...) {
  if (text->size >= sizeof text->data) return;
  va_list values;
  va_start(values, format);
  int n = vsnprintf(text->data + text->size, sizeof text->data - text->size, format, values);
  va_end(values);
  if (n > 0) text->size += (size_t)n;
}

int farcall_raise_text(const char* kind, const struct fc_text* text) {
  if (__farcall_runtime) {
    __farcall_runtime->error_set_raised_from_cstr(kind, text->data);
  } else if (TVMFFIErrorSetRaisedFromCStr) {
    TVMFFIErrorSetRaisedFromCStr(kind, text->data);
  }
  return -1;
}

#pragma weak TVMFFIErrorMoveFromRaised

/* Another runtime has no such function, and gets an error with the same kind and a longer message. */
FC_COLD static void fc_name_error(const char* place) {
  TVMFFIObjectHandle error = NULL;
  struct fc_text text = {.size = 0};
  char kind[64];
  if (!TVMFFIErrorMoveFromRaised || !TVMFFIErrorSetRaisedFromCStr) return;
  TVMFFIErrorMoveFromRaised(&error);
  if (!error) {
    farcall_put(&text, "%s: it failed without an error; let it set one", place);
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", text.data);
    return;
  }
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  snprintf(kind, sizeof kind, "%.*s", (int)cell->kind.size, cell->kind.data);
  farcall_put(&text, "%s: %.*s", place, (int)cell->message.size, cell->message.data);
  TVMFFIErrorSetRaisedFromCStr(kind, text.data);
  if (TVMFFIObjectDecRef) (void)TVMFFIObjectDecRef(error);
}

int farcall_region_failed(const char* place) {
  const struct FarcallRuntime* runtime = __farcall_runtime;
  if (!runtime) {
    fc_name_error(place);
  } else if (runtime->struct_size >= offsetof(struct FarcallRuntime, error_add_place) + sizeof(void*)) {
    runtime->error_add_place(place);
  }
  return -1;
}

FC_COLD static int fc_no_memory(const struct fc_function* about, const char* what, size_t bytes) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "`%s`: no memory for %s of %zu bytes; pass smaller arguments", about->name, what, bytes);
  return farcall_raise_text("MemoryError", &text);
}

FC_COLD static void fc_put_dtype(struct fc_text* text, DLDataType dtype) {
  static const char* const names[] = {
      [kDLInt] = "int",       [kDLUInt] = "uint",       [kDLFloat] = "float", [kDLOpaqueHandle] = "handle",
      [kDLBfloat] = "bfloat", [kDLComplex] = "complex", [kDLBool] = "bool",
  };
  if (dtype.code >= sizeof names / sizeof *names) {
    farcall_put(text, "dtype(code %d, %d bits)", dtype.code, dtype.bits);
  } else if (dtype.code == kDLBool && dtype.bits == 8) {
    farcall_put(text, "bool");
  } else {
    farcall_put(text, "%s%d", names[dtype.code], dtype.bits);
  }
  if (dtype.lanes != 1) farcall_put(text, "x%d", dtype.lanes);
}

void farcall_put_tensor(struct fc_text* text, const DLTensor* tensor) {
  fc_put_dtype(text, tensor->dtype);
  farcall_put(text, "[");
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (i == 16) {
      farcall_put(text, ", ... (rank %" PRId32 ")", tensor->ndim);
      break;
    }
    farcall_put(text, "%s%" PRId64, i ? ", " : "", tensor->shape[i]);
  }
  farcall_put(text, "]");
}

/* The shape and the number of the elements of strings; false: the value is of another form. */
static bool fc_strings_of(const TVMFFIAny* value, const TVMFFISeqCell** shape, const TVMFFISeqCell** texts) {
  const TVMFFISeqCell* both = fc_items(value);
  if (!both || both->size != 2) return false;
  const TVMFFIAny* items = both->data;
  *shape = fc_items(&items[0]);
  *texts = fc_items(&items[1]);
  if (!*shape || !*texts) return false;
  for (int64_t i = 0; i < (*shape)->size; ++i) {
    const TVMFFIAny* size = (const TVMFFIAny*)(*shape)->data + i;
    if (size->type_index != kTVMFFIInt || size->v_int64 < 0) return false;
  }
  return true;
}

static bool fc_bind_strings(const TVMFFIAny* got, const struct fc_parameter* want, int64_t* symbols) {
  const TVMFFISeqCell *shape = NULL, *texts = NULL;
  int64_t count = 1;
  bool bad = false, empty = false;
  if (!fc_strings_of(got, &shape, &texts) || shape->size != ~want->ndim) return false;
  for (int32_t i = 0; i < ~want->ndim; ++i) {
    const int64_t size = ((const TVMFFIAny*)shape->data)[i].v_int64;
    int64_t dim = want->dims[i];
    if (dim < 0) {
      if (symbols[~dim] < 0) symbols[~dim] = size;
      dim = symbols[~dim];
    }
    if (size != dim) return false;
    empty |= size == 0;
    count = fc_mul(&bad, count, size);
  }
  return empty ? texts->size == 0 : !bad && texts->size == count;
}

bool farcall_object(const TVMFFIAny* got, const struct fc_parameter* want, int64_t* symbols) {
  if (want->kind == FC_STRINGS) return fc_bind_strings(got, want, symbols);
  if (fc_items(got)) return true;
  if (want->kind != FC_OPTIONAL) return false;
  const DLTensor* tensor = fc_tensor(got);
  return tensor ? tensor->device.device_type == kDLCPU : got->type_index == kTVMFFINone;
}

void farcall_put_kind(struct fc_text* text, const TVMFFIAny* value) {
  static const char* const below[] = {"None",     "int", "bool",  "float",     "a pointer", "a dtype", "a device",
                                      "a tensor", "str", "bytes", "an object", "str",       "bytes"};
  static const char* const above[] = {"an object",       "str",      "bytes",    "an error", "a function",
                                      "a shape",         "a tensor", "an array", "a map",    "a module",
                                      "a Python object", "a list",   "a dict"};
  int32_t i = value->type_index;
  if (i >= 0 && (size_t)i < sizeof below / sizeof *below) {
    farcall_put(text, "%s", below[i]);
  } else if (i >= 64 && (size_t)(i - 64) < sizeof above / sizeof *above) {
    farcall_put(text, "%s", above[i - 64]);
  } else {
    farcall_put(text, "a value of type index %" PRId32, i);
  }
}

static bool fc_store_int(struct fc_scalar* out, DLDataType dtype, int64_t x) {
  switch (dtype.bits) {
    case 8: return dtype.code == kDLInt ? (out->value.i8 = (int8_t)x) == x : (out->value.u8 = (uint8_t)x) == x;
    case 16: return dtype.code == kDLInt ? (out->value.i16 = (int16_t)x) == x : (out->value.u16 = (uint16_t)x) == x;
    case 32: return dtype.code == kDLInt ? (out->value.i32 = (int32_t)x) == x : (out->value.u32 = (uint32_t)x) == x;
    case 64: out->value.i64 = x; return dtype.code == kDLInt || x >= 0;
    default: return false;
  }
}

static bool fc_store_float(struct fc_scalar* out, DLDataType dtype, double x) {
  if (dtype.bits == 32) out->value.f32 = (float)x;
  if (dtype.bits == 64) out->value.f64 = x;
  return dtype.bits == 32 || dtype.bits == 64;
}

bool farcall_scalar(const TVMFFIAny* got, const struct fc_parameter* want, struct fc_scalar* out) {
  bool right = false;
  if (want->ndim != 0 || want->dtype.lanes != 1) return false;
  if (got->type_index == kTVMFFIBool && want->dtype.code == kDLBool) {
    out->value.u8 = got->v_int64 != 0;
    right = want->dtype.bits == 8;
  } else if (got->type_index == kTVMFFIFloat && want->dtype.code == kDLFloat) {
    right = fc_store_float(out, want->dtype, got->v_float64);
  } else if (got->type_index == kTVMFFIInt && want->dtype.code == kDLFloat) {
    right = fc_store_float(out, want->dtype, (double)got->v_int64);
  } else if (got->type_index == kTVMFFIInt && (want->dtype.code == kDLInt || want->dtype.code == kDLUInt)) {
    right = fc_store_int(out, want->dtype, got->v_int64);
  }
  out->tensor = (DLTensor){.data = &out->value, .device = {kDLCPU, 0}, .dtype = want->dtype};
  return right;
}

/* Says where a tensor is that is not in the CPU's memory. */
FC_COLD static void fc_put_place(struct fc_text* text, DLDevice device) {
  enum { SESSION = 128 }; /* farcall numbers the devices of its first session from here, of the next from 256, ... */
  static const char names[][8] = {[kDLCPU] = "cpu",        [kDLCUDA] = "cuda",      [kDLOpenCL] = "opencl",
                                  [kDLVulkan] = "vulkan",  [kDLMetal] = "metal",    [kDLROCM] = "rocm",
                                  [kDLExtDev] = "ext_dev", [kDLHexagon] = "hexagon"};
  uint32_t type = (uint32_t)device.device_type, kind = type % SESSION;
  const char* name = kind < sizeof names / sizeof *names ? names[kind] : "";
  farcall_put(text, " on ");
  if (type >= SESSION) farcall_put(text, "remote[%" PRIu32 "]/", type / SESSION - 1);
  if (*name) farcall_put(text, "%s:%" PRId32, name, device.device_id);
  if (!*name) farcall_put(text, "device%" PRIu32 ":%" PRId32, kind, device.device_id);
  farcall_put(text,
              type >= SESSION ? ", in the memory of a server; pass its .numpy(), a copy" : "; copy it to the CPU");
}

/* Explains why a tensor of the right dtype and rank was refused: its device, a dim, or its missing memory. */
FC_COLD static void fc_put_cure(struct fc_text* text, const struct fc_function* about, int32_t index,
                                const DLTensor* got, const int64_t* symbols) {
  const struct fc_parameter* all = about->parameters;
  const struct fc_parameter* want = &all[index];
  if (got->device.device_type != kDLCPU) {
    fc_put_place(text, got->device);
    return;
  }
  for (int32_t i = 0; i < want->ndim; ++i) {
    int64_t dim = want->dims[i] < 0 ? symbols[~want->dims[i]] : want->dims[i];
    if (got->shape[i] < 0) {
      farcall_put(text, "; a size cannot be negative");
      return;
    }
    if (dim == got->shape[i]) continue;
    farcall_put(text, "; dimension %" PRId32 " must be %" PRId64, i, dim);
    if (want->dims[i] >= 0) return;
    for (int32_t j = 0; j <= index; ++j) {
      for (int32_t k = 0; k < fc_rank(&all[j]); ++k) {
        if (all[j].dims[k] != want->dims[i]) continue;
        farcall_put(text, ", the `%s` of argument %" PRId32 " `%s`", about->symbols[~want->dims[i]], j + 1,
                    all[j].name);
        return;
      }
    }
    return;
  }
  farcall_put(text, " without memory; pass a tensor that holds data");
}

/* Describes an object that was refused, and says what to pass. */
FC_COLD static int fc_refuse_object(struct fc_text* text, const struct fc_parameter* want, const TVMFFIAny* got) {
  const TVMFFISeqCell *shape = NULL, *texts = NULL;
  const DLTensor* tensor = fc_tensor(got);
  if (want->kind == FC_STRINGS && fc_strings_of(got, &shape, &texts)) {
    farcall_put(text, "%" PRId64 " strings of shape [", texts->size);
    for (int64_t i = 0; i < shape->size && i < 16; ++i) {
      farcall_put(text, "%s%" PRId64, i ? ", " : "", ((const TVMFFIAny*)shape->data)[i].v_int64);
    }
    farcall_put(text, "]; pass as many as the sizes say, of this rank");
    return farcall_raise_text("ValueError", text);
  }
  if (tensor) farcall_put_tensor(text, tensor);
  else farcall_put_kind(text, got);
  if (tensor && tensor->device.device_type != kDLCPU) fc_put_place(text, tensor->device);
  else if (want->kind == FC_STRINGS) farcall_put(text, "; pass an Array of the shape and the strings, each an Array");
  else farcall_put(text, "; pass %s", want->kind == FC_SEQUENCE ? "an Array" : "None, a tensor or an Array");
  return farcall_raise_text("TypeError", text);
}

/* Binds the symbols in the shape of an argument that was accepted. */
static void fc_bind_again(const struct fc_parameter* want, const TVMFFIAny* got, int64_t* symbols) {
  if (want->kind == FC_TENSOR) (void)fc_bind(want, fc_tensor(got), symbols);
  else (void)farcall_object(got, want, symbols);
}

int farcall_refuse(const struct fc_function* about, int32_t index, const TVMFFIAny* args, int64_t* symbols) {
  const struct fc_parameter* all = about->parameters;
  const struct fc_parameter* want = &all[index];
  const DLTensor* got = fc_tensor(&args[index]);
  struct fc_text text = {.size = 0};
  farcall_put(&text, "argument %" PRId32 " `%s` of `%s`: expected %s", index + 1, want->name, about->name, want->type);
  for (int32_t k = 0; k < about->num_symbols; ++k) symbols[k] = -1;
  for (int32_t j = 0; j < index; ++j) fc_bind_again(&all[j], &args[j], symbols);
  const char* separator = " with ";
  for (int32_t k = 0; k < about->num_symbols; ++k) {
    bool used = false;
    for (int32_t i = 0; i < fc_rank(want); ++i) used |= want->dims[i] == ~(int64_t)k;
    if (!used || symbols[k] < 0) continue;
    farcall_put(&text, "%s%s=%" PRId64, separator, about->symbols[k], symbols[k]);
    separator = ", ";
  }
  farcall_put(&text, ", got ");
  if (want->kind != FC_TENSOR) return fc_refuse_object(&text, want, &args[index]);
  if (!got) {
    farcall_put_kind(&text, &args[index]);
    farcall_put(&text, "; pass an array or a tensor");
    return farcall_raise_text("TypeError", &text);
  }
  farcall_put_tensor(&text, got);
  if (!fc_same_dtype(got->dtype, want->dtype)) {
    farcall_put(&text, "; convert it to ");
    fc_put_dtype(&text, want->dtype);
    return farcall_raise_text("TypeError", &text);
  }
  if (got->ndim != want->ndim) {
    farcall_put(&text, "; reshape it to rank %" PRId32, want->ndim);
    return farcall_raise_text("ValueError", &text);
  }
  (void)fc_bind(want, got, symbols);
  fc_put_cure(&text, about, index, got, symbols);
  return farcall_raise_text("ValueError", &text);
}

int farcall_refuse_count(const struct fc_function* about, int32_t got) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "`%s`: expected %" PRId32 " argument%s (", about->name, about->count,
              about->count == 1 ? "" : "s");
  for (int32_t i = 0; i < about->count; ++i) {
    farcall_put(&text, "%s%s: %s", i ? ", " : "", about->parameters[i].name, about->parameters[i].type);
  }
  farcall_put(&text, "), got %" PRId32, got);
  return farcall_raise_text("TypeError", &text);
}

void farcall_put_symbols(struct fc_text* text, const struct fc_function* about, const int64_t* symbols) {
  const char* separator = " with ";
  for (int32_t k = 0; k < about->num_symbols; ++k) {
    if (symbols[k] < 0 && k >= about->num_symbols - about->num_late) continue; /* not yet known */
    farcall_put(text, "%s%s=%" PRId64, separator, about->symbols[k], symbols[k]);
    separator = ", ";
  }
}

static bool fc_is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c & 0x80);
}

/* Whether a name is a word of a text. */
FC_COLD static bool fc_mentions(const char* text, const char* name) {
  bool inside = false; /* a word that began before */
  for (; *text; ++text) {
    size_t i = 0;
    while (name[i] && text[i] == name[i]) ++i;
    if (!inside && !name[i] && !fc_is_word(text[i])) return true;
    inside = fc_is_word(*text);
  }
  return false;
}

int farcall_refuse_sizes(const struct fc_function* about, const char* problem, const int64_t* symbols) {
  struct fc_text text = {.size = 0};
  farcall_put(&text, "`%s`: %s", about->name, problem);
  int32_t named = 0; /* a model may have hundreds of symbols: those of which the problem speaks, if it does */
  for (int32_t k = 0; k < about->num_symbols; ++k) {
    if (!fc_mentions(problem, about->symbols[k])) continue;
    farcall_put(&text, "%s%s=%" PRId64, named++ ? ", " : " with ", about->symbols[k], symbols[k]);
  }
  if (!named) farcall_put_symbols(&text, about, symbols);
  farcall_put(&text, "; pass arguments of other sizes");
  return farcall_raise_text("ValueError", &text);
}
