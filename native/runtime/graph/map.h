/* The codes of operators that work element by element. */
#ifndef FARCALL_RUNTIME_GRAPH_MAP_H_
#define FARCALL_RUNTIME_GRAPH_MAP_H_

typedef enum {
  FC_MAP_CAST, /* any dtype to any */
  FC_MAP_WHERE,
  /* results are bool */
  FC_MAP_EQ,
  FC_MAP_LT,
  FC_MAP_LE,
  FC_MAP_NOT,
  FC_MAP_ISNAN,
  /* all wide types */
  FC_MAP_ADD,
  FC_MAP_SUB,
  FC_MAP_MUL,
  FC_MAP_DIV,
  FC_MAP_MIN,
  FC_MAP_MAX,
  FC_MAP_MOD,  /* the sign of the divisor */
  FC_MAP_FMOD, /* the sign of the dividend */
  FC_MAP_POW,
  FC_MAP_NEG,
  FC_MAP_ABS,
  FC_MAP_SIGN,
  /* integers */
  FC_MAP_AND,
  FC_MAP_OR,
  FC_MAP_XOR,
  /* float32 and float64 */
  FC_MAP_SQRT,
  FC_MAP_EXP,
  FC_MAP_LOG,
  FC_MAP_FLOOR,
  FC_MAP_CEIL,
  FC_MAP_ROUND,
  FC_MAP_ERF,
  FC_MAP_TANH,
  FC_MAP_SIGMOID,
  /* float32 */
  FC_MAP_LOG1P,
  FC_MAP_SIN,
  FC_MAP_COS,
  FC_MAP_TAN,
  FC_MAP_ASIN,
  FC_MAP_ACOS,
  FC_MAP_ATAN,
  FC_MAP_SINH,
  FC_MAP_COSH,
  FC_MAP_ASINH,
  FC_MAP_ACOSH,
  FC_MAP_ATANH
} FcMapCode;

#endif /* FARCALL_RUNTIME_GRAPH_MAP_H_ */
