/*
 * farcall/c_api.h - the C ABI through which every argument, result, error and tensor travels.
 *
 * A kernel library is a shared library that exports functions of one type, TVMFFISafeCallType, under names
 * that begin with `__tvm_ffi_`. It needs this header and nothing else: no Python, no framework, no farcall at
 * link time. The layouts and names are those that the TVM FFI project publishes, so that one library loads in
 * both runtimes. Each offset and size is pinned by a static assertion below; compiling this file is the test.
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
 *  - Arguments are borrowed. They live until the function returns; a callee that keeps one takes its own
 *    reference (TVMFFIObjectIncRef), and copies what is not an object.
 *  - Results are owned. The reference that the callee puts into `result` becomes the caller's.
 *  - 0 means success, -1 means that an error waits in this thread's slot (TVMFFIErrorMoveFromRaised).
 *  - No C++ exception crosses a function of this ABI.
 *  - Every structure is little: a field that is not listed does not exist, and padding is zero.
 *  - Text is UTF-8. A length counts bytes, and does not count the NUL behind the text.
 *  - Kernels run without the Python GIL, possibly in several threads at once. A kernel that keeps state guards it.
 *
 * How a call goes, from Python:
 *
 *  1. Each Python argument becomes one TVMFFIAny on the caller's stack. Numbers stand in the Any; a tensor of a
 *     framework becomes a DLTensor on the stack, and the Any points to it (tag 7). Nothing is allocated.
 *  2. The GIL is released, and the function is called with these Anys.
 *  3. The function reads them, works, and puts its result into `result`. For a result tensor it asks
 *     TVMFFIEnvTensorAlloc, so that the memory belongs to the caller's framework.
 *  4. The GIL is taken again, and the result becomes a Python object: a tensor of the arguments' framework.
 *
 * What a kernel should check, because nobody does it before: the number of arguments, the tag of each, and of
 * tensors the dtype, rank, dims, strides and device. Tag 7 and tag 70 both mean a tensor.
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
 * Pins one field, or the size of a structure: a compiler that lays it out in another way refuses this header. The
 * numbers are the contract; two programs that were compiled years apart meet at these offsets. FARCALL_AT has the one
 * for 64-bit pointers first, then the one for 32-bit pointers (Hexagon, ARM, RISC-V). i386 aligns 64-bit numbers to 4
 * bytes, as nobody else does, and has no pins.
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
 * What a kernel library shows to its loader. Compile the rest with -fvisibility=hidden: two libraries in one
 * process must not see each other's helpers.
 */
#if defined(_WIN32)
#define FARCALL_VISIBLE __declspec(dllexport)
#else
#define FARCALL_VISIBLE __attribute__((visibility("default")))
#endif

/*
 * How the functions at the end of this file are declared. The runtime itself exports them with protected
 * visibility: its own calls must not be captured by another runtime that was loaded before it.
 */
#if defined(FARCALL_BUILDING_CORE)
#define TVM_FFI_DLL __attribute__((visibility("protected")))
#else
#define TVM_FFI_DLL
#endif

/* ---------------------------------------------------------------------------------------------------------
 * DLPack 1.3: how a tensor is described.
 *
 * DLPack is what array libraries agreed upon to hand memory to each other without a copy: numpy, PyTorch, JAX,
 * CuPy and others speak it. There are three levels:
 *
 *  - DLTensor says where the elements are. It owns nothing, and is valid as long as somebody says so.
 *  - DLManagedTensor (old) and DLManagedTensorVersioned (since 1.0) add an owner: whoever receives one calls its
 *    deleter, exactly once, when the memory is no longer needed. The producer keeps the memory alive until then.
 *  - DLPackExchangeAPI lets two libraries in one process exchange them by C calls, without Python in between.
 *
 * Left out when the real dlpack.h came first; the names and layouts are the same. Source: dmlc/dlpack.
 */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

/*
 * The version of the structures. A reader that finds another major version than it knows must not read on: the
 * only thing it may still do is to call the deleter, whose place never moves. A newer minor version only adds.
 */
typedef struct {
  uint32_t major; /* 1 */
  uint32_t minor; /* 3 here; the exchange API came with it */
} DLPackVersion;

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

