/*
 * The GIL in threads that native code owns, also while the interpreter shuts down.
 *
 * Before 3.14, CPython ends a thread that takes the GIL during shutdown by pthread_exit, which unwinds its stack. A
 * C++ frame with `catch (...)` or `noexcept`, as many kernels have, then aborts the process. Where native frames call
 * Python, such a thread waits for the end of the process instead, as in CPython 3.14.
 */
#ifndef FARCALL_PYTHON_GIL_H_
#define FARCALL_PYTHON_GIL_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/runtime.h"

/* Python 3.13 made the test public. */
#if PY_VERSION_HEX >= 0x030D0000
#define FC_IS_FINALIZING Py_IsFinalizing()
#else
#define FC_IS_FINALIZING _Py_IsFinalizing()
#endif

/* False before the interpreter starts, while it shuts down, and after. */
bool fc_interpreter_runs(void);

/* Returns only if the interpreter runs, that is, if it is not Python that ends this thread. */
FC_COLD void fc_wait_for_exit(void* unused);

/*
 * Around code in which Python may end the thread, in one block and without a return: stops the unwinding of the stack.
 * It costs nothing where the compiler has -fexceptions for C, else a setjmp.
 */
#define FC_BEGIN_STOP_UNWINDING pthread_cleanup_push(fc_wait_for_exit, NULL)
#define FC_END_STOP_UNWINDING pthread_cleanup_pop(0)

/* PyGILState_Ensure; false, without the GIL, if the interpreter does not run. */
bool fc_gil_take(PyGILState_STATE* state);

/* Drops a reference to a Python object, from any thread; leaks it while the interpreter shuts down. */
void fc_drop_anywhere(void* object);
/* The same for the object that owns a tensor's memory, as the release function of fc_tensor_new. */
void fc_drop_context(FcTensorObj* tensor);

#endif /* FARCALL_PYTHON_GIL_H_ */
