/*
 * farcall/c_api.h - the C ABI through which every argument, result, error and tensor travels.
 *
 * A kernel library is a shared library that exports functions of one type, TVMFFISafeCallType, under names
 * that begin with `__tvm_ffi_`. It needs this header and nothing else: no Python, no framework, no farcall at
 * link time. The layouts and names are those that the TVM FFI project publishes, so that one library loads in
 * both runtimes. Static assertions below pin each offset and size; compiling this file is the test.
 *
 * The smallest kernel library:
 *
 *     #include <farcall/c_api.h>
 *
 *     FARCALL_KERNEL(add_one) {
 *       if (num_args != 1 || args[0].type_index != kTVMFFIInt) {
 *         TVMFFIErrorSetRaisedFromCStr("TypeError", "add_one: expected one int");
 *         return -1;
 *       }
 *       result->type_index = kTVMFFIInt;
 *       result->v_int64 = args[0].v_int64 + 1;
 *       return 0;
 *     }
 *
 * Build it with `cc -shared -fPIC -I$(include) add_one.c -o add_one.so`; the symbols TVMFFI* stay undefined
 * and are supplied by whichever runtime loads the library.
 *
 * The rules that hold everywhere:
 *
 *  - The callee borrows the arguments until it returns. To keep an object, it takes a reference
 *    (TVMFFIObjectIncRef); it copies a value that is not an object.
 *  - The caller owns the result, with the reference that the callee puts into `result`.
 *  - 0 means success; -1 means failure, with the error in this thread's slot (TVMFFIErrorMoveFromRaised).
 *  - No C++ exception crosses a function of this ABI.
 *  - Structures have no fields but the listed ones, and padding is zero.
 *  - Text is UTF-8. A length counts bytes, and does not count the NUL behind the text.
 *  - Kernels run without the Python GIL, possibly in several threads at once. A kernel that keeps state guards it.
 *
 * How a call goes, from Python:
 *
 *  1. Each Python argument becomes one TVMFFIAny on the caller's stack. The Any holds a number itself; a tensor of a
 *     framework becomes a DLTensor on the stack, and the Any points to it (tag 7). Nothing is allocated.
 *  2. farcall releases the GIL and calls the function with these Anys.
 *  3. The function reads them, works, and puts its result into `result`. It allocates a result tensor by
 *     TVMFFIEnvTensorAlloc, so that the caller's framework owns the memory.
 *  4. farcall takes the GIL again and makes a Python object of the result: a tensor of the arguments' framework.
 *
 * A kernel must check its arguments, because no caller does: their number, the tag of each, and of tensors the
 * dtype, rank, dims, strides and device. Tag 7 and tag 70 both mean a tensor.
 *
 * Pointers have 64 or 32 bits, numbers either byte order. C11, or C++17.
 */
#ifndef FARCALL_C_API_H_
#define FARCALL_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define FARCALL_STATIC_ASSERT(cond, text) static_assert(cond, text)
extern "C" {
#else
#define FARCALL_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/*
 * Pins the offset of a field, or the size of a structure: this header does not compile where the layout differs. The
 * numbers are the contract between programs that were compiled years apart. FARCALL_AT takes the number for 64-bit
 * pointers first, then the one for 32-bit pointers (Hexagon, ARM, RISC-V). i386 alone aligns 64-bit numbers to 4
 * bytes, and has no pins.
 */
#if defined(__i386__)
#define FARCALL_PIN(type, field, offset) FARCALL_STATIC_ASSERT(1, "")
#define FARCALL_PIN_SIZE(type, size) FARCALL_STATIC_ASSERT(1, "")
#else
#define FARCALL_PIN(type, field, offset) \
  FARCALL_STATIC_ASSERT(offsetof(type, field) == (offset), #type "." #field " must be at " #offset)
#define FARCALL_PIN_SIZE(type, size) FARCALL_STATIC_ASSERT(sizeof(type) == (size), #type " must have " #size " bytes")
#endif
#define FARCALL_AT(with_64_bits, with_32_bits) (sizeof(void*) == 8 ? (with_64_bits) : (with_32_bits))

/*
 * Exports a symbol from a kernel library. Compile with -fvisibility=hidden, which hides all others: two libraries in
 * one process must not see each other's helpers.
 */
#if defined(_WIN32)
#define FARCALL_VISIBLE __declspec(dllexport)
#else
#define FARCALL_VISIBLE __attribute__((visibility("default")))
#endif

/*
 * Declares the functions at the end of this file. The runtime itself exports them with protected visibility:
 * otherwise its calls would bind to another runtime that was loaded before it.
 */
#if defined(FARCALL_BUILDING_CORE)
#define TVM_FFI_DLL __attribute__((visibility("protected")))
#else
#define TVM_FFI_DLL
#endif

/* ---------------------------------------------------------------------------------------------------------
 * DLPack 1.3: the description of a tensor.
 *
 * DLPack is the agreement by which array libraries (numpy, PyTorch, JAX, CuPy and others) share memory without a
 * copy. It has three levels:
 *
 *  - DLTensor says where the elements are. It borrows their memory.
 *  - DLManagedTensor (old) and DLManagedTensorVersioned (since 1.0) add an owner: the receiver calls the deleter,
 *    exactly once, when it no longer needs the memory. The producer keeps the memory alive until then.
 *  - DLPackExchangeAPI lets two libraries in one process exchange them by C calls, without Python in between.
 *
 * Skipped where dlpack.h was included first; its names and layouts are the same. Source: dmlc/dlpack.
 */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

/*
 * The version of the structures. A reader that does not know the major version must not read on: it may only call
 * the deleter, whose offset never changes. A newer minor version only adds.
 */
typedef struct {
  uint32_t major; /* 1 */
  uint32_t minor; /* 3 here; the exchange API came with it */
} DLPackVersion;

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

/*
 * The kind of device that owns the memory. Other numbers are legal: farcall adds 128 * (n + 1) to the type of a
 * tensor on the server of session n, and then `data` is not an address in this process.
 */
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
  kDLTrn = 18
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id; /* counts from 0; 0 for the CPU */
} DLDevice;

/*
 * The format of one lane of an element; DLDataType.bits holds its width, which the names of the small formats repeat
 * (8, 6 or 4). e4m3 means 4 bits of exponent and 3 of mantissa; "fn" has no infinities, "uz" has only one zero.
 */
typedef enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5, /* bits count both parts: complex64 has 64 */
  kDLBool = 6,    /* 8 bits, 0 or 1 */
  kDLFloat8_e3m4 = 7,
  kDLFloat8_e4m3 = 8,
  kDLFloat8_e4m3b11fnuz = 9,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat6_e2m3fn = 15,
  kDLFloat6_e3m2fn = 16,
  kDLFloat4_e2m1fn = 17
} DLDataTypeCode;

