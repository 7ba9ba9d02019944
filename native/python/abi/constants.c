/* Exports the numbers in a Signature's program to farcall.abi.calls._program and farcall.abi._dims, which write it. */
#include "python/abi/abi.h"
#include "python/constants.h"

static const FcNumber leaf_kinds[] = {{"tensor", FC_LEAF_TENSOR}, {"scalar", FC_LEAF_SCALAR}, {"ref", FC_LEAF_REF},
                                      {"list", FC_LEAF_LIST},     {"rules", FC_LEAF_RULES},   {NULL, 0}};

static const FcNumber leaf_flags[] = {{"optional", FC_LEAF_OPTIONAL}, {"strided", FC_LEAF_STRIDED},
                                      {"written", FC_LEAF_WRITTEN},   {"any_dtype", FC_LEAF_ANY_DTYPE},
                                      {"any_rank", FC_LEAF_ANY_RANK}, {"on_device", FC_LEAF_ON_DEVICE},
                                      {"repeated", FC_LEAF_REPEATED}, {NULL, 0}};

static const FcNumber refs[] = {{"any", FC_REF_ANY},       {"function", FC_REF_FUNCTION},
                                {"module", FC_REF_MODULE}, {"object", FC_REF_OBJECT},
                                {"str", FC_REF_STR},       {"bytes", FC_REF_BYTES},
                                {"dtype", FC_REF_DTYPE},   {"device", FC_REF_DEVICE},
                                {"shape", FC_REF_SHAPE},   {NULL, 0}};

static const FcNumber nodes[] = {{"slot", FC_NODE_SLOT},           {"nothing", FC_NODE_NOTHING},
                                 {"list", FC_NODE_LIST},           {"tuple", FC_NODE_TUPLE},
                                 {"dict", FC_NODE_DICT},           {"namedtuple", FC_NODE_NAMEDTUPLE},
                                 {"dataclass", FC_NODE_DATACLASS}, {NULL, 0}};

static const FcNumber arrays[] = {
    {"farcall", FC_ARRAYS_FARCALL}, {"numpy", FC_ARRAYS_NUMPY}, {"rules", FC_ARRAYS_RULES}, {NULL, 0}};

static const FcNumber dims[] = {{"any", FC_DIM_ANY}, {"expression", FC_DIM_EXPRESSION}, {NULL, 0}};

static const FcNumber operations[] = {{"constant", FC_OP_CONSTANT},
                                      {"symbol", FC_OP_SYMBOL},
                                      {"add", FC_OP_ADD},
                                      {"subtract", FC_OP_SUBTRACT},
                                      {"multiply", FC_OP_MULTIPLY},
                                      {"floor_divide", FC_OP_FLOOR_DIVIDE},
                                      {"larger", FC_OP_LARGER},
                                      {"smaller", FC_OP_SMALLER},
                                      {"end", FC_OP_END},
                                      {"max_stack", FC_OP_MAX_STACK},
                                      {NULL, 0}};

int fc_program_constants(PyObject* module) {
  static const struct {
    const char* name;
    const FcNumber* numbers;
  } tables[] = {{"LEAF_KINDS", leaf_kinds}, {"LEAF_FLAGS", leaf_flags}, {"REF_KINDS", refs},
                {"NODE_KINDS", nodes},      {"ARRAY_KINDS", arrays},    {"DIMS", dims},
                {"OPERATIONS", operations}};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    if (fc_add_numbers(module, tables[i].name, tables[i].numbers) != 0) return -1;
  }
  return 0;
}
