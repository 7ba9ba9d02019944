/*
 * A Signature as a small program, compiled once: it walks Python's nested values, checks each leaf, and builds
 * nested results.
 *
 * It never refuses: a call that is not plainly right (wrong, or in need of a copy or a cast) goes to the typed rules in
 * farcall.abi, which convert it or report every problem. The rules here are a subset of those; tests/abi compares them.
 */
#ifndef FARCALL_PYTHON_ABI_ABI_H_
#define FARCALL_PYTHON_ABI_ABI_H_

#include "python/args.h"

enum {
  FC_LEAF_TENSOR,
  FC_LEAF_SCALAR,
  FC_LEAF_REF,
  FC_LEAF_LIST,
  FC_LEAF_RULES /* always left to the typed rules */
};

enum {
  FC_LEAF_OPTIONAL = 1,
  FC_LEAF_STRIDED = 2,
  FC_LEAF_WRITTEN = 4,
  FC_LEAF_ANY_DTYPE = 8,
  FC_LEAF_ANY_RANK = 16,
  FC_LEAF_ON_DEVICE = 32,
  FC_LEAF_REPEATED = 64 /* of a list: any number of items, each like the first */
};

/* A dim is a size, FC_DIM_ANY, ~k - 1 for the symbol k, or FC_DIM_EXPRESSION + i for the code at place i. */
enum { FC_DIM_ANY = -1 };
#define FC_DIM_EXPRESSION INT64_MIN

/* The code of an expression: the symbol that it can be solved for (or -1), then postfix notation up to FC_OP_END. */
enum {
  FC_OP_CONSTANT,
  FC_OP_SYMBOL,
  FC_OP_ADD,
  FC_OP_SUBTRACT,
  FC_OP_MULTIPLY,
  FC_OP_FLOOR_DIVIDE,
  FC_OP_LARGER,
  FC_OP_SMALLER,
  FC_OP_END
};
enum { FC_OP_MAX_STACK = 16 };

typedef struct FcLeaf {
  uint8_t kind, flags;
  int16_t ref; /* FC_REF_* of a reference */
  DLDataType dtype;
  DLDevice device;
  int32_t ndim;
  uint64_t alignment; /* less one: a mask */
  const int64_t* dims;
  const int64_t* code; /* of all expressions of the program */
  const struct FcLeaf* items;
  int32_t n_items;
} FcLeaf;

enum {
  FC_REF_ANY,
  FC_REF_FUNCTION,
  FC_REF_MODULE,
  FC_REF_OBJECT,
  FC_REF_STR,
  FC_REF_BYTES,
  FC_REF_DTYPE,
  FC_REF_DEVICE,
  FC_REF_SHAPE
};

enum {
  FC_NODE_SLOT,
  FC_NODE_NOTHING,
  FC_NODE_LIST,
  FC_NODE_TUPLE,
  FC_NODE_DICT,
  FC_NODE_NAMEDTUPLE,
  FC_NODE_DATACLASS
};

/* Its children stand together. What is borrowed belongs to the program's spec. */
typedef struct {
  uint8_t kind;
  int32_t slot;
  int32_t first, count;
  PyObject* keys;  /* tuple of str: of a dict, a namedtuple, a dataclass */
  PyObject* class; /* of the last two */
} FcNode;

typedef struct {
  PyObject* name;
  PyObject* default_value; /* NULL: there is none */
  bool by_position, by_name;
} FcParameter;

enum { FC_ARRAYS_FARCALL, FC_ARRAYS_NUMPY, FC_ARRAYS_RULES };

typedef struct {
  PyObject_HEAD PyObject* spec; /* what it was compiled from; holds all Python objects */
  FcLeaf *inputs, *outputs;
  FcNode* nodes; /* those of the parameters first, in order; then the result's */
  FcParameter* parameters;
  int64_t *dims, *code;
  Py_ssize_t n_inputs, n_outputs, n_parameters, n_positional, n_symbols;
  Py_ssize_t rest; /* the parameter of further positional arguments; -1: none */
  uint64_t writes; /* see FcFunction */
  int arrays;      /* what unpack_results makes of tensors: FC_ARRAYS_* */
  char cleared;    /* as garbage, but still within reach of a callback */
  char destinations; /* the function takes tensors for its results behind its arguments */
} FcProgram;

extern PyTypeObject FcProgram_Type;

/* ---- compiling ---- */

int fc_program_init(PyObject* self, PyObject* args, PyObject* kwargs);
void fc_program_free(FcProgram* program);

/* ---- one call ---- */

enum { FC_INLINE_LEAVES = 16 };

/* The leaves of one call (owned), and the sizes of the symbols: -1 is not yet known. */
typedef struct {
  PyObject** leaves;
  int64_t* symbols;
  Py_ssize_t n;
  void* heap;
  PyObject* rest; /* the tuple of further positional arguments, or NULL */
  PyObject* inline_leaves[FC_INLINE_LEAVES];
  int64_t inline_symbols[FC_INLINE_LEAVES];
} FcBinding;

/*
 * 1: bound; 0: not plainly right, without an exception; -1: with one. The caller must end the binding in any case.
 * After the leaves is room for `room` more values, which are None.
 */
int fc_binding_begin(FcBinding* binding, const FcProgram* program, Py_ssize_t room, PyObject* const* objects,
                     Py_ssize_t n, PyObject* kwnames);
void fc_binding_end(FcBinding* binding);
PyObject* fc_tuple_of(PyObject* const* objects, Py_ssize_t n);
/* Room for n leaves, none of which is set yet. */
int fc_binding_reserve(FcBinding* binding, const FcProgram* program, Py_ssize_t n);

/* Whether a value plainly matches the leaf. Converts an int to float where the leaf is a float. */
bool fc_leaf_accepts(const FcLeaf* leaf, TVMFFIAny* value, int64_t* symbols);

/* The names of sizes in a leaf's dims, from a value that the typed rules found right. */
void fc_leaf_learn(const FcLeaf* leaf, const TVMFFIAny* value, int64_t* symbols);

/* Whether a dim has this size. Sets the size of a name that is not known yet. */
bool fc_dim_accepts(const FcLeaf* leaf, int32_t axis, int64_t size, int64_t* symbols);
/* The size of a dim; -1 if its names are not known. */
int64_t fc_dim_size(const FcLeaf* leaf, int32_t axis, const int64_t* symbols);

/* The result from the values of the leaves, which are borrowed. New reference. */
PyObject* fc_program_build(const FcProgram* program, PyObject* const* values);

/*
 * Tensors for the results of a call, behind its arguments, where the sizes of the call or the typed rules say their
 * dims; `made` (n_outputs) borrows them from the call, NULL for others. And the result of a function that returned
 * nothing. 0, or -1 with an exception.
 */
int fc_destinations_place(FcProgram* program, FcArgs* args, const FcBinding* binding, TVMFFIObject** made);
int fc_destinations_result(const FcProgram* program, TVMFFIObject* const* made, TVMFFIAny* result);

/* The numbers above that farcall.abi writes a program with, as mappings of the module. 0, or -1 with an exception. */
int fc_program_constants(PyObject* module);

/* A call of a Function with a Signature. */
PyObject* fc_program_call(FcFunction* function, PyObject* const* objects, Py_ssize_t n, PyObject* kwnames);

#endif /* FARCALL_PYTHON_ABI_ABI_H_ */
