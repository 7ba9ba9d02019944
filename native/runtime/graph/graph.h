/*
 * Graphs as data, and the interpreter that runs them: modules of the kind `farcall.json`. docs/spec/graph.md is the
 * specification of the payload.
 *
 * A payload is parsed once, into functions that are checked: every index is within its table, and nothing writes to a
 * constant or an input. What depends on sizes is checked when the sizes are known: at once if they are numbers, and by
 * each call if they are symbolic.
 */
#ifndef FARCALL_RUNTIME_GRAPH_GRAPH_H_
#define FARCALL_RUNTIME_GRAPH_GRAPH_H_

#include "runtime/module.h"

enum { FC_GRAPH_RANK = 8, FC_GRAPH_OPERANDS = 3 };

/* What a value computes with. Small integers and bool are widened to 64 bits. Operators take no carried values. */
typedef enum { FC_GRAPH_F32, FC_GRAPH_F64, FC_GRAPH_I64, FC_GRAPH_CARRIED } FcGraphWide;

typedef struct {
  DLDataType dlpack;
  uint8_t size; /* bytes */
  uint8_t wide; /* FcGraphWide */
} FcGraphDtype;

/* A number of the payload: a literal, or FC_GRAPH_SIZE + the index of a size. */
typedef int64_t FcGraphNumber;
#define FC_GRAPH_SIZE INT64_MIN
#define FC_GRAPH_LITERALS (INT64_MIN + (1 << 24)) /* literals are above */

/* A value as a call has it. */
typedef struct {
  char* data;
  const int64_t* dims;
  int64_t count; /* elements */
  uint8_t rank, dtype;
} FcGraphValue;

typedef enum {
  FC_GRAPH_ARGUMENT,  /* `from`: its index among the tensors of a call */
  FC_GRAPH_CONSTANT,  /* `from`: its index among the constants that __init_<function> gets */
  FC_GRAPH_DATA,      /* `from`: the offset of its data in the payload; or `data` is set */
  FC_GRAPH_WORKSPACE, /* `from`: its offset there */
  FC_GRAPH_ALIAS      /* `from`: the value, an earlier one, whose data it has */
} FcGraphPlace;

typedef struct {
  uint8_t place, rank, dtype;
  bool writable;
  FcGraphNumber from;
  int32_t dims; /* index of its first dim in `numbers` */
  char* data;   /* of constants; NULL until they are known */
} FcGraphValueInfo;

typedef struct {
  uint8_t op; /* index in fc_graph_ops */
  uint8_t num_inputs, num_outputs;
  int32_t values;  /* index of its first input in `operands`; its outputs follow */
  int32_t numbers; /* index of its first number */
  int32_t num_numbers;
  int32_t callee; /* of a call: index in the graph's `callees` */
} FcGraphNode;

/* A size: a symbol, or an operation on two numbers. */
typedef struct {
  uint8_t op; /* index in the names of fc_graph_size_op; 0: a symbol */
  FcGraphNumber a, b;
} FcGraphSize;

struct FcGraph;

typedef struct FcGraphFunction {
  struct FcGraph* graph;
  const char* name;
  int32_t num_values, num_nodes, num_sizes, num_symbols, num_inputs, num_outputs, num_constants;
  int32_t num_numbers, num_operands, num_extra, num_equal;
  int32_t equal; /* index of the first of pairs of numbers that must be equal */
  FcGraphValueInfo* values;
  FcGraphNode* nodes;
  FcGraphSize* sizes;    /* the symbols come first */
  FcGraphNumber* numbers; /* dims of values, then the numbers of nodes */
  int32_t* operands;
  int32_t* arguments; /* the values that are inputs and outputs */
  int32_t* extra;     /* symbols that no input shows: a call passes them */
  FcGraphNumber workspace;
  FcGraphValue* resolved;    /* of a function without sizes: its values and numbers; else NULL */
  int64_t* resolved_numbers;
  bool ready;             /* all constants are known */
} FcGraphFunction;

/* A function that nodes call: of this graph, or of an import of its module. */
typedef struct {
  const char* name;
  FcGraphFunction* function; /* of this graph; else NULL */
  TVMFFIObject* import;      /* of an import: found once, and given its constants */
  const char* region;        /* what it computes, for errors and traces; or NULL */
  const char* place;         /* the same, with its backend; or NULL */
  const char* kind;          /* of its module; or NULL */
  bool workspace;            /* the last tensor of a call is working memory: it gets a pointer */
  DLTensor* constants;       /* their shapes and data are the graph's */
  int32_t num_constants;
} FcGraphCallee;

typedef struct FcGraph {
  int64_t references;
  TVMFFIObject* module; /* which keeps the graph; borrowed */
  TVMFFIObject* keeper; /* keeps `bytes` where they are; NULL: they are a copy of its own */
  const char* bytes;    /* the whole module: a frame, or only the payload */
  const char* payload;
  size_t size, payload_size, text; /* bytes of the module, of the payload, and of the payload's text */
  void* blocks;      /* all memory of the graph */
  int32_t num_functions, num_callees, num_imports;
  FcGraphFunction* functions;
  FcGraphCallee* callees; /* the imports that the payload declares come first */
  FcMutex lock;           /* while an import is found; recursive */
  TVMFFIObject** held; /* Arrays of constants, one a function; or NULL */
} FcGraph;

