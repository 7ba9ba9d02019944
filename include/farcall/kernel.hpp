/*
 * farcall/kernel.hpp - kernels in C++17, called from Python, any framework, and other machines.
 *
 *     #include <farcall/kernel.hpp>
 *
 *     static farcall::Tensor scale(farcall::ConstTensorView x, double by) {
 *       auto y = farcall::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.sizes(), x.dtype(), x.device());
 *       FARCALL_CHECK(x.is_contiguous(), "ValueError", "`x` has strides; pass x.contiguous()");
 *       for (int64_t i = 0; i < x.numel(); ++i) {
 *         y.data_ptr<float>()[i] = static_cast<float>(x.data_ptr<float>()[i] * by);
 *       }
 *       return y;
 *     }
 *
 *     FARCALL_EXPORT(scale, scale, farcall::arg("x"), farcall::arg("by", 2.0));
 *
 * Build it with `c++ $(farcall config --cflags) scale.cpp $(farcall config --ldflags) -o scale.so`. The library
 * needs no farcall at link time: the runtime that loads it, farcall or apache-tvm-ffi, supplies the functions TVMFFI*
 * that it calls.
 *
 * Parameters and results are: bool, integers (a value that does not fit is an OverflowError), float and double,
 * std::string, std::string_view, const char*, String, Bytes, void*, DLDataType, DLDevice, enums, TensorView,
 * ConstTensorView, Tensor, Shape, Optional<T>, Variant<T...>, Array<T>, List<T>, Map<K, V>, Dict<K, V>,
 * std::vector<T>, std::map<K, V> and its like, std::pair, std::tuple, Function, TypedFunction<R(P...)>,
 * std::function<R(P...)>, Module, Error, Any, AnyView. A parameter may be a const reference. Types that borrow (views,
 * std::string_view, const char*) are valid until the call ends.
 *
 * Errors are exceptions. The kind of an Error names the Python class. Of the standard exceptions,
 * std::invalid_argument, domain_error and length_error become ValueError, out_of_range IndexError, overflow_error
 * OverflowError, bad_alloc MemoryError, all others RuntimeError.
 *
 * Every function may be called without the Python GIL, from many threads at once. Make global objects of the types
 * above inside functions (`static const String& name = *new String("...")`): constructors of a library run before
 * its runtime has supplied the functions that they would call.
 */
#ifndef FARCALL_KERNEL_HPP_
#define FARCALL_KERNEL_HPP_

#include <farcall/cpp/chars.hpp>
#include <farcall/cpp/container.hpp>
#include <farcall/cpp/env.hpp>
#include <farcall/cpp/error.hpp>
#include <farcall/cpp/export.hpp>
#include <farcall/cpp/function.hpp>
#include <farcall/cpp/map.hpp>
#include <farcall/cpp/module.hpp>
#include <farcall/cpp/mutable.hpp>
#include <farcall/cpp/names.hpp>
#include <farcall/cpp/object.hpp>
#include <farcall/cpp/shape.hpp>
#include <farcall/cpp/tensor.hpp>
#include <farcall/cpp/tensor_alloc.hpp>
#include <farcall/cpp/value.hpp>
#include <farcall/cpp/variant.hpp>

#endif  // FARCALL_KERNEL_HPP_