/*
 * The type of an element: float32 is {kDLFloat, 32, 1}, a vector of four of them {kDLFloat, 32, 4}. An element
 * takes bits * lanes / 8 bytes. Elements of fewer than 8 bits are packed, the first in the low bits of the byte.
 */
typedef struct {
  uint8_t code;   /* DLDataTypeCode */
  uint8_t bits;   /* of one lane */
  uint16_t lanes; /* 1 for a scalar */
} DLDataType;

/*
 * A tensor whose memory somebody else owns.
 *
 * Element (i, j, ...) is at (char*)data + byte_offset + (i * strides[0] + j * strides[1] + ...) * element size.
 * A stride may be 0 (a broadcast dim) or negative (a reversed one). Contiguous means row-major without gaps. The
 * stride of a dim of size 1 does not count, and a tensor with a dim of size 0 is contiguous with any strides.
 *
 * Frameworks align `data` to the element size, rarely to more, and numpy does not align odd views at all: a kernel
 * that loads whole vectors must check the alignment, or use unaligned loads.
 */
typedef struct {
  void* data;           /* an address on `device`; any value, NULL included, when there are no elements */
  DLDevice device;      /* check it before reading: `data` may be an address of another device */
  int32_t ndim;         /* 0 for a scalar, which has one element */
  DLDataType dtype;
  int64_t* shape;       /* ndim dims, none negative */
  int64_t* strides;     /* ndim distances in elements; NULL means row-major. farcall always fills them in */
  uint64_t byte_offset; /* from `data` to the first element */
} DLTensor;

/*
 * A tensor with an owner, as frameworks exchanged it before version 1.0. Python carries it in a capsule named
 * "dltensor", which the receiver renames to "used_dltensor" when it takes ownership of the tensor.
 */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;                             /* for the producer only */
  void (*deleter)(struct DLManagedTensor* self); /* frees the memory and `self`; may be NULL */
} DLManagedTensor;

/*
 * Flags of a versioned tensor. Read-only: writing is undefined; a receiver that must write makes a copy. Copied:
 * only the receiver uses this memory. Padded: elements of fewer than 8 bits take a byte each; farcall refuses these.
 */
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

/*
 * The managed tensor since version 1.0: it begins with the version, so that a reader can always find it, and has
 * flags. Its capsule is named "dltensor_versioned".
 */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags; /* DLPACK_FLAG_BITMASK_* */
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/*
 * The functions by which a framework exchanges tensors without running Python. A Python tensor class offers them in
 * its attribute `__dlpack_c_exchange_api__`, a capsule named "dlpack_exchange_api".
 *
 * "No sync" means that no stream is synchronised: producer and consumer work on the same stream.
 *
 * Each function returns 0, or another number after it has set a Python error (the allocator, which may run
 * without the GIL, reports by a callback instead). farcall reads the table once per class and keeps it: a table
 * must live as long as the process.
 */

/*
 * Makes an uninitialised row-major tensor of the prototype's dtype, ndim, shape and device. Reports failure by
 * calling SetError(error_ctx, kind, message) once. Needs no GIL.
 */
typedef int (*DLPackManagedTensorAllocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_ctx,
                                            void (*SetError)(void* error_ctx, const char* kind, const char* message));
/* Python tensor -> owned description, which keeps the tensor's memory alive. */
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(void* py_object, DLManagedTensorVersioned** out);
/* Owned description -> new reference to a Python tensor. Takes ownership of `tensor` on success. */
typedef int (*DLPackManagedTensorToPyObjectNoSync)(DLManagedTensorVersioned* tensor, void** out_py_object);
/* Python tensor -> borrowed description; valid while the tensor lives and is not resized. Allocates nothing. */
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void* py_object, DLTensor* out);
/* The framework's current stream on this device, in this thread. */
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type, int32_t device_id, void** out_current_stream);

/*
 * A framework may offer several versions of the table, newest first. A reader follows prev_api until it finds a
 * major version that it knows.
 */
typedef struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  struct DLPackExchangeAPIHeader* prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  DLPackManagedTensorAllocator managed_tensor_allocator;
  DLPackManagedTensorFromPyObjectNoSync managed_tensor_from_py_object_no_sync;
  DLPackManagedTensorToPyObjectNoSync managed_tensor_to_py_object_no_sync;
  DLPackDLTensorFromPyObjectNoSync dltensor_from_py_object_no_sync; /* may be NULL; the others are not */
  DLPackCurrentWorkStream current_work_stream;
} DLPackExchangeAPI;

#endif /* DLPACK_DLPACK_H_ */

FARCALL_PIN_SIZE(DLDevice, 8);
FARCALL_PIN_SIZE(DLDataType, 4);
FARCALL_PIN(DLTensor, data, 0);
FARCALL_PIN(DLTensor, device, FARCALL_AT(8, 4));
FARCALL_PIN(DLTensor, ndim, FARCALL_AT(16, 12));
FARCALL_PIN(DLTensor, dtype, FARCALL_AT(20, 16));
FARCALL_PIN(DLTensor, shape, FARCALL_AT(24, 20));
FARCALL_PIN(DLTensor, strides, FARCALL_AT(32, 24));
FARCALL_PIN(DLTensor, byte_offset, FARCALL_AT(40, 32));
FARCALL_PIN_SIZE(DLTensor, FARCALL_AT(48, 40));
FARCALL_PIN(DLManagedTensor, manager_ctx, FARCALL_AT(48, 40));
FARCALL_PIN(DLManagedTensor, deleter, FARCALL_AT(56, 44));
FARCALL_PIN_SIZE(DLManagedTensor, FARCALL_AT(64, 48));
FARCALL_PIN(DLManagedTensorVersioned, manager_ctx, 8);
FARCALL_PIN(DLManagedTensorVersioned, deleter, FARCALL_AT(16, 12));
FARCALL_PIN(DLManagedTensorVersioned, flags, FARCALL_AT(24, 16));
FARCALL_PIN(DLManagedTensorVersioned, dl_tensor, FARCALL_AT(32, 24));
FARCALL_PIN_SIZE(DLManagedTensorVersioned, FARCALL_AT(80, 64));
FARCALL_PIN(DLPackExchangeAPI, managed_tensor_allocator, FARCALL_AT(16, 12));
FARCALL_PIN(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync, FARCALL_AT(24, 16));
FARCALL_PIN(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync, FARCALL_AT(32, 20));
FARCALL_PIN(DLPackExchangeAPI, dltensor_from_py_object_no_sync, FARCALL_AT(40, 24));
FARCALL_PIN(DLPackExchangeAPI, current_work_stream, FARCALL_AT(48, 28));
FARCALL_PIN_SIZE(DLPackExchangeAPI, FARCALL_AT(56, 32));

