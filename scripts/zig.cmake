# The compilers of the ziglang package: for a machine that has no other, and for the wheels, which must run on systems
# older than the one that builds them.
#
# Environment:
#   FARCALL_ZIG         the program zig
#   FARCALL_ZIG_TARGET  what to build for, as zig names it (x86_64-linux-gnu.2.28); this machine when unset
#   FARCALL_ZIG_LIBS    the folder of libgcc_s.so.1 and libstdc++.so.6 for that target; the system's when unset
set(target)
if(DEFINED ENV{FARCALL_ZIG_TARGET})
  set(target -target "$ENV{FARCALL_ZIG_TARGET}")
  string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "$ENV{FARCALL_ZIG_TARGET}")
  set(CMAKE_SYSTEM_NAME Linux)
endif()
set(CMAKE_C_COMPILER "$ENV{FARCALL_ZIG}" cc ${target})
set(CMAKE_CXX_COMPILER "$ENV{FARCALL_ZIG}" c++ ${target})

# The link-time optimisation of CMakeLists.txt, for which CMake would need zig's archiver as a program of its own.
set(CMAKE_C_FLAGS_INIT -flto)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)

# An exception crosses libraries only if all have one C++ runtime. zig would link another, statically; kernels are
# built with the system's. zig's headers fit, because native/cxx uses nothing but exceptions of the standard library.
if(DEFINED ENV{FARCALL_ZIG_LIBS})
  set(folders "$ENV{FARCALL_ZIG_LIBS}")
else()
  file(GLOB folders /lib/*-linux-gnu /usr/lib64)
endif()
find_file(FARCALL_LIBGCC_S libgcc_s.so.1 PATHS ${folders} NO_DEFAULT_PATH)
find_file(FARCALL_LIBSTDCXX libstdc++.so.6 PATHS ${folders} NO_DEFAULT_PATH)
if(FARCALL_LIBGCC_S)
  set(CMAKE_C_STANDARD_LIBRARIES "-Wl,--allow-shlib-undefined ${FARCALL_LIBGCC_S}")
endif()
if(FARCALL_LIBGCC_S AND FARCALL_LIBSTDCXX)
  set(CMAKE_CXX_STANDARD_LIBRARIES "-nostdlib++ -Wl,--allow-shlib-undefined ${FARCALL_LIBSTDCXX} ${FARCALL_LIBGCC_S}")
endif()
