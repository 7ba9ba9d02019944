/*
 * Python's lock in threads that native code owns, also while the interpreter shuts down.
 *
 * Until CPython 3.14 a thread that wants the lock then is ended by pthread_exit, which unwinds its stack. C++ frames
 * stand in the way: `catch (...)` and `noexcept`, which kernels are full of, abort the process. Where Python runs
 * below native frames, such a thread waits for the end of the process instead, as CPython 3.14 has it.
 */
#ifndef FARCALL_PYTHON_GIL_H_
#define FARCALL_PYTHON_GIL_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

/* From 3.13 on the test has a public name. */
#if PY_VERSION_HEX >= 0x030D0000
#define FC_IS_FINALIZING Py_IsFinalizing()
#else
#define FC_IS_FINALIZING _Py_IsFinalizing()
#endif

/* False before the interpreter starts, while it shuts down, and after. */
bool fc_interpreter_runs(void);

/* Returns only when the interpreter runs: then it was not Python that ends this thread. */
FC_COLD void fc_wait_for_exit(void* unused);

/*
 * Between these two, in one block and without a return, Python may end the thread: its stack is not unwound further.
 * It costs nothing where the compiler has -fexceptions for C, else a setjmp.
 */
#define FC_BEGIN_STOP_UNWINDING pthread_cleanup_push(fc_wait_for_exit, NULL)
#define FC_END_STOP_UNWINDING pthread_cleanup_pop(0)

/* PyGILState_Ensure; false, and nothing is held, when the interpreter does not run. */
bool fc_gil_take(PyGILState_STATE* state);

/* Drops a reference to a Python object, from any thread; while the interpreter shuts down, the object stays. */
void fc_drop_anywhere(void* object);
/* The same for the object that owns a tensor's memory: a release of fc_tensor_new. */
void fc_drop_context(FcTensorObj* tensor);

#endif /* FARCALL_PYTHON_GIL_H_ */