/* ---------------------------------------------------------------------------------------------------------
 * Tags. Below 64 the Any holds the value itself; from 64 on it holds a pointer to an object.
 *
 * Python values arrive with these tags:
 *
 *     None                        kTVMFFINone
 *     bool, numpy.bool            kTVMFFIBool
 *     int, numpy integers         kTVMFFIInt; an int that needs more than 64 bits is refused
 *     float, numpy floats         kTVMFFIFloat
 *     str                         kTVMFFIRawStr; kTVMFFIStr when there is a NUL inside
 *     bytes, bytearray            kTVMFFIByteArrayPtr
 *     dtype, device               kTVMFFIDataType, kTVMFFIDevice
 *     numpy, torch, __dlpack__    kTVMFFIDLTensorPtr
 *     farcall.Tensor              kTVMFFITensor
 *     list, tuple                 kTVMFFIArray; tensors in it are kTVMFFITensor, texts SmallStr or Str
 *     callable                    kTVMFFIFunction
 *
 * A kernel that another runtime or another kernel calls may meet other encodings of the same value: text in tags
 * 8, 11 and 65, bytes in 9, 12 and 66, tensors in 7 and 70, and an int where it wants a float.
 */
typedef enum {
  kTVMFFIAny = -1,            /* only in descriptions of types, never in a value */
  kTVMFFINone = 0,            /* payload 0 */
  kTVMFFIInt = 1,             /* v_int64 */
  kTVMFFIBool = 2,            /* v_int64, 0 or 1 */
  kTVMFFIFloat = 3,           /* v_float64 */
  kTVMFFIOpaquePtr = 4,       /* v_ptr */
  kTVMFFIDataType = 5,        /* v_dtype */
  kTVMFFIDevice = 6,          /* v_device */
  kTVMFFIDLTensorPtr = 7,     /* v_ptr: a borrowed DLTensor*; never a result */
  kTVMFFIRawStr = 8,          /* v_c_str: borrowed, ends in NUL; never a result */
  kTVMFFIByteArrayPtr = 9,    /* v_ptr: a borrowed TVMFFIByteArray*; never a result */
  kTVMFFIObjectRValueRef = 10, /* v_ptr: address of a handle; the callee may take it and leave NULL; never a result */
  kTVMFFISmallStr = 11,       /* v_bytes: at most 7 bytes and a NUL; the length is small_str_len */
  kTVMFFISmallBytes = 12,     /* the same, for bytes */
  kTVMFFIUnchanged = 13,      /* a marker in structural visitors; never an argument */
  kTVMFFIStaticObjectBegin = 64,
  kTVMFFIObject = 64,
  kTVMFFIStr = 65,            /* TVMFFIByteArray behind the header; text is UTF-8 */
  kTVMFFIBytes = 66,          /* the same, for bytes */
  kTVMFFIError = 67,          /* TVMFFIErrorCell */
  kTVMFFIFunction = 68,       /* TVMFFIFunctionCell */
  kTVMFFIShape = 69,          /* TVMFFIShapeCell */
  kTVMFFITensor = 70,         /* DLTensor; strides are never NULL when ndim is not 0 */
  kTVMFFIArray = 71,          /* TVMFFISeqCell; immutable */
  kTVMFFIMap = 72,
  kTVMFFIModule = 73,
  kTVMFFIOpaquePyObject = 74, /* void*, a PyObject* of the host's; pass it on, do not dereference it */
  kTVMFFIList = 75,           /* TVMFFISeqCell; shared and mutable */
  kTVMFFIDict = 76,
  kTVMFFIVisitInterrupt = 77,
  kTVMFFIBigInt = 78,
  kTVMFFIStaticObjectEnd = 79,
  kTVMFFIDynObjectBegin = 128 /* types registered by name at run time */
} TVMFFITypeIndex;

/*
 * A reference to an object: the address of its header. A function borrows the reference, unless its comment says
 * that it takes ownership.
 */
typedef void* TVMFFIObjectHandle;

/* The second parameter of a deleter: the work to do. */
typedef enum {
  kTVMFFIObjectDeleterFlagBitMaskStrong = 1, /* destroy the value: release all that it owns */
  kTVMFFIObjectDeleterFlagBitMaskWeak = 2,   /* free the memory */
  kTVMFFIObjectDeleterFlagBitMaskBoth = 3
} TVMFFIObjectDeleterFlagBitMask;

/*
 * The header of every object. The low half of the count holds the strong references, the high half the weak ones;
 * all strong references together own one weak reference. A new object has both at 1.
 *
 * When the strong count reaches 0, deleter(self, 1) runs and the weak reference is given up; when the weak count
 * reaches 0, deleter(self, 2). When both reach 0 at once (the usual case), deleter(self, 3) runs once. Increments are
 * relaxed, decrements release, and the deleting thread fences with acquire.
 *
 * Any library may make objects with its own deleter. A runtime must not unload a library whose deleter it may still
 * call; farcall never unloads one.
 */
typedef struct {
  uint64_t combined_ref_count; /* only by atomic operations; 0x100000001 when new */
  int32_t type_index;          /* the tag of an Any that holds this object */
  uint32_t __padding;
  union {
    void (*deleter)(void* self, int flags); /* gets the header's address; NULL: never freed */
    int64_t __ensure_align;                 /* 24 bytes even with 4-byte pointers */
  };
} TVMFFIObject;

FARCALL_PIN(TVMFFIObject, combined_ref_count, 0);
FARCALL_PIN(TVMFFIObject, type_index, 8);
FARCALL_PIN(TVMFFIObject, deleter, 16);
FARCALL_PIN_SIZE(TVMFFIObject, 24);

/*
 * The tagged value. Unused bytes must be zero (write `zero_padding` too), because equality and hashing read all
 * sixteen. An Any is a view (borrows its object) or a value (owns a reference). Tags 7 to 10 exist only in views.
 *
 * Arguments are views. A result, an item of an Array and a field of an object are values: their holder releases the
 * reference by TVMFFIObjectDecRef. TVMFFIAnyViewToOwnedAny makes a value of a view.
 */
typedef struct {
  int32_t type_index;
  union {
    uint32_t zero_padding;
    uint32_t small_str_len; /* of tags 11 and 12 */
  };
  union {
    int64_t v_int64;
    uint64_t v_uint64;
    double v_float64;
    void* v_ptr;
    const char* v_c_str;
    TVMFFIObject* v_obj;
    DLDataType v_dtype;
    DLDevice v_device;
    char v_bytes[8];
  };
} TVMFFIAny;

