# For find_package(farcall VERSION): needs the same major version, and a minor and patch version at least as new.
set(farcall_init "${CMAKE_CURRENT_LIST_DIR}/../__init__.py") # in an installation
if(NOT EXISTS "${farcall_init}")
  set(farcall_init "${CMAKE_CURRENT_LIST_DIR}/../src/farcall/__init__.py") # in a checkout
endif()
file(STRINGS "${farcall_init}" PACKAGE_VERSION REGEX "^__version__")
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" PACKAGE_VERSION "${PACKAGE_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_FIND_VERSION_MAJOR STREQUAL "0" OR NOT PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
else()
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