/*
 * Where memory lives. A number that is not listed is legal: farcall adds 128 * (n + 1) to the type of a tensor
 * that lives behind its n-th session, and then `data` is no address in this process.
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
 * What one lane of an element is. The width of the lane stands beside it in DLDataType.bits, except for the
 * formats of 8 bits and fewer, whose names say it: their bits are 8, 6 or 4. e4m3 means 4 bits of exponent and 3
 * of mantissa; "fn" has no infinities, "uz" has one zero only.
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
 * takes bits * lanes / 8 bytes; those with fewer than 8 bits are packed, the first in the low bits of its byte.
 */
typedef struct {
  uint8_t code;   /* DLDataTypeCode */
  uint8_t bits;   /* of one lane */
  uint16_t lanes; /* 1 for a scalar */
} DLDataType;

/*
 * A tensor, without an owner.
 *
 * Element (i, j, ...) is at (char*)data + byte_offset + (i * strides[0] + j * strides[1] + ...) * element size.
 * A stride may be 0 (a broadcast dim) or negative (a reversed one). Contiguous means row-major without gaps, where
 * the stride of a dim of size 1 does not count, and a tensor with a dim of size 0 is contiguous whatever it says.
 *
 * Frameworks guarantee an alignment of `data` to the element size, rarely more, and numpy not even that for odd
 * views: a kernel that loads whole vectors must check, or use unaligned loads.
 */
typedef struct {
  void* data;           /* an address on `device`; any value, NULL included, when there are no elements */
  DLDevice device;      /* look before you read: the address may be another device's */
  int32_t ndim;         /* 0 for a scalar, which has one element */
  DLDataType dtype;
  int64_t* shape;       /* ndim dims, none negative */
  int64_t* strides;     /* ndim distances in elements; NULL means row-major. farcall always fills them in */
  uint64_t byte_offset; /* from `data` to the first element */
} DLTensor;

/*
 * A tensor with an owner, as frameworks exchanged it before version 1.0. Python carries it in a capsule that is
 * named "dltensor", and that the receiver renames to "used_dltensor" when it has taken what is inside.
 */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;                             /* the producer's business */
  void (*deleter)(struct DLManagedTensor* self); /* frees the memory and `self`; may be NULL */
} DLManagedTensor;

/*
 * Flags of a versioned tensor. Read-only: writing is undefined, and who must write takes a copy. Copied: the
 * receiver is the only one that sees this memory. Padded: elements of fewer than 8 bits take a byte each;
 * farcall refuses these.
 */
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

/*
 * The same since version 1.0: the version comes first, so that a reader can always find it, and flags exist. Its
 * capsule is named "dltensor_versioned".
 */
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags; /* DLPACK_FLAG_BITMASK_* */
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/*
 * The functions by which a framework gives and takes tensors without running Python. A Python tensor class
 * has them as a capsule named "dlpack_exchange_api" in its attribute `__dlpack_c_exchange_api__`.
 *
 * "No sync" says that no stream is synchronised: producer and consumer work on the same stream.
 *
 * Each function returns 0, or another number after it has set a Python error (the allocator, which may run
 * without the GIL, reports by a callback instead). farcall reads the table once per class and keeps it: a table
 * must live as long as the process.
 */

/*
 * Makes an empty row-major tensor like `prototype`, of which dtype, ndim, shape and device count. Reports failure
 * by calling SetError(error_ctx, kind, message) once. Needs no GIL.
 */
typedef int (*DLPackManagedTensorAllocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_ctx,
                                            void (*SetError)(void* error_ctx, const char* kind, const char* message));
/* Python tensor -> owned description, which keeps the tensor's memory alive. */
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(void* py_object, DLManagedTensorVersioned** out);
/* Owned description -> new reference to a Python tensor. Takes the ownership of `tensor` on success. */
typedef int (*DLPackManagedTensorToPyObjectNoSync)(DLManagedTensorVersioned* tensor, void** out_py_object);
/* Python tensor -> borrowed description; valid while the tensor lives and is not resized. Allocates nothing. */
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void* py_object, DLTensor* out);
/* The stream on which the framework works now, on this device, in this thread. */
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type, int32_t device_id, void** out_current_stream);

/*
 * A framework may offer several versions of the table, newest first. A reader follows prev_api until it finds the
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
 * Tags. Below 64 the value is in the Any itself; from 64 on the Any holds a pointer to an object.
 *
 * What Python values arrive as:
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
 * A kernel that is called by another runtime, or by another kernel, may meet the other encodings of the same
 * value: text in tags 8, 11 and 65, bytes in 9, 12 and 66, tensors in 7 and 70, and an int where it wants a float.
 */