FARCALL_PIN(TVMFFIAny, type_index, 0);
FARCALL_PIN(TVMFFIAny, zero_padding, 4);
FARCALL_PIN(TVMFFIAny, v_int64, 8);
FARCALL_PIN_SIZE(TVMFFIAny, 16);

/*
 * Bytes with a length: the body of a String and of Bytes, and the type of names in parameters. In an object a NUL
 * follows the last byte, so that `data` is a C string unless the bytes themselves hold a NUL.
 */
typedef struct {
  const char* data;
  size_t size; /* without the NUL */
} TVMFFIByteArray;

/* Integers with a length: the body of a Shape. */
typedef struct {
  const int64_t* data;
  size_t size;
} TVMFFIShapeCell;

/*
 * The body of an Error. `kind` is the name of an exception class, such as "ValueError". A backtrace is text,
 * one line a frame, the most recent call first. `cause_chain` and `extra_context` are owned and may be NULL;
 * farcall keeps the original Python exception in `extra_context`, so that it comes back as the same object.
 */
typedef struct {
  TVMFFIByteArray kind;      /* "ValueError"; an unknown kind becomes a RuntimeError that names it */
  TVMFFIByteArray message;   /* what failed, where, what was expected, what came, and the cure */
  TVMFFIByteArray backtrace; /* may be empty */
  /* Replaces or extends the backtrace: a function that passes an error on adds its frames. */
  void (*update_backtrace)(TVMFFIObjectHandle self, const TVMFFIByteArray* backtrace, int32_t update_mode);
  TVMFFIObjectHandle cause_chain;   /* the error that led to this one */
  TVMFFIObjectHandle extra_context; /* an object of the host's */
} TVMFFIErrorCell;

/* Modes of update_backtrace. */
typedef enum { kTVMFFIBacktraceUpdateModeReplace = 0, kTVMFFIBacktraceUpdateModeAppend = 1 } TVMFFIBacktraceUpdateMode;

/*
 * The C type of every function of this ABI.
 *
 * `self` is NULL for a function that a library exports, and the Function's handle in the cell of a Function object.
 * The caller sets result->type_index to kTVMFFINone before the call, so that a callee that returns nothing writes
 * nothing. The callee borrows `args` and all that it points to, and must not change them, except for the elements of
 * a tensor that caller and callee agreed on as an output.
 *
 * Returns 0, or -1 after putting an error into the thread's slot. On -1 the caller ignores the result, which must not
 * hold a reference. Any other number counts as -1.
 */
typedef int (*TVMFFISafeCallType)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/*
 * The body of a Function. Call `safe_call`: `cpp_call` is private to TVM FFI's C++ runtime, and NULL in every
 * function that C code or farcall makes.
 */
typedef struct {
  TVMFFISafeCallType safe_call;
  void* cpp_call;
} TVMFFIFunctionCell;

/*
 * The body of Array and List: `size` owned values at `data`. Where `data_deleter` is NULL, they are part of the
 * object and follow this cell; otherwise it frees `data`, after the values were released.
 */
typedef struct {
  void* data;       /* TVMFFIAny[capacity], of which `size` are set */
  int64_t size;     /* items */
  int64_t capacity; /* room for items */
  void (*data_deleter)(void* data);
} TVMFFISeqCell;

/*
 * The body of Map and Dict. Libraries read and write it by their own code, so that its two layouts and the hash of a
 * key are part of the ABI (native/runtime/map.c has both). With the top bit of `slots` set, `data` is a row of at most
 * 4 (key, value) pairs in the order of insertion, searched from the front. Without it, `data` is a hash table, and
 * three more numbers follow this cell.
 */
typedef struct {
  void* data;
  uint64_t size;  /* pairs */
  uint64_t slots; /* room for pairs; see above */
  void (*data_deleter)(void* data); /* frees `data`; NULL where the row follows this cell */
} TVMFFIMapCell;

/* The body of an opaque object: a pointer that only its maker understands. */
typedef struct {
  void* handle;
} TVMFFIOpaqueObjectCell;

FARCALL_PIN_SIZE(TVMFFIByteArray, FARCALL_AT(16, 8));
FARCALL_PIN_SIZE(TVMFFIShapeCell, FARCALL_AT(16, 8));
FARCALL_PIN(TVMFFIErrorCell, message, FARCALL_AT(16, 8));
FARCALL_PIN(TVMFFIErrorCell, backtrace, FARCALL_AT(32, 16));
FARCALL_PIN(TVMFFIErrorCell, update_backtrace, FARCALL_AT(48, 24));
FARCALL_PIN(TVMFFIErrorCell, cause_chain, FARCALL_AT(56, 28));
FARCALL_PIN(TVMFFIErrorCell, extra_context, FARCALL_AT(64, 32));
FARCALL_PIN_SIZE(TVMFFIErrorCell, FARCALL_AT(72, 36));
FARCALL_PIN(TVMFFIFunctionCell, cpp_call, FARCALL_AT(8, 4));
FARCALL_PIN_SIZE(TVMFFIFunctionCell, FARCALL_AT(16, 8));
FARCALL_PIN(TVMFFISeqCell, size, 8);
FARCALL_PIN(TVMFFISeqCell, capacity, 16);
FARCALL_PIN(TVMFFISeqCell, data_deleter, 24);
FARCALL_PIN_SIZE(TVMFFISeqCell, 32);
FARCALL_PIN(TVMFFIMapCell, size, 8);
FARCALL_PIN(TVMFFIMapCell, slots, 16);
FARCALL_PIN(TVMFFIMapCell, data_deleter, 24);
FARCALL_PIN_SIZE(TVMFFIMapCell, 32);

/*
 * The body of an object, as in `TVMFFITensorGetDLTensorPtr(args[0].v_obj)->shape[0]`.
 */
static inline DLTensor* TVMFFITensorGetDLTensorPtr(TVMFFIObjectHandle obj) {
  return (DLTensor*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIByteArray* TVMFFIBytesGetByteArrayPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIByteArray*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIErrorCell* TVMFFIErrorGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIErrorCell*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIFunctionCell* TVMFFIFunctionGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIFunctionCell*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIShapeCell* TVMFFIShapeGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIShapeCell*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFISeqCell* TVMFFISeqGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFISeqCell*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIMapCell* TVMFFIMapGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIMapCell*)((char*)obj + sizeof(TVMFFIObject));
}
static inline TVMFFIOpaqueObjectCell* TVMFFIOpaqueObjectGetCellPtr(TVMFFIObjectHandle obj) {
  return (TVMFFIOpaqueObjectCell*)((char*)obj + sizeof(TVMFFIObject));
}

