# How every target of the project is compiled: tailrace_compile_options carries it, every target links it.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(tailrace_compile_options INTERFACE)
option(TAILRACE_WERROR "Warnings are errors" ON)
target_compile_options(tailrace_compile_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  # Which mutex guards what (src/threads/annotations.h).
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>
  # GCC 12 sees the unused member of a std::variant (in every Result) as read uninitialized.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>
  $<$<BOOL:${TAILRACE_WERROR}>:-Werror>)
# Invariants that cost more than a comparison (base/invariant.h) are checked where there are tests.
if(TAILRACE_TESTS)
  target_compile_definitions(tailrace_compile_options INTERFACE TAILRACE_COSTLY_INVARIANTS=1)
endif()
if(TAILRACE_SANITIZE)
  target_compile_options(tailrace_compile_options INTERFACE
    -fsanitize=${TAILRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # It looks at memory through a pipe, and calls every object broken where no descriptor is left.
    -fno-sanitize=vptr
    # Assertions on; and line numbers are all a report needs, at half the time to compile.
    -UNDEBUG -O1 -g1)
  target_link_options(tailrace_compile_options INTERFACE -fsanitize=${TAILRACE_SANITIZE})
  if(TAILRACE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that fences are invisible to the sanitizer; libstdc++'s headers use one.
    target_compile_options(tailrace_compile_options INTERFACE -Wno-tsan)
  endif()
endif()