typedef enum {
  kTVMFFIAny = -1,            /* only in descriptions of types; no value has it */
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
  kTVMFFIObjectRValueRef = 10, /* v_ptr: address of a handle that the callee may take, leaving NULL; never a result */
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
  kTVMFFIArray = 71,          /* TVMFFISeqCell; not changed after it is made */
  kTVMFFIMap = 72,
  kTVMFFIModule = 73,
  kTVMFFIOpaquePyObject = 74, /* void*, a PyObject* in the host's hands; pass it on, do not look */
  kTVMFFIList = 75,           /* TVMFFISeqCell; shared and mutable */
  kTVMFFIDict = 76,
  kTVMFFIVisitInterrupt = 77,
  kTVMFFIBigInt = 78,
  kTVMFFIStaticObjectEnd = 79,
  kTVMFFIDynObjectBegin = 128 /* types that are registered by name at run time */
} TVMFFITypeIndex;

/*
 * A reference to an object: the address of its header. Whether a function takes over the reference, or borrows it,
 * is said at the function; without a word it borrows.
 */
typedef void* TVMFFIObjectHandle;

/* What the second parameter of a deleter asks for. */
typedef enum {
  kTVMFFIObjectDeleterFlagBitMaskStrong = 1, /* end the value: release what it holds */
  kTVMFFIObjectDeleterFlagBitMaskWeak = 2,   /* free the memory */
  kTVMFFIObjectDeleterFlagBitMaskBoth = 3
} TVMFFIObjectDeleterFlagBitMask;

/*
 * The header of every object. The count holds strong references in its low and weak references in its high
 * half; all strong references together own one weak reference. A new object has both at 1.
 *
 * Strong to 0: deleter(self, 1), then the weak reference goes. Weak to 0: deleter(self, 2). When both go at
 * once (the usual case) there is one call with 3. Increments are relaxed, decrements release, and the thread
 * that deletes fences with acquire.
 *
 * Any library may make objects with its own deleter. So a runtime must not unload a library whose deleter may
 * still be called; farcall never unloads one.
 */
typedef struct {
  uint64_t combined_ref_count; /* only by atomic operations; 0x100000001 when new */
  int32_t type_index;          /* the tag of an Any that holds this object */
  uint32_t __padding;
  union {
    void (*deleter)(void* self, int flags); /* gets the header's address; may be NULL for what is never freed */
    int64_t __ensure_align;                 /* 24 bytes also where a pointer has 4 */
  };
} TVMFFIObject;

FARCALL_PIN(TVMFFIObject, combined_ref_count, 0);
FARCALL_PIN(TVMFFIObject, type_index, 8);
FARCALL_PIN(TVMFFIObject, deleter, 16);
FARCALL_PIN_SIZE(TVMFFIObject, 24);

/*
 * The value. Unused bytes are zero, because equality and hashing look at all sixteen; so set `zero_padding`
 * too when you write one. The same structure is a view (borrowed) or a value (owned): the place where it
 * stands decides. Tags 7 to 10 exist only in views.
 *
 * Arguments are views. A result, an item of an Array and a field of an object are values: an object in them has a
 * reference of its own, which TVMFFIObjectDecRef gives up when the value goes. TVMFFIAnyViewToOwnedAny makes a
 * value of a view.
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
 * Bytes with a length: the body of a String and of Bytes, and the way in which functions take names. In an object
 * a NUL follows the last byte, so that `data` serves as a C string where there is no NUL inside.
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
  TVMFFIByteArray kind;      /* "ValueError"; an unknown one becomes a RuntimeError that names it */
  TVMFFIByteArray message;   /* what, where, what was expected, what came, and the cure */
  TVMFFIByteArray backtrace; /* may be empty */
  /* Replaces or extends the backtrace: who passes an error on adds its own frames. */
  void (*update_backtrace)(TVMFFIObjectHandle self, const TVMFFIByteArray* backtrace, int32_t update_mode);
  TVMFFIObjectHandle cause_chain;   /* the error that led to this one */
  TVMFFIObjectHandle extra_context; /* whatever the host wants back */
} TVMFFIErrorCell;

/* Modes of update_backtrace. */
typedef enum { kTVMFFIBacktraceUpdateModeReplace = 0, kTVMFFIBacktraceUpdateModeAppend = 1 } TVMFFIBacktraceUpdateMode;