/* ---------------------------------------------------------------------------------------------------------
 * The symbols of a library.
 *
 * farcall finds the functions of a library by their symbols; nothing is registered, and no code runs when it loads.
 * The functions of a loaded library stay valid until the process ends: farcall does not unload libraries, because
 * objects may hold their deleters.
 */

/* Prefix of the functions that a library exports: the symbol `__tvm_ffi_main` is the function "main". */
#define FARCALL_SYMBOL_PREFIX "__tvm_ffi_"

#ifdef __cplusplus
#define FARCALL_EXTERN_C extern "C"
#else
#define FARCALL_EXTERN_C
#endif

/*
 * Begins an exported kernel; its body follows in braces. The prototype avoids -Wmissing-prototypes.
 */
#define FARCALL_KERNEL(name)                                                                                 \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                        TVMFFIAny* result);                                  \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __tvm_ffi_##name(                                                     \
      __attribute__((unused)) void* self, __attribute__((unused)) const TVMFFIAny* args,                     \
      __attribute__((unused)) int32_t num_args, __attribute__((unused)) TVMFFIAny* result)

/*
 * The functions that a library can get from farcall without importing a symbol.
 *
 * A library that defines
 *
 *     FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;
 *
 * finds it set when farcall has loaded it, before any of its functions is called. Other runtimes leave it NULL. One
 * library can thus serve both, bound to the runtime that loaded it, even where one process holds two runtimes and
 * the dynamic linker could bind to only one of them.
 *
 * Later versions append members: check `struct_size` before using a member that is not listed here.
 */
struct FarcallModuleSpec;
struct FarcallModuleKind;
struct FarcallBlob;

/*
 * A loop whose iterations are independent of each other. `body` runs iterations `begin` to `end`, exclusive; it returns
 * 0, or -1 with an error in its thread's slot. Several threads may call it at once.
 */
typedef struct FarcallLoop {
  int64_t count; /* iterations */
  /* Iterations for which it pays to wake a thread; for one that is awake, a quarter of them pays. Below zero: it is
   * -grain, and a thread takes its share in one part, since each part begins with work of its own. */
  int64_t grain;
  int64_t scratch; /* bytes of memory that each thread needs for itself */
  void* context;
  /* `scratch` is NULL in the thread that began the loop, which has its own memory, and in all if none is needed; else it
   * is aligned to 64 bytes. */
  int (*body)(void* context, int64_t begin, int64_t end, void* scratch);
} FarcallLoop;

typedef struct FarcallRuntime {
  uint32_t abi_version; /* FARCALL_ABI_VERSION of the runtime; the layouts above are version 1 */
  uint32_t struct_size; /* sizeof(FarcallRuntime) in the runtime */
  /* TVMFFIErrorSetRaisedFromCStr */
  void (*error_set_raised_from_cstr)(const char* kind, const char* message);
  /* TVMFFIEnvTensorAlloc */
  int (*env_tensor_alloc)(DLTensor* prototype, TVMFFIObjectHandle* out);
  /* TVMFFIObjectDecRef */
  int (*object_dec_ref)(TVMFFIObjectHandle object);
  /*
   * A new Array of n values. Takes ownership of the values, even on failure (it releases them then); the memory at
   * `items` stays the caller's.
   */
  int (*array_create)(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out);
  /*
   * Traces. While `*tracing` is not 0, trace_begin returns a time, else 0. trace_end records that the part `name` of a
   * function, with these arguments, ran from that time until now; it does nothing if the time is 0.
   */
  const int* tracing;
  int64_t (*trace_begin)(void);
  void (*trace_end)(const char* name, const TVMFFIAny* args, int32_t num_args, int64_t begin);
  /* Modules of kinds of your own: farcall/module.h. A new Module. Takes ownership of the state, even on failure, unless
     struct_size is wrong. */
  int (*module_create)(const struct FarcallModuleSpec* spec, TVMFFIObjectHandle* out);
  /* Checks the argument of a loader against what it reads. An ArtifactError names what differs. */
  int (*blob_read)(const struct FarcallModuleKind* kind, const TVMFFIAny* bytes, struct FarcallBlob* out);
  /* Puts `place` and a colon before the message of this thread's error; a host's exception gets a line of traceback. */
  void (*error_add_place)(const char* place);
  /* Copies the elements of a row-major tensor to another of the same shape and dtype, between any devices. */
  int (*tensor_copy)(const DLTensor* from, const DLTensor* to);
  /* Runs a loop, on several threads where that pays and the call may use them. Returns -1 with the error of the part
     that is first in the loop. NULL: run the body yourself. */
  int (*parallel)(const FarcallLoop* loop);
} FarcallRuntime;

#define FARCALL_ABI_VERSION 1u
#define FARCALL_RUNTIME_SYMBOL "__farcall_runtime"

/*
 * A library may export `int __farcall_start(void)`. farcall calls it when the library is loaded, its variables are
 * filled, and the modules that it embeds are its imports; on -1, with an error, the library is not loaded. It may be
 * called again for the same library.
 */
#define FARCALL_START_SYMBOL "__farcall_start"

/*
 * A library may state the version of the layouts that it was built with, in a `const uint32_t` of this name, which
 * FARCALL_SAY_ABI_VERSION (once in a library) defines. farcall refuses a library of another version, and names both.
 */
#define FARCALL_ABI_SYMBOL "__farcall_abi_version"
#define FARCALL_SAY_ABI_VERSION                                                 \
  FARCALL_EXTERN_C FARCALL_VISIBLE extern const uint32_t __farcall_abi_version; \
  const uint32_t __farcall_abi_version = FARCALL_ABI_VERSION

FARCALL_PIN(FarcallRuntime, struct_size, 4);
FARCALL_PIN(FarcallRuntime, error_set_raised_from_cstr, 8);
FARCALL_PIN(FarcallRuntime, env_tensor_alloc, FARCALL_AT(16, 12));
FARCALL_PIN(FarcallRuntime, object_dec_ref, FARCALL_AT(24, 16));
FARCALL_PIN(FarcallRuntime, array_create, FARCALL_AT(32, 20));
FARCALL_PIN(FarcallRuntime, tracing, FARCALL_AT(40, 24));
FARCALL_PIN(FarcallRuntime, trace_begin, FARCALL_AT(48, 28));
FARCALL_PIN(FarcallRuntime, trace_end, FARCALL_AT(56, 32));
FARCALL_PIN(FarcallRuntime, module_create, FARCALL_AT(64, 36));
FARCALL_PIN(FarcallRuntime, blob_read, FARCALL_AT(72, 40));
FARCALL_PIN(FarcallRuntime, error_add_place, FARCALL_AT(80, 44));
FARCALL_PIN(FarcallRuntime, tensor_copy, FARCALL_AT(88, 48));
FARCALL_PIN(FarcallRuntime, parallel, FARCALL_AT(96, 52));
FARCALL_PIN_SIZE(FarcallRuntime, FARCALL_AT(104, 56));

