/* Tensor and Python's buffer protocol: memoryview(tensor) shares the memory of a tensor on the CPU, without numpy. */
#include "python/convert.h"

typedef struct {
  TVMFFIObject* tensor; /* owned */
  Py_ssize_t dims[];    /* the shape, then the strides in bytes */
} Exported;

/* The letter of the struct module; NULL: it has none. */
static const char* format_of(DLDataType dtype) {
  static const struct {
    uint8_t code, bits;
    const char* letter;
  } letters[] = {{kDLInt, 8, "b"},    {kDLInt, 16, "h"},   {kDLInt, 32, "i"},   {kDLInt, 64, "q"},
                 {kDLUInt, 8, "B"},   {kDLUInt, 16, "H"},  {kDLUInt, 32, "I"},  {kDLUInt, 64, "Q"},
                 {kDLFloat, 16, "e"}, {kDLFloat, 32, "f"}, {kDLFloat, 64, "d"}, {kDLBool, 8, "?"}};
  for (size_t i = 0; i < sizeof letters / sizeof *letters; ++i) {
    if (dtype.code == letters[i].code && dtype.bits == letters[i].bits && dtype.lanes == 1) return letters[i].letter;
  }
  return NULL;
}

static FC_COLD int refuse_dtype(DLDataType dtype) {
  char name[FC_NAME_MAX];
  fc_dtype_print(dtype, name);
  PyErr_Format(PyExc_BufferError, "Python's buffers have no elements of %s; take tensor.numpy()", name);
  return -1;
}

static FC_COLD int refuse_device(DLDevice device) {
  char name[FC_NAME_MAX];
  fc_device_print(device, name);
  PyErr_Format(PyExc_BufferError, "the tensor's memory is on %s; copy it first: tensor.to(\"cpu\")", name);
  return -1;
}

static int refuse(const char* problem) {
  PyErr_SetString(PyExc_BufferError, problem);
  return -1;
}

static int check_request(const DLTensor* dl, bool read_only, int flags) {
  bool any_layout = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
  bool columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
  bool rows = !any_layout || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
              (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
  if ((flags & PyBUF_WRITABLE) && read_only) return refuse("the tensor is read-only");
  if (dl->device.device_type != kDLCPU) return refuse_device(dl->device);
  if (rows && !fc_is_contiguous(dl)) return refuse("the tensor is not row-major");
  return columns && dl->ndim > 1 ? refuse("the tensor is not column-major") : 0;
}

static Exported* dims_of(const DLTensor* dl, Py_ssize_t itemsize) {
  Exported* out = PyMem_Malloc(sizeof *out + 2 * (size_t)dl->ndim * sizeof *out->dims);
  for (int32_t d = 0; out && d < dl->ndim; ++d) {
    out->dims[d] = (Py_ssize_t)dl->shape[d];
    out->dims[dl->ndim + d] = (Py_ssize_t)dl->strides[d] * itemsize;
  }
  return out ? out : (Exported*)PyErr_NoMemory();
}

int fc_tensor_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  FcTensor* tensor = (FcTensor*)self;
  const DLTensor* dl = fc_tensor_view(self);
  view->obj = NULL;
  if (!dl) return -1;
  bool read_only = fc_tensor_flags(tensor->object) & DLPACK_FLAG_BITMASK_READ_ONLY;
  const char* format = format_of(dl->dtype);
  Py_ssize_t itemsize = dl->dtype.bits / 8;
  if (check_request(dl, read_only, flags) != 0) return -1;
  if (!format) return refuse_dtype(dl->dtype);
  Exported* exported = dims_of(dl, itemsize);
  if (!exported) return -1;
  exported->tensor = tensor->object;
  fc_incref(exported->tensor);
  tensor->exported = 1;
  *view = (Py_buffer){
      .obj = Py_NewRef(self),
      .buf = (char*)dl->data + dl->byte_offset,
      .len = (Py_ssize_t)fc_numel(dl) * itemsize,
      .itemsize = itemsize,
      .readonly = read_only,
      .ndim = dl->ndim,
      .format = flags & PyBUF_FORMAT ? (char*)format : NULL,
      .shape = flags & PyBUF_ND ? exported->dims : NULL,
      .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? exported->dims + dl->ndim : NULL,
      .internal = exported,
  };
  return 0;
}

void fc_tensor_release_buffer(PyObject* self, Py_buffer* view) {
  Exported* exported = view->internal;
  (void)self;
  fc_decref(exported->tensor);
  PyMem_Free(exported);
}
