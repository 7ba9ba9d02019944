/* The operators. The backend `json` lowers ONNX's operators to these: src/farcall/backends/json/. */
#include "runtime/graph/graph.h"
#include "runtime/graph/map.h"

#define MAP(name, inputs, code) {name, inputs, inputs, code, fc_graph_map_fits, fc_graph_map}
#define REDUCE(name, code) {name, 1, 1, code, fc_graph_reduce_fits, fc_graph_reduce}

/* The first is FC_GRAPH_CALL; the codes of reductions and of pooling are in their files. */
const FcGraphOp fc_graph_ops[] = {
    {"call", 0, 255, 0, NULL, NULL},
    {"move", 1, 1, 0, fc_graph_move_fits, fc_graph_move},
    {"sizes", 0, 0, 0, fc_graph_sizes_fit, fc_graph_write_sizes},
    {"gather", 2, 2, 0, fc_graph_gather_fits, fc_graph_gather},
    {"matmul", 2, 2, 0, fc_graph_matmul_fits, fc_graph_matmul},
    {"conv", 2, 3, 0, fc_graph_conv_fits, fc_graph_conv},
    {"maxpool", 1, 1, 0, fc_graph_pool_fits, fc_graph_pool},
    {"averagepool", 1, 1, 1, fc_graph_pool_fits, fc_graph_pool},
    REDUCE("reduce_sum", 0),
    REDUCE("reduce_mean", 1),
    REDUCE("reduce_max", 2),
    REDUCE("reduce_min", 3),
    REDUCE("reduce_prod", 4),
    MAP("cast", 1, FC_MAP_CAST),
    MAP("where", 3, FC_MAP_WHERE),
    MAP("eq", 2, FC_MAP_EQ),
    MAP("lt", 2, FC_MAP_LT),
    MAP("le", 2, FC_MAP_LE),
    MAP("not", 1, FC_MAP_NOT),
    MAP("isnan", 1, FC_MAP_ISNAN),
    MAP("add", 2, FC_MAP_ADD),
    MAP("sub", 2, FC_MAP_SUB),
    MAP("mul", 2, FC_MAP_MUL),
    MAP("div", 2, FC_MAP_DIV),
    MAP("min", 2, FC_MAP_MIN),
    MAP("max", 2, FC_MAP_MAX),
    MAP("mod", 2, FC_MAP_MOD),
    MAP("fmod", 2, FC_MAP_FMOD),
    MAP("neg", 1, FC_MAP_NEG),
    MAP("abs", 1, FC_MAP_ABS),
    MAP("sign", 1, FC_MAP_SIGN),
    MAP("and", 2, FC_MAP_AND),
    MAP("or", 2, FC_MAP_OR),
    MAP("xor", 2, FC_MAP_XOR),
    MAP("pow", 2, FC_MAP_POW),
    MAP("sqrt", 1, FC_MAP_SQRT),
    MAP("exp", 1, FC_MAP_EXP),
    MAP("log", 1, FC_MAP_LOG),
    MAP("floor", 1, FC_MAP_FLOOR),
    MAP("ceil", 1, FC_MAP_CEIL),
    MAP("round", 1, FC_MAP_ROUND),
    MAP("erf", 1, FC_MAP_ERF),
    MAP("tanh", 1, FC_MAP_TANH),
    MAP("sigmoid", 1, FC_MAP_SIGMOID),
    MAP("log1p", 1, FC_MAP_LOG1P),
    MAP("sin", 1, FC_MAP_SIN),
    MAP("cos", 1, FC_MAP_COS),
    MAP("tan", 1, FC_MAP_TAN),
    MAP("asin", 1, FC_MAP_ASIN),
    MAP("acos", 1, FC_MAP_ACOS),
    MAP("atan", 1, FC_MAP_ATAN),
    MAP("sinh", 1, FC_MAP_SINH),
    MAP("cosh", 1, FC_MAP_COSH),
    MAP("asinh", 1, FC_MAP_ASINH),
    MAP("acosh", 1, FC_MAP_ACOSH),
    MAP("atanh", 1, FC_MAP_ATANH),
};
const int32_t fc_graph_num_ops = sizeof fc_graph_ops / sizeof *fc_graph_ops;

FcGraphStep fc_graph_step(const FcGraphFunction* function, const FcGraphNode* node, FcGraphValue* values,
                          const int64_t* numbers) {
  const int32_t* operands = function->operands + node->values;
  FcGraphStep step = {.numbers = numbers + node->numbers,
                      .num_inputs = node->num_inputs,
                      .num_numbers = node->num_numbers,
                      .op = node->op};
  for (int i = 0; i < node->num_inputs && i < FC_GRAPH_OPERANDS; ++i) step.in[i] = &values[operands[i]];
  if (node->num_outputs) step.out = &values[operands[node->num_inputs]];
  return step;
}