/* ---------------------------------------------------------------------------------------------------------
 * The functions that the runtime supplies. They may be called without the Python GIL, from any thread. Those that
 * return int return 0, or -1 with an error in this thread's slot.
 *
 * A library leaves those that it uses undefined, and names no runtime at link time: the runtime that loads it,
 * farcall or TVM FFI, binds them to its own. A static library, or a device without a dynamic linker, uses
 * FarcallRuntime instead.
 */

/*
 * The version of the ABI that the runtime implements, not of a package. A library can check it before it calls a
 * function of a later version.
 */
typedef struct {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} TVMFFIVersion;

TVM_FFI_DLL void TVMFFIGetVersion(TVMFFIVersion* out_version);

/* ---- objects ---- */

/*
 * Adds, and releases, a strong reference. The handle must not be NULL. The release may run the object's deleter, and
 * thereby any code: hold no lock that a deleter may take.
 */
TVM_FFI_DLL int TVMFFIObjectIncRef(TVMFFIObjectHandle obj);
TVM_FFI_DLL int TVMFFIObjectDecRef(TVMFFIObjectHandle obj);

/*
 * Makes an object around a pointer, for values that only their maker understands. `type_index` is its tag, usually
 * kTVMFFIOpaquePyObject or a registered one; `deleter` (may be NULL) gets `handle` when the last reference is
 * released, in the thread that releases it. The caller owns the new reference in `out`.
 */
TVM_FFI_DLL int TVMFFIObjectCreateOpaque(void* handle, int32_t type_index, void (*deleter)(void* handle),
                                         TVMFFIObjectHandle* out);

/*
 * The allocator for the objects of libraries that ask the runtime for memory. The function that frees the memory is
 * stored right before the body; the object's deleter calls it last, with the body. On failure `allocate` raises an
 * error and returns NULL. Get never returns NULL; Set takes NULL for the runtime's own allocator. farcall's objects
 * do not use it.
 */
typedef struct {
  void (*delete_space)(void* body);
} TVMFFIObjectAllocHeader;

typedef struct {
  void* (*allocate)(size_t size, size_t alignment, int32_t type_index, void* context);
  void* context;
} TVMFFICustomAllocator;

TVM_FFI_DLL TVMFFICustomAllocator* TVMFFIGetCustomAllocator(void);
TVM_FFI_DLL int TVMFFISetCustomAllocator(TVMFFICustomAllocator* allocator);

/*
 * The index of a type by its name, such as "ffi.Tensor" (70) or "int" (1). An unknown name is a KeyError.
 */
TVM_FFI_DLL int TVMFFITypeKeyToIndex(const TVMFFIByteArray* type_key, int32_t* out_tindex);

/*
 * Makes a value of a view: copies raw text and bytes into objects, adds a reference to an object, and takes the
 * object behind an RValueRef. A DLTensorPtr stays borrowed: to keep such a tensor, copy its elements. Overwrites
 * `out` without releasing its old value.
 */
TVM_FFI_DLL int TVMFFIAnyViewToOwnedAny(const TVMFFIAny* any_view, TVMFFIAny* out);

/* ---- functions ---- */

/*
 * Makes a Function object: a kernel returns a function with state this way, or passes one to another kernel.
 * `safe_call` gets `self` as its first argument; `deleter` (may be NULL) gets it when the last reference is released.
 * Where both are NULL, `safe_call` gets the Function's handle. The caller owns the new reference in `out`.
 */
TVM_FFI_DLL int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType safe_call, void (*deleter)(void* self),
                                     TVMFFIObjectHandle* out);

/*
 * Calls a Function of any runtime or language. Set result->type_index to kTVMFFINone before; on 0 the caller owns
 * the value in `result`. On -1 the error is in the slot: pass it on by returning -1, or take it out by
 * TVMFFIErrorMoveFromRaised.
 *
 * A Function may be a Python callable. It takes the GIL itself, so call it without the GIL; it borrows arguments of
 * tag 7 for the call only.
 */
TVM_FFI_DLL int TVMFFIFunctionCall(TVMFFIObjectHandle func, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/*
 * Looks up the function registered under a name: a new reference, or NULL (and 0) if the name is unknown. A lookup
 * hashes the name and takes a lock: keep a function that you call often.
 */
TVM_FFI_DLL int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out);

/*
 * Registers a function under a name; adds a reference, and copies the name. If the name is taken and
 * `allow_override` is 0: ValueError.
 */
TVM_FFI_DLL int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle f, int allow_override);

/* ---- errors ---- */

/*
 * Takes this thread's error out of its slot; NULL if the slot is empty. The caller owns the reference. To return -1
 * afterwards, raise an error again: otherwise the failure has no message.
 */
TVM_FFI_DLL void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* result);

/* Puts an error into this thread's slot, in place of the previous one. The caller keeps its reference. */
TVM_FFI_DLL void TVMFFIErrorSetRaised(TVMFFIObjectHandle error);

/*
 * Makes an error and puts it into the slot, as a kernel does before it returns -1. Copies both texts. `kind` is the
 * name of a Python exception class: a builtin, or one that was registered.
 *
 *     if (n != 2) {
 *       TVMFFIErrorSetRaisedFromCStr("TypeError", "`dot` takes 2 arguments");
 *       return -1;
 *     }
 */
TVM_FFI_DLL void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

/*
 * The same, with a message in parts, which are joined; NULL parts are left out. For generated code, whose messages
 * share their beginnings and ends.
 */
TVM_FFI_DLL void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts, int32_t num_parts);

/* Makes an error without raising it; a new reference in `out`. Copies all texts; `backtrace` may be empty. */
TVM_FFI_DLL int TVMFFIErrorCreate(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                  const TVMFFIByteArray* backtrace, TVMFFIObjectHandle* out);

/*
 * The same, with the error that caused it and an object of the host's. Adds a reference to each that is not NULL;
 * the caller keeps its own.
 */
TVM_FFI_DLL int TVMFFIErrorCreateWithCauseAndExtraContext(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                                          const TVMFFIByteArray* backtrace,
                                                          TVMFFIObjectHandle cause_chain,
                                                          TVMFFIObjectHandle extra_context, TVMFFIObjectHandle* out);

/*
 * The given place as text, in the form of a backtrace. Notes the address of the caller, and with FARCALL_BACKTRACE=1
 * in the environment those of all its callers, for farcall._core.last_backtrace() of Python, which names them:
 * naming costs more than the rest of an error, and few backtraces are read. The thread owns the text, which is valid
 * until its next call.
 */