/*
 * The signature of everything that can be called.
 *
 * `self` is NULL for a function that a library exports, and the function's own handle for a Function object.
 * The caller has set result->type_index to kTVMFFINone, so that a callee that returns nothing writes nothing.
 * `args` and everything that it points to are the caller's, and constant; a tensor's elements may be written,
 * where caller and callee agreed that it is an output.
 *
 * Returns 0, or -1 after an error was put into the thread's slot. On -1 the result is not looked at, and must not
 * hold a reference. Any other number is treated as -1.
 */
typedef int (*TVMFFISafeCallType)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/*
 * The body of a Function. `cpp_call` is private to one C++ runtime and NULL in every function that C code or
 * farcall makes: call `safe_call`.
 */
typedef struct {
  TVMFFISafeCallType safe_call;
  void* cpp_call;
} TVMFFIFunctionCell;

/*
 * The body of Array and List: `size` owned values at `data`. Where `data_deleter` is NULL they stand in the
 * object itself, behind this cell; else it frees `data` after the values have been released.
 */
typedef struct {
  void* data;       /* TVMFFIAny[capacity], of which `size` are set */
  int64_t size;     /* items */
  int64_t capacity; /* room for items */
  void (*data_deleter)(void* data);
} TVMFFISeqCell;

/*
 * The body of Map and Dict. Libraries read and write it by code of their own, so that its two layouts are part of
 * the ABI, and the hash of a key as well (native/runtime/map.c has both). With the top bit of `slots` set, `data` is
 * a row of (key, value) pairs, in the order of insertion, searched from the front; at most 4 have that layout.
 * Without it, `data` is a hash table, and three numbers more stand behind this cell.
 */
typedef struct {
  void* data;
  uint64_t size;  /* pairs */
  uint64_t slots; /* room for pairs; see above */
  void (*data_deleter)(void* data); /* frees `data`; NULL where the row stands behind this cell */
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
 * Where the body of an object begins. An expression such as
 * `TVMFFITensorGetDLTensorPtr(args[0].v_obj)->shape[0]` is all that a kernel needs.
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
 * A library is found by its file, and its functions by their symbols; there is no registration, and no code runs
 * when it is loaded. The functions of a loaded library stay valid until the process ends: farcall does not unload
 * libraries, because objects may hold their deleters.
 */

/* Prefix of the functions that a library exports. `__tvm_ffi_main` answers to the name "main". */
#define FARCALL_SYMBOL_PREFIX "__tvm_ffi_"

#ifdef __cplusplus
#define FARCALL_EXTERN_C extern "C"
#else
#define FARCALL_EXTERN_C
#endif

/*
 * Begins an exported kernel; its body follows in braces. The prototype comes first, because compilers that warn
 * about exported functions without one are right to.
 */
#define FARCALL_KERNEL(name)                                                                                 \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                        TVMFFIAny* result);                                  \
  FARCALL_EXTERN_C FARCALL_VISIBLE int __tvm_ffi_##name(                                                     \
      __attribute__((unused)) void* self, __attribute__((unused)) const TVMFFIAny* args,                     \
      __attribute__((unused)) int32_t num_args, __attribute__((unused)) TVMFFIAny* result)

/*
 * What a library may get from farcall without importing a symbol.
 *
 * A library that defines
 *
 *     FARCALL_VISIBLE const struct FarcallRuntime* __farcall_runtime;
 *
 * finds it filled after farcall loaded it, before any of its functions is called. It stays NULL in any other
 * runtime. So one library can serve both, bound to the runtime that loaded it, even where two runtimes live in
 * one process and the dynamic linker could choose only one of them.
 *
 * Later versions append members: look at `struct_size` before using one that is not listed here.
 */
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
   * A new Array of n values. Ownership of the items moves in, on failure too (they are released then).
   * `items` itself stays the caller's.
   */
  int (*array_create)(const TVMFFIAny* items, int64_t n, TVMFFIObjectHandle* out);
} FarcallRuntime;

#define FARCALL_ABI_VERSION 1u
#define FARCALL_RUNTIME_SYMBOL "__farcall_runtime"

/*
 * A library may say which version of the layouts it was built with, in a `const uint32_t` of this name: farcall
 * refuses to load another one than its own, and names both. FARCALL_SAY_ABI_VERSION, once in a library, does so.
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
FARCALL_PIN_SIZE(FarcallRuntime, FARCALL_AT(40, 24));

/* ---------------------------------------------------------------------------------------------------------
 * The functions that the runtime supplies. All of them may be called without the Python GIL, from any thread.
 * Those that return int return 0, or -1 with an error in this thread's slot.
 *
 * A library imports the ones that it uses, undefined; no library needs to be named at link time. When farcall loads
 * it, they are bound to farcall's, and when TVM FFI loads it, to that one's. A static library or a device without
 * a dynamic linker uses FarcallRuntime instead.
 */