/* What a kernel sees of a call. */
typedef struct {
  FcGraphValue *in[FC_GRAPH_OPERANDS], *out;
  const int64_t* numbers;
  int32_t num_inputs, num_numbers;
  uint8_t op;
} FcGraphStep;

typedef struct {
  const char* name;
  uint8_t least, most; /* inputs */
  uint8_t code;        /* for the kernel */
  /* Whether shapes, dtypes and numbers fit: the kernel relies on it. */
  bool (*fits)(const FcGraphStep* step);
  /* -1 with an error. */
  int (*run)(const FcGraphStep* step);
} FcGraphOp;

extern const FcGraphOp fc_graph_ops[];
extern const int32_t fc_graph_num_ops;
extern const FcGraphDtype fc_graph_dtypes[];

/* ---- parsing: parse.c ---- */

/* Memory that the graph frees with itself; zeroed. NULL with an error. */
void* fc_graph_room(FcGraph* graph, size_t count, size_t size);
int fc_graph_parse(FcGraph* graph);
int fc_graph_dtype(const char* name, size_t size);

/* ---- sizes.c ---- */

/* The index of an operation on sizes; -1 if there is none of that name. */
int fc_graph_size_op(const char* name, size_t size);
/* Computes all sizes but the symbols, which the caller has set. */
int fc_graph_sizes(const FcGraphFunction* function, int64_t* sizes);
/* Sets dims and counts of all values, and the numbers, and checks each node. */
int fc_graph_resolve(const FcGraphFunction* function, const int64_t* sizes, int64_t* numbers, FcGraphValue* values);
static inline int64_t fc_graph_number(FcGraphNumber number, const int64_t* sizes) {
  return number < FC_GRAPH_LITERALS ? sizes[number - FC_GRAPH_SIZE] : number;
}

/* ---- running ---- */

FcGraphStep fc_graph_step(const FcGraphFunction* function, const FcGraphNode* node, FcGraphValue* values,
                          const int64_t* numbers);
enum { FC_GRAPH_CALL = 0 }; /* the index of the operator that calls a function */
/* The universal signature; self is an FcGraphFunction. */
int fc_graph_call(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result);
/* Gets the constants of a function: an Array of Tensors, which it keeps. */
int fc_graph_init(FcGraphFunction* function, const TVMFFIAny* constants);

/* ---- imports.c ---- */

/* The function of an import, borrowed: found once, and given its constants. NULL with an error. */
TVMFFIObject* fc_graph_import(FcGraph* graph, FcGraphCallee* callee);
/* Finds all imports that the payload declares; -1 with an error. */
int fc_graph_start(FcGraph* graph);

/* ---- kernels ---- */

bool fc_graph_map_fits(const FcGraphStep* step);
int fc_graph_map(const FcGraphStep* step);
bool fc_graph_reduce_fits(const FcGraphStep* step);
int fc_graph_reduce(const FcGraphStep* step);
bool fc_graph_move_fits(const FcGraphStep* step);
int fc_graph_move(const FcGraphStep* step);
bool fc_graph_sizes_fit(const FcGraphStep* step);
int fc_graph_write_sizes(const FcGraphStep* step);
bool fc_graph_gather_fits(const FcGraphStep* step);
int fc_graph_gather(const FcGraphStep* step);
bool fc_graph_matmul_fits(const FcGraphStep* step);
int fc_graph_matmul(const FcGraphStep* step);
bool fc_graph_conv_fits(const FcGraphStep* step);
int fc_graph_conv(const FcGraphStep* step);
bool fc_graph_pool_fits(const FcGraphStep* step);
int fc_graph_pool(const FcGraphStep* step);

/* Elements in their widened form. */
enum { FC_GRAPH_CHUNK = 128 };
typedef union {
  float f32[FC_GRAPH_CHUNK];
  double f64[FC_GRAPH_CHUNK];
  int64_t i64[FC_GRAPH_CHUNK];
} FcGraphChunk;
/* Reads `n` elements, `stride` apart, if fc_graph_loads says that these two go together; writes at most a chunk. */
void fc_graph_load(void* to, FcGraphWide wide, const char* from, uint8_t dtype, ptrdiff_t stride, ptrdiff_t n);
void fc_graph_store(char* to, uint8_t dtype, const void* from, FcGraphWide wide, ptrdiff_t n);
bool fc_graph_loads(uint8_t dtype, FcGraphWide wide);
static inline FcGraphWide fc_graph_wide(const FcGraphValue* value) { return fc_graph_dtypes[value->dtype].wide; }
static inline uint8_t fc_graph_size(const FcGraphValue* value) { return fc_graph_dtypes[value->dtype].size; }

#endif /* FARCALL_RUNTIME_GRAPH_GRAPH_H_ */