TVM_FFI_DLL const TVMFFIByteArray* TVMFFIBacktrace(const char* filename, int lineno, const char* func,
                                                   int cross_ffi_boundary);

/* ---- tensors ---- */

/*
 * Makes a Tensor of a managed tensor. Takes ownership of it on success: its deleter runs when the last reference is
 * released. The address of the first element must be a multiple of `require_alignment`, unless that is 0; the layout
 * must be contiguous, unless `require_contiguous` is 0. Fills in missing strides.
 *
 * Errors: RuntimeError for alignment, layout, another major version, or padded elements.
 */
TVM_FFI_DLL int TVMFFITensorFromDLPack(DLManagedTensor* from, int32_t require_alignment, int32_t require_contiguous,
                                       TVMFFIObjectHandle* out);
TVM_FFI_DLL int TVMFFITensorFromDLPackVersioned(DLManagedTensorVersioned* from, int32_t require_alignment,
                                                int32_t require_contiguous, TVMFFIObjectHandle* out);

/*
 * Makes a managed tensor that shares the memory of a Tensor and holds a reference, which its deleter releases. The
 * versioned one keeps the read-only flag; the old one has no flags.
 */
TVM_FFI_DLL int TVMFFITensorToDLPack(TVMFFIObjectHandle from, DLManagedTensor** out);
TVM_FFI_DLL int TVMFFITensorToDLPackVersioned(TVMFFIObjectHandle from, DLManagedTensorVersioned** out);

/*
 * Makes a Tensor that views the memory of `source` as `prototype` describes, and keeps `source` alive. Does not check
 * that dims, strides and offset stay inside that memory.
 */
TVM_FFI_DLL int TVMFFITensorCreateUnsafeView(TVMFFIObjectHandle source, const DLTensor* prototype,
                                             TVMFFIObjectHandle* out);

/* ---- strings and types ---- */

/*
 * Makes a string or bytes value: inside the Any up to 7 bytes, else an object. Copies the bytes. A kernel returns
 * text this way, because a result must not borrow.
 */
TVM_FFI_DLL int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
TVM_FFI_DLL int TVMFFIBytesFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);

/*
 * An integer of any size, from and to its 64-bit words: two's complement, the lowest word first, each in this
 * machine's byte order. An integer that fits into 64 bits becomes a kTVMFFIInt, never a BigInt. Get returns the words
 * of either, or NULL for a value of another type; the words of an Int are inside the Any, which must outlive them.
 */
TVM_FFI_DLL int TVMFFIBigIntFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
TVM_FFI_DLL TVMFFIByteArray TVMFFIBigIntGetContentByteArray(const TVMFFIAny* value);

/*
 * "float32" <-> {kDLFloat, 32, 1}. Names: int, uint, float, bfloat, complex with their bits, bool, handle, the 8-, 6-
 * and 4-bit floats by their formats ("float8_e4m3fn"), then "xN" for N lanes, as in "float32x4", or "xvscalexN" for a
 * multiple of N that the machine chooses (lanes: -N). "void" and "" both mean no type; ToString gives "". FromString
 * also reads short forms (f32, i8, u8, bf16). An unknown name is a ValueError.
 */
TVM_FFI_DLL int TVMFFIDataTypeFromString(const TVMFFIByteArray* str, DLDataType* out);
TVM_FFI_DLL int TVMFFIDataTypeToString(const DLDataType* dtype, TVMFFIAny* out);

/* ---- the registry of types ----
 *
 * Libraries name a type by text and refer to it by index. The fields and methods of a type let one language use the
 * objects of another. farcall keeps the descriptions that libraries register, and returns them.
 *
 * Registering the same description twice is allowed, as when two copies of one library are loaded. A different one is
 * a ValueError. While a library is being loaded, the functions below return 0 even then, because its initialisers
 * could not handle the error; loading fails afterwards.
 */

typedef int (*TVMFFIFieldGetter)(void* field, TVMFFIAny* result);
typedef int (*TVMFFIFieldSetter)(void* field, const TVMFFIAny* value);
typedef int (*TVMFFIObjectCreator)(TVMFFIObjectHandle* result);

/* A field. The getter and the setter get the address of the object plus `offset`. */
typedef struct {
  TVMFFIByteArray name;
  TVMFFIByteArray doc;
  TVMFFIByteArray metadata; /* JSON */
  int64_t flags;            /* 1: may be written; 2: has a default; farcall ignores the others */
  int64_t size;
  int64_t alignment;
  int64_t offset;
  TVMFFIFieldGetter getter;
  void* setter; /* a TVMFFIFieldSetter, or with flag 1 << 11 a Function's handle */
  TVMFFIAny default_value_or_factory;
  int32_t field_static_type_index;
} TVMFFIFieldInfo;

/* A method: `method` is a Function whose first argument is the object. */
typedef struct {
  TVMFFIByteArray name;
  TVMFFIByteArray doc;
  TVMFFIByteArray metadata;
  int64_t flags; /* 4: static, without the object */
  TVMFFIAny method;
} TVMFFIMethodInfo;

typedef struct {
  TVMFFIByteArray doc;
  TVMFFIObjectCreator creator; /* makes an object with its defaults; may be NULL */
  int32_t total_size;
  int32_t structural_eq_hash_kind;
} TVMFFITypeMetadata;

/* The description of a type. It never moves; fields and methods may be added. */
typedef struct TVMFFITypeInfo {
  int32_t type_index;
  int32_t type_depth; /* of "ffi.Object" 0 */
  TVMFFIByteArray type_key;
  const struct TVMFFITypeInfo** type_ancestors; /* type_depth of them, the root first */
  uint64_t type_key_hash;
  int32_t num_fields;
  int32_t num_methods;
  const TVMFFIFieldInfo* fields;
  const TVMFFIMethodInfo* methods;
  const TVMFFITypeMetadata* metadata; /* NULL until it is registered */
} TVMFFITypeInfo;

/* One attribute of all types: data[i - begin_index] is its value for type i, None where the type has no such. */
typedef struct {
  const TVMFFIAny* data;
  int32_t size;
  int32_t begin_index;
} TVMFFITypeAttrColumn;