/*
 * The version of the ABI that the runtime implements, not of a package. A library that needs a function of a later
 * version can ask before it calls.
 */
typedef struct {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} TVMFFIVersion;

TVM_FFI_DLL void TVMFFIGetVersion(TVMFFIVersion* out_version);

/* ---- objects ---- */

/*
 * One more, and one less, strong reference. The handle must not be NULL. The decrement may run the object's
 * deleter, and so anything: hold no lock that a deleter may want.
 */
TVM_FFI_DLL int TVMFFIObjectIncRef(TVMFFIObjectHandle obj);
TVM_FFI_DLL int TVMFFIObjectDecRef(TVMFFIObjectHandle obj);

/*
 * An object around a pointer, for values that only their maker understands. `type_index` is the tag that it
 * travels under, usually kTVMFFIOpaquePyObject or a registered one; `deleter` (may be NULL) gets `handle` when
 * the last reference goes, in whichever thread that is. The new reference in `out` is the caller's.
 */
TVM_FFI_DLL int TVMFFIObjectCreateOpaque(void* handle, int32_t type_index, void (*deleter)(void* handle),
                                         TVMFFIObjectHandle* out);

/*
 * Where a library gets the memory of its objects from, when it asks the runtime. Right before the body stands the
 * function that frees it, which the object's deleter calls with the body at the end. `allocate` gives NULL with an
 * error raised. Get never gives NULL; Set takes NULL for the runtime's own. farcall's objects do not use it.
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
 * A view becomes a value: raw text and bytes are copied into objects, objects get a reference more, an object
 * behind an RValueRef is taken. A DLTensorPtr is copied as it is, and stays borrowed: to keep such a tensor, copy
 * its elements. `out` is overwritten without a look at what it held.
 */
TVM_FFI_DLL int TVMFFIAnyViewToOwnedAny(const TVMFFIAny* any_view, TVMFFIAny* out);

/* ---- functions ---- */

/*
 * A Function object. `safe_call` gets `self` as its first argument; `deleter` (may be NULL) gets it when the
 * last reference goes. Where both are NULL, `safe_call` gets the Function's handle. This is how a kernel returns a
 * function with state, or passes one to another kernel. The new reference in `out` is the caller's.
 */
TVM_FFI_DLL int TVMFFIFunctionCreate(void* self, TVMFFISafeCallType safe_call, void (*deleter)(void* self),
                                     TVMFFIObjectHandle* out);

/*
 * Calls a Function, from whatever runtime or language it comes. Set result->type_index to kTVMFFINone before; what
 * is in `result` after 0 is the caller's to release. On -1 the error is in the slot: pass it on by returning -1,
 * or take it out by TVMFFIErrorMoveFromRaised.
 *
 * A Function may be a Python callable. It takes the GIL for itself, so call it without; and tensors of tag 7 among
 * the arguments are lent to it for the call only.
 */
TVM_FFI_DLL int TVMFFIFunctionCall(TVMFFIObjectHandle func, TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/*
 * The function that is registered under a name, as a new reference; NULL (and 0) when there is none. A lookup
 * hashes the name and takes a lock: keep the function when it is called often.
 */
TVM_FFI_DLL int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out);

/*
 * Registers a function under a name; takes a reference, and copies the name. A name that is taken is a ValueError,
 * unless `allow_override` is not 0, and never ends the process.
 */
TVM_FFI_DLL int TVMFFIFunctionSetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle f, int allow_override);

/* ---- errors ---- */

/*
 * Moves this thread's error out of its slot; NULL when there is none. The reference becomes the caller's. After
 * this, returning -1 without raising again is a failure that cannot say why.
 */
TVM_FFI_DLL void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* result);

/* Puts an error into this thread's slot, in place of what was there. The caller keeps its reference. */
TVM_FFI_DLL void TVMFFIErrorSetRaised(TVMFFIObjectHandle error);

/*
 * Makes an error and puts it there: what a kernel does before it returns -1. Both texts are copied. `kind` is the
 * name of a Python exception class; all builtin ones are known, and others can be registered.
 *
 *     if (n != 2) {
 *       TVMFFIErrorSetRaisedFromCStr("TypeError", "`dot` takes 2 arguments");
 *       return -1;
 *     }
 */
