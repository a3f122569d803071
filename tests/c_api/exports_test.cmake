# A library shows exactly what its headers declare, and what else is in the list that is kept (the door for
# transports, the call of MPI that is taken): everything more would be a promise to keep, and could clash with a
# program's own names. Each name has the version that the list says.
#
# -DHEADERS=a.h|b.h in the directory INCLUDE, -DKEPT=the list, -DLIBRARY=, -DNM=.
cmake_minimum_required(VERSION 3.22)
file(STRINGS ${KEPT} kept)
string(REPLACE "|" ";" HEADERS "${HEADERS}")
set(declared "")
foreach(header IN LISTS HEADERS)
  file(READ ${INCLUDE}/${header} text)
  string(REGEX MATCHALL "TAILRACE_API [^;(]*[ *]tailrace_[a-z0-9_]+\\(" declarations "${text}")
  list(TRANSFORM declarations REPLACE "^.*[ *](tailrace_[a-z0-9_]+)\\($" "\\1")
  list(APPEND declared ${declarations})
endforeach()
if(NOT declared)
  message(FATAL_ERROR "no declaration was found in ${HEADERS}")
endif()

# 1. What the library shows: "NAME VERSION", without arguments, and without what Open MPI adds (tailrace_mpi.h).

execute_process(COMMAND ${NM} -D --defined-only -C ${LIBRARY} OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${table}" table)
string(REPLACE "\n" ";" lines "${table}")
set(exported "")
set(exported_names "")
foreach(line IN LISTS lines)
  if(line MATCHES "^[0-9a-f]* +A ")
    continue()  # the name of a version itself
  endif()
  set(version "")
  if(line MATCHES "@@?([A-Za-z0-9_.]+)$")
    set(version " ${CMAKE_MATCH_1}")
  endif()
  string(REGEX REPLACE "^[0-9a-f]* +[A-Za-z] +([^(@]*).*$" "\\1" name "${line}")
  string(REGEX REPLACE "_for_open_mpi$" "" name "${name}")
  list(APPEND exported "${name}${version}")
  list(APPEND exported_names "${name}")
endforeach()

# 2. Against the headers.
foreach(name IN LISTS declared)
  if(NOT name IN_LIST exported_names)
    message(SEND_ERROR "declared but not exported: ${name}; has it a line in the library's map?")
  endif()
endforeach()
foreach(name IN LISTS exported_names)
  if(name MATCHES "^tailrace_" AND NOT name IN_LIST declared)
    message(SEND_ERROR "exported without being part of the interface: ${name}")
  endif()
endforeach()

# 3. Against the list that is kept: a name or version that goes breaks programs that were linked before, and one
# that comes is a promise, made by adding it to the list.
foreach(line IN LISTS kept)
  if(NOT line IN_LIST exported)
    message(SEND_ERROR "programs may use it, and it is exported no more: ${line}")
  endif()
endforeach()
foreach(line IN LISTS exported)
  if(NOT line IN_LIST kept)
    message(SEND_ERROR "not in ${KEPT}, where what is new is added: ${line}")
  endif()
endforeach()
list(LENGTH exported count)
message(STATUS "${count} names are exported")
