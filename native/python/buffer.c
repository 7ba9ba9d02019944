/*
 * Arrays with the buffer protocol beside __dlpack__, such as jax's on the CPU. The buffer protocol runs no Python
 * code, and takes half the time. For a dtype that it cannot express, __dlpack__ is used.
 */
#include "python/args.h"

typedef struct {
  char code;
  uint8_t dl; /* DLDataTypeCode */
} Format;

/* The letters of the struct module; the buffer has the sizes. */
static const Format formats[] = {
    {'b', kDLInt},  {'h', kDLInt},   {'i', kDLInt},   {'l', kDLInt},   {'q', kDLInt},  {'n', kDLInt},
    {'?', kDLBool}, {'B', kDLUInt},  {'H', kDLUInt},  {'I', kDLUInt},  {'L', kDLUInt}, {'Q', kDLUInt},
    {'N', kDLUInt}, {'e', kDLFloat}, {'f', kDLFloat}, {'d', kDLFloat},
};

static const char* skip_native_order(const char* text) {
  const char native = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';
  return *text == '=' || *text == '@' || *text == native ? text + 1 : text;
}

static bool read_format(const Py_buffer* buffer, DLDataType* out) {
  const char* text = buffer->format ? skip_native_order(buffer->format) : "B";
  bool complex_number = *text == 'Z';
  text += complex_number;
  if (!text[0] || text[1] || buffer->itemsize < 1 || buffer->itemsize > 16) return false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    if (formats[i].code != *text || (complex_number && formats[i].dl != kDLFloat)) continue;
    *out = (DLDataType){complex_number ? kDLComplex : formats[i].dl, (uint8_t)(8 * buffer->itemsize), 1};
    return true;
  }
  return false;
}

static bool describe(const Py_buffer* buffer, DLTensor* dl, int64_t* strides) {
  if (buffer->ndim > FC_INLINE_DIMS || !buffer->strides || !read_format(buffer, &dl->dtype)) return false;
  for (int d = 0; d < buffer->ndim; ++d) {
    if (buffer->strides[d] % buffer->itemsize) return false;
    strides[d] = buffer->strides[d] / buffer->itemsize;
  }
  dl->data = buffer->buf;
  dl->device = (DLDevice){kDLCPU, 0};
  dl->ndim = buffer->ndim;
  dl->byte_offset = 0;
  dl->shape = (int64_t*)buffer->shape;
  dl->strides = strides;
  return true;
}

/* 1: done; 0: the buffer has no DLTensor form; -1 with an exception. The memoryview owns the memory. */
static int set_view(FcArgs* args, int32_t i, PyObject* view, TVMFFIAny* out) {
  DLTensor* dl = &args->slots[i].dl;
  if (!describe(PyMemoryView_GET_BUFFER(view), dl, fc_dims_of(args, i))) return 0;
  out->type_index = kTVMFFIDLTensorPtr;
  out->v_ptr = dl;
  return 1;
}

static int lend_view(FcArgs* args, PyObject* view, TVMFFIAny* out) {
  FcTensorObj* tensor = fc_pool_take();
  if (!tensor) return -1;
  int64_t* shape = fc_pool_dims(tensor);
  if (!describe(PyMemoryView_GET_BUFFER(view), &tensor->dl, shape + FC_INLINE_DIMS)) {
    fc_pool_put(tensor);
    return 0;
  }
  for (int d = 0; d < tensor->dl.ndim; ++d) shape[d] = tensor->dl.shape[d];
  tensor->dl.shape = shape;
  tensor->flags = PyMemoryView_GET_BUFFER(view)->readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return fc_lend(args, tensor, view, out) == 0 ? 1 : -1;
}

static int set_buffer(FcArgs* args, const FcSetter* setter, int32_t i, PyObject* object, TVMFFIAny* out) {
  PyObject* view = fc_owned_mode(args) ? NULL : PyMemoryView_FromObject(object);
  if (!view) {
    PyErr_Clear();
    return fc_set_dlpack(args, setter, i, object, out);
  }
  if (fc_args_keep(args, fc_release_python, view) != 0) return -1;
  if (fc_check_writes(args, i, PyMemoryView_GET_BUFFER(view)->readonly) != 0) return -1;
  int rc = fc_wants_view(args, i) ? set_view(args, i, view, out) : lend_view(args, view, out);
  if (rc == 0) return fc_set_dlpack(args, setter, i, object, out);
  if (rc > 0) fc_note_importer(args, setter->importer);
  return rc > 0 ? 0 : -1;
}

int fc_set_plain_buffer(FcArgs* args, int32_t i, PyObject* object) {
  if (!PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__dlpack__")) return 0;
  PyObject* view = PyMemoryView_FromObject(object);
  if (!view || fc_args_keep(args, fc_release_python, view) != 0) return -1;
  return set_view(args, i, view, &args->any[i]);
}

FcSetFunction fc_buffer_setter(PyTypeObject* type) {
  return type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer ? set_buffer : NULL;
}