TVM_FFI_DLL void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

/*
 * The same, with the message in parts that are joined; a part that is NULL is left out. For generated code, whose
 * messages share their beginnings and ends.
 */
TVM_FFI_DLL void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** message_parts, int32_t num_parts);

/* Makes an error without raising it; a new reference in `out`. All texts are copied; `backtrace` may be empty. */
TVM_FFI_DLL int TVMFFIErrorCreate(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                  const TVMFFIByteArray* backtrace, TVMFFIObjectHandle* out);

/*
 * The same, with the error that was the cause, and an object that the host attaches. Takes a reference to each that
 * is not NULL; the caller keeps its own.
 */
TVM_FFI_DLL int TVMFFIErrorCreateWithCauseAndExtraContext(const TVMFFIByteArray* kind, const TVMFFIByteArray* message,
                                                          const TVMFFIByteArray* backtrace,
                                                          TVMFFIObjectHandle cause_chain,
                                                          TVMFFIObjectHandle extra_context, TVMFFIObjectHandle* out);

/*
 * The given place as text, in the form of a backtrace. The caller is remembered by its address, until the
 * thread's next one, and with FARCALL_BACKTRACE=1 in the environment all its callers: naming them costs more than the
 * rest of an error, and few are looked at. In Python farcall._core.last_backtrace() does. The text is the thread's, and valid until the next call.
 */
TVM_FFI_DLL const TVMFFIByteArray* TVMFFIBacktrace(const char* filename, int lineno, const char* func,
                                                   int cross_ffi_boundary);

/* ---- tensors ---- */

/*
 * A Tensor around a managed description, which is consumed on success: its deleter runs when the last reference
 * goes. An alignment of 0 accepts any address; another one is compared with the address of the first element.
 * Where `require_contiguous` is not 0, another layout is an error. Missing strides are filled in.
 *
 * Errors: RuntimeError for alignment, layout, another major version, or padded elements.
 */
TVM_FFI_DLL int TVMFFITensorFromDLPack(DLManagedTensor* from, int32_t require_alignment, int32_t require_contiguous,
                                       TVMFFIObjectHandle* out);
TVM_FFI_DLL int TVMFFITensorFromDLPackVersioned(DLManagedTensorVersioned* from, int32_t require_alignment,
                                                int32_t require_contiguous, TVMFFIObjectHandle* out);

/*
 * A managed description of a Tensor. It shares the memory and holds a reference, which its deleter gives up. The
 * versioned one carries the read-only flag on; the old one cannot say it.
 */
TVM_FFI_DLL int TVMFFITensorToDLPack(TVMFFIObjectHandle from, DLManagedTensor** out);
TVM_FFI_DLL int TVMFFITensorToDLPackVersioned(TVMFFIObjectHandle from, DLManagedTensorVersioned** out);

/*
 * A Tensor that looks at the memory of another as `prototype` says, and keeps that one alive. Nobody checks that the
 * dims, strides and offset stay inside.
 */
TVM_FFI_DLL int TVMFFITensorCreateUnsafeView(TVMFFIObjectHandle source, const DLTensor* prototype,
                                             TVMFFIObjectHandle* out);

/* ---- strings and types ---- */

/*
 * A string or bytes value: in place up to 7 bytes, an object above. The bytes are copied. What a kernel returns
 * as text is made by this, since a borrowed text may not be a result.
 */
TVM_FFI_DLL int TVMFFIStringFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
TVM_FFI_DLL int TVMFFIBytesFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);

/*
 * A whole number of any size, from and to its 64-bit words: the lowest first, each in this machine's order, two's
 * complement. What fits into 64 bits becomes a kTVMFFIInt, and never a BigInt. Get gives the words of either; those of
 * an Int stand in the Any, which must stay where it is. A value of another type gives NULL.
 */
TVM_FFI_DLL int TVMFFIBigIntFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
TVM_FFI_DLL TVMFFIByteArray TVMFFIBigIntGetContentByteArray(const TVMFFIAny* value);

/*
 * "float32" <-> {kDLFloat, 32, 1}. Names: int, uint, float, bfloat, complex with their bits, bool, handle, the 8-, 6-
 * and 4-bit floats by their formats ("float8_e4m3fn"), then "xN" for N lanes, as in "float32x4", or "xvscalexN" for a
 * multiple of N that the machine chooses (lanes: -N). "void" and "" mean no type, and "" is printed. Short forms
 * (f32, i8, u8, bf16) are read and never printed. An unknown name is a ValueError.
 */
