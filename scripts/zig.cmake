# The compilers of the ziglang package: for a machine that has no other, and for wheels (scripts/wheels.py), which run
# on systems that are older than the one that builds them.
#
# Environment:
#   FARCALL_ZIG         the program zig
#   FARCALL_ZIG_TARGET  what to build for, as zig names it (aarch64-linux-gnu.2.28); this machine when unset
set(processor ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(target)
if(DEFINED ENV{FARCALL_ZIG_TARGET})
  set(target -target "$ENV{FARCALL_ZIG_TARGET}")
  string(REGEX MATCH "^[^-]+" processor "$ENV{FARCALL_ZIG_TARGET}")
endif()
if(NOT processor STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${processor})
endif()
set(CMAKE_C_COMPILER "$ENV{FARCALL_ZIG}" cc ${target})
set(CMAKE_CXX_COMPILER "$ENV{FARCALL_ZIG}" c++ ${target})

# The link-time optimisation of CMakeLists.txt, for which CMake would need zig's archiver as a program of its own. -s:
# CMake would strip with this machine's tool.
set(CMAKE_C_FLAGS_INIT -flto)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)

# An exception crosses libraries only if all of them have the same C++ runtime: that of the system, with which kernels
# are built. zig would link its own, statically. Its headers fit the system's library, because native/cxx uses nothing
# of the standard library but std::exception.
set(folders /lib/${processor}-linux-gnu /usr/${processor}-linux-gnu/lib /usr/lib64)
find_file(FARCALL_LIBGCC_S libgcc_s.so.1 PATHS ${folders} NO_DEFAULT_PATH)
find_file(FARCALL_LIBSTDCXX libstdc++.so.6 PATHS ${folders} NO_DEFAULT_PATH)
if(FARCALL_LIBGCC_S AND FARCALL_LIBSTDCXX)
  # These files may need a newer C library than the target has: the one on the target's systems does not.
  set(CMAKE_C_STANDARD_LIBRARIES "-Wl,--allow-shlib-undefined ${FARCALL_LIBGCC_S}")
  set(CMAKE_CXX_STANDARD_LIBRARIES "-nostdlib++ ${CMAKE_C_STANDARD_LIBRARIES} ${FARCALL_LIBSTDCXX}")
elseif(CMAKE_SYSTEM_NAME) # a wheel, which must not have zig's
  message(FATAL_ERROR "no libgcc_s.so.1 and libstdc++.so.6 for ${processor} in ${folders}; on Debian, install "
    "libstdc++6-arm64-cross")
endif()