FARCALL_PIN(TVMFFIFieldInfo, getter, FARCALL_AT(80, 56));
FARCALL_PIN(TVMFFIFieldInfo, default_value_or_factory, FARCALL_AT(96, 64));
FARCALL_PIN_SIZE(TVMFFIFieldInfo, FARCALL_AT(120, 88));
FARCALL_PIN(TVMFFIMethodInfo, method, FARCALL_AT(56, 32));
FARCALL_PIN_SIZE(TVMFFIMethodInfo, FARCALL_AT(72, 48));
FARCALL_PIN_SIZE(TVMFFITypeMetadata, FARCALL_AT(32, 20));
FARCALL_PIN(TVMFFITypeInfo, type_ancestors, FARCALL_AT(24, 16));
FARCALL_PIN(TVMFFITypeInfo, fields, FARCALL_AT(48, 40));
FARCALL_PIN(TVMFFITypeInfo, metadata, FARCALL_AT(64, 48));
FARCALL_PIN_SIZE(TVMFFITypeInfo, FARCALL_AT(72, 56));
FARCALL_PIN(TVMFFITypeAttrColumn, begin_index, FARCALL_AT(12, 8));
FARCALL_PIN_SIZE(TVMFFITypeAttrColumn, FARCALL_AT(16, 12));

/*
 * The index of a type. A new name gets `static_type_index` when that is not negative, else an index after its parent
 * among those that the parent reserved for children, else one after all others. A parent of -1 makes a root type; a
 * parent of -2 only looks up, and returns -2 for an unknown name.
 */
TVM_FFI_DLL int32_t TVMFFITypeGetOrAllocIndex(const TVMFFIByteArray* type_key, int32_t static_type_index,
                                              int32_t type_depth, int32_t num_child_slots,
                                              int32_t child_slots_can_overflow, int32_t parent_type_index);

/* The description of a type; never NULL: an unknown index is described as "(unregistered type)". */
TVM_FFI_DLL const TVMFFITypeInfo* TVMFFIGetTypeInfo(int32_t type_index);

/* These copy their arguments. IndexError for an unknown type. */
TVM_FFI_DLL int TVMFFITypeRegisterField(int32_t type_index, const TVMFFIFieldInfo* info);
TVM_FFI_DLL int TVMFFITypeRegisterMethod(int32_t type_index, const TVMFFIMethodInfo* info);
TVM_FFI_DLL int TVMFFITypeRegisterMetadata(int32_t type_index, const TVMFFITypeMetadata* metadata);
TVM_FFI_DLL int TVMFFITypeRegisterAttr(int32_t type_index, const TVMFFIByteArray* attr_name,
                                       const TVMFFIAny* attr_value);

/* The column of an attribute, which never moves and may grow; NULL if no type has it. */
TVM_FFI_DLL const TVMFFITypeAttrColumn* TVMFFIGetTypeAttrColumn(const TVMFFIByteArray* attr_name);

/* Registers a global function with its name, documentation and metadata. */
TVM_FFI_DLL int TVMFFIFunctionSetGlobalFromMethodInfo(const TVMFFIMethodInfo* method_info, int allow_override);

/* ---- once ---- */

/*
 * Runs `init_func` once for a slot, in the first thread that asks, and stores its value. If `init_func` fails or
 * gives NULL, the call fails, the slot stays NULL, and the next call tries again. Deinit empties the slot and passes
 * the value to `deinit_func`. The slot is a static variable of the library, NULL at first; a later call costs one load.
 */
TVM_FFI_DLL int TVMFFIHandleInitOnce(void** handle_addr, int (*init_func)(void** result));
TVM_FFI_DLL int TVMFFIHandleDeinitOnce(void** handle_addr, int (*deinit_func)(void* handle));

/* ---- the environment of a call ---- */

typedef void* TVMFFIStreamHandle;

/*
 * This thread's stream on a device, for the work of kernels; NULL is the device's default stream. Set stores the
 * previous stream in its last argument (may be NULL), so that the caller can restore it.
 */
TVM_FFI_DLL int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, TVMFFIStreamHandle stream,
                                   TVMFFIStreamHandle* opt_out_original_stream);
TVM_FFI_DLL TVMFFIStreamHandle TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

/*
 * The allocator of TVMFFIEnvTensorAlloc, which hosts set: for this thread, and for the process too when
 * `write_to_global_context` is not 0. NULL removes it. Set stores the thread's previous one in its last argument (may
 * be NULL); Get returns the thread's, else the process's. The framework of a call's arguments comes first, and needs
 * no setting.
 */
TVM_FFI_DLL int TVMFFIEnvSetDLPackManagedTensorAllocator(DLPackManagedTensorAllocator allocator,
                                                         int write_to_global_context,
                                                         DLPackManagedTensorAllocator* opt_out_original_allocator);
TVM_FFI_DLL DLPackManagedTensorAllocator TVMFFIEnvGetDLPackManagedTensorAllocator(void);

/*
 * Makes an uninitialised row-major Tensor of the prototype's dtype, shape and device. Its memory comes from the
 * framework of the call's tensor arguments, else from an allocator that was set, else from farcall (CPU only, aligned
 * to 64 bytes). Ignores the prototype's strides, byte_offset and data: the description of an input will do.
 *
 *     TVMFFIObjectHandle y;
 *     if (TVMFFIEnvTensorAlloc(x, &y) != 0) return -1;
 *     fill(TVMFFITensorGetDLTensorPtr(y));
 *     result->type_index = kTVMFFITensor;
 *     result->v_obj = (TVMFFIObject*)y;
 *     return 0;
 *
 * Errors: MemoryError; ValueError for a negative dim; RuntimeError for a device without an allocator.
 */
TVM_FFI_DLL int TVMFFIEnvTensorAlloc(DLTensor* prototype, TVMFFIObjectHandle* out);

/*
 * Call this in long loops: not 0 means that the host was interrupted (Ctrl-C, or another signal whose handler
 * raised), and the error is set. Clean up and return -1. It takes the GIL, so every few milliseconds is enough.
 */
TVM_FFI_DLL int TVMFFIEnvCheckSignals(void);

/*
 * Gives the runtime a function of the host's Python: "PyErr_CheckSignals", "PyGILState_Ensure" or
 * "PyGILState_Release". Another name is a ValueError. farcall is a Python extension, and needs none of them.
 */
TVM_FFI_DLL int TVMFFIEnvRegisterCAPI(const char* name, void* symbol);

/* ---- modules ---- */

/*
 * The function of that name in the modules that a library imports, else the global one; RuntimeError if neither
 * exists. `library_ctx` is the value that the loader stored in the library's `__tvm_ffi__library_ctx`. The module owns
 * the function: the reference in `out` is borrowed.
 */
TVM_FFI_DLL int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle library_ctx, const char* func_name,
                                              TVMFFIObjectHandle* out);

/*
 * Stores `symbol` in the variable of this name (a void*) of every library that is loaded from now on. For generated
 * code that must not import anything.
 */
TVM_FFI_DLL int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol);

/*
 * Adds a symbol to the system library: the functions linked into this process, as on a device without a dynamic
 * linker. `name` is the whole symbol, with its prefix. A second address under a name replaces the first.
 */
TVM_FFI_DLL int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FARCALL_C_API_H_ */