TVM_FFI_DLL int TVMFFIDataTypeFromString(const TVMFFIByteArray* str, DLDataType* out);
TVM_FFI_DLL int TVMFFIDataTypeToString(const DLDataType* dtype, TVMFFIAny* out);

/* ---- the registry of types ----
 *
 * Libraries name types by text and meet by index. A type may be described by fields and methods, which is how one
 * language uses the objects of another. farcall keeps what libraries register, and gives it back.
 *
 * Registering the same thing twice is no error where both say the same, as when two copies of one library are
 * loaded. Saying something else is a ValueError, and never ends the process: while a library is being loaded, the
 * functions below return 0 all the same, because its initialisers could do nothing about it; loading then fails.
 */

typedef int (*TVMFFIFieldGetter)(void* field, TVMFFIAny* result);
typedef int (*TVMFFIFieldSetter)(void* field, const TVMFFIAny* value);
typedef int (*TVMFFIObjectCreator)(TVMFFIObjectHandle* result);

/* A field: a getter and a setter get the address of the object plus `offset`. */
typedef struct {
  TVMFFIByteArray name;
  TVMFFIByteArray doc;
  TVMFFIByteArray metadata; /* JSON */
  int64_t flags;            /* 1: may be written; 2: has a default; the others are other programs' business */
  int64_t size;
  int64_t alignment;
  int64_t offset;
  TVMFFIFieldGetter getter;
  void* setter; /* a TVMFFIFieldSetter, or with flag 1 << 11 a Function's handle */
  TVMFFIAny default_value_or_factory;
  int32_t field_static_type_index;
} TVMFFIFieldInfo;

/* A method: `method` is a Function that gets the object first. */
typedef struct {
  TVMFFIByteArray name;
  TVMFFIByteArray doc;
  TVMFFIByteArray metadata;
  int64_t flags; /* 4: static, it gets no object */
  TVMFFIAny method;
} TVMFFIMethodInfo;

typedef struct {
  TVMFFIByteArray doc;
  TVMFFIObjectCreator creator; /* makes an object with its defaults; may be NULL */
  int32_t total_size;
  int32_t structural_eq_hash_kind;
} TVMFFITypeMetadata;

/* What is known of a type. It stays where it is; fields and methods may be added. */
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

/* One attribute of all types: the value of type i is data[i - begin_index], None where there is none. */
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
 * The index of a type, which is made where the name is new: `static_type_index` when that is not negative, else one
 * behind its parent in the room that the parent has kept for children, else one behind all others. With a parent of
 * -2 it only looks, and gives -2 for an unknown name; a parent of -1 makes a root.
 */
TVM_FFI_DLL int32_t TVMFFITypeGetOrAllocIndex(const TVMFFIByteArray* type_key, int32_t static_type_index,
                                              int32_t type_depth, int32_t num_child_slots,
                                              int32_t child_slots_can_overflow, int32_t parent_type_index);

/* What is known of a type; never NULL: an index that nobody registered is described as "(unregistered type)". */
TVM_FFI_DLL const TVMFFITypeInfo* TVMFFIGetTypeInfo(int32_t type_index);

/* Each copies what it is given. IndexError for a type that nobody registered. */
TVM_FFI_DLL int TVMFFITypeRegisterField(int32_t type_index, const TVMFFIFieldInfo* info);
TVM_FFI_DLL int TVMFFITypeRegisterMethod(int32_t type_index, const TVMFFIMethodInfo* info);
TVM_FFI_DLL int TVMFFITypeRegisterMetadata(int32_t type_index, const TVMFFITypeMetadata* metadata);
TVM_FFI_DLL int TVMFFITypeRegisterAttr(int32_t type_index, const TVMFFIByteArray* attr_name,
                                       const TVMFFIAny* attr_value);

/* The column of an attribute, which stays where it is and grows; NULL when no type has it. */
TVM_FFI_DLL const TVMFFITypeAttrColumn* TVMFFIGetTypeAttrColumn(const TVMFFIByteArray* attr_name);

/* Registers a global function with its name, docs and metadata. */
TVM_FFI_DLL int TVMFFIFunctionSetGlobalFromMethodInfo(const TVMFFIMethodInfo* method_info, int allow_override);

/* ---- once ---- */

