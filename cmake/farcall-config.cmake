# The CMake package of farcall: find_package(farcall), then
#
#     farcall_add_kernels(scale scale.cpp)     # a library that farcall and apache-tvm-ffi load
#
# or, for a target of your own, target_link_libraries(mine PRIVATE farcall::kernel); C++ sources need C++17.
#
# To let CMake find it, pass -Dfarcall_DIR=$(farcall config --cmakedir).
cmake_minimum_required(VERSION 3.20)

# Both in a wheel and in a checkout, the headers are beside this folder.
get_filename_component(_farcall_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(farcall_INCLUDE_DIR "${_farcall_root}/include")
if(NOT EXISTS "${farcall_INCLUDE_DIR}/farcall/kernel.hpp")
  set(farcall_FOUND FALSE)
  set(farcall_NOT_FOUND_MESSAGE "farcall's headers are not in ${farcall_INCLUDE_DIR}; install farcall again")
  return()
endif()

if(NOT TARGET farcall::kernel)
  add_library(farcall::kernel INTERFACE IMPORTED)
  set_target_properties(farcall::kernel PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${farcall_INCLUDE_DIR}")
endif()

# Adds a module library NAME.so from sources. It links with no runtime: the runtime that loads it supplies TVMFFI*.
function(farcall_add_kernels name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE farcall::kernel)
  set_target_properties(${name} PROPERTIES
    PREFIX ""
    SUFFIX ".so"
    CXX_STANDARD 17
    CXX_STANDARD_REQUIRED ON
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_link_options(${name} PRIVATE "LINKER:-Bsymbolic")
endfunction()

unset(_farcall_root)