/*
 * Runs `init` once for this slot, whichever thread comes first, and stores what it gives. A failed `init`, or
 * one that gives NULL, is an error and leaves the slot NULL; the next call tries again. Deinit takes the value out and hands it to `deinit`. The slot is a
 * static variable of the library, NULL at first; after the first time, the cost is one load.
 */
TVM_FFI_DLL int TVMFFIHandleInitOnce(void** handle_addr, int (*init_func)(void** result));
TVM_FFI_DLL int TVMFFIHandleDeinitOnce(void** handle_addr, int (*deinit_func)(void* handle));

/* ---- the environment of a call ---- */

typedef void* TVMFFIStreamHandle;

/*
 * This thread's stream on a device, on which a kernel puts its work; NULL is the device's default stream. Set gives
 * the previous one in its last argument (may be NULL), so that it can be set back.
 */
TVM_FFI_DLL int TVMFFIEnvSetStream(int32_t device_type, int32_t device_id, TVMFFIStreamHandle stream,
                                   TVMFFIStreamHandle* opt_out_original_stream);
TVM_FFI_DLL TVMFFIStreamHandle TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

/*
 * The allocator of TVMFFIEnvTensorAlloc: this thread's, and the process's too when `write_to_global_context` is not
 * 0. NULL removes it. Set gives the thread's previous one (its last argument may be NULL); Get gives the thread's,
 * else the process's. Hosts use these. The framework of a call's arguments needs no setting, and comes first.
 */
TVM_FFI_DLL int TVMFFIEnvSetDLPackManagedTensorAllocator(DLPackManagedTensorAllocator allocator,
                                                         int write_to_global_context,
                                                         DLPackManagedTensorAllocator* opt_out_original_allocator);
TVM_FFI_DLL DLPackManagedTensorAllocator TVMFFIEnvGetDLPackManagedTensorAllocator(void);

/*
 * An empty row-major Tensor of the prototype's dtype, shape and device, from whoever owns the memory of this
 * call: the framework of its tensor arguments, an allocator that was set, or farcall's own (CPU, aligned to 64).
 * Strides and byte_offset of the prototype are not looked at, nor is its data: the description of an input will do.
 *
 *     TVMFFIObjectHandle y;
 *     if (TVMFFIEnvTensorAlloc(x, &y) != 0) return -1;
 *     fill(TVMFFITensorGetDLTensorPtr(y));
 *     result->type_index = kTVMFFITensor;
 *     result->v_obj = (TVMFFIObject*)y;
 *     return 0;
 *
 * Errors: MemoryError; ValueError for a negative dim; RuntimeError for a device that nobody here allocates on.
 */
TVM_FFI_DLL int TVMFFIEnvTensorAlloc(DLTensor* prototype, TVMFFIObjectHandle* out);

/*
 * Call it in loops that last: not 0 says that the host was interrupted (Ctrl-C, or another signal whose handler
 * raised). Clean up and return -1; the error is set already. It takes the GIL, so every few milliseconds is enough.
 */
TVM_FFI_DLL int TVMFFIEnvCheckSignals(void);

/*
 * A host that is not farcall's own names its functions: "PyErr_CheckSignals", "PyGILState_Ensure" and
 * "PyGILState_Release". Another name is a ValueError. farcall, which is Python already, needs none of them.
 */
TVM_FFI_DLL int TVMFFIEnvRegisterCAPI(const char* name, void* symbol);

/* ---- modules ---- */

/*
 * The function of that name in the modules that a library imports, else the global one; RuntimeError when there is
 * none. `library_ctx` is what the loader has put into the library's `__tvm_ffi__library_ctx`. The module keeps the
 * function: the reference in `out` is borrowed.
 */
TVM_FFI_DLL int TVMFFIEnvModLookupFromImports(TVMFFIObjectHandle library_ctx, const char* func_name,
                                              TVMFFIObjectHandle* out);

/*
 * Every library that is loaded from now on and has a variable of this name (a void*) finds `symbol` in it. For
 * generated code that must not import anything.
 */
TVM_FFI_DLL int TVMFFIEnvModRegisterContextSymbol(const char* name, void* symbol);

/*
 * Adds a symbol to the system library: what is linked into this process, as on a device without a dynamic linker.
 * `name` is the whole symbol, with its prefix. Registering another address under a name replaces the first.
 */
TVM_FFI_DLL int TVMFFIEnvModRegisterSystemLibSymbol(const char* name, void* symbol);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FARCALL_C_API_H_ */
