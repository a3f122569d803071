# What `cmake --install` leaves behind: headers, the shared libraries, the tool with its manual page (tools/),
# and what programs need to find them: find_package(tailrace [COMPONENTS mpi]) and pkg-config.
# tests/project/install_test.py installs and builds the README's examples against it.
include(CMakePackageConfigHelpers)

set(tailrace_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tailrace)

set(tailrace_headers include/tailrace.h include/tailrace_status.h include/tailrace.hpp)
install(TARGETS tailrace EXPORT tailraceTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tailraceTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})

if(TAILRACE_MPI)
  list(APPEND tailrace_headers include/tailrace_mpi.h include/tailrace_mpi.hpp include/tailrace_mpi_collective.h
    include/tailrace_mpi_collective.hpp)
  set_target_properties(tailrace_mpi PROPERTIES
    EXPORT_NAME mpi
    INSTALL_RPATH "$ORIGIN")  # finds the libtailrace it was installed with
  install(TARGETS tailrace_mpi EXPORT tailraceMpiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # Preloaded, or linked by its name: no program of CMake's builds against it.
  set_target_properties(tailrace_mpiio PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS tailrace_mpiio LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT tailraceMpiTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})
endif()

install(FILES ${tailrace_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/tailraceConfig.cmake.in ${PROJECT_BINARY_DIR}/tailraceConfig.cmake
  INSTALL_DESTINATION ${tailrace_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tailraceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)  # before 1.0 a minor version may change the interface
install(FILES ${PROJECT_BINARY_DIR}/tailraceConfig.cmake ${PROJECT_BINARY_DIR}/tailraceConfigVersion.cmake
  DESTINATION ${tailrace_package_dir})

# pkg-config files find their prefix from where they lie, so an installation may be moved.
file(RELATIVE_PATH tailrace_pc_to_prefix
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" tailrace_pc_to_prefix "${tailrace_pc_to_prefix}")
foreach(name tailrace tailrace_mpi)
  if(name STREQUAL "tailrace" OR TAILRACE_MPI)
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endif()
endforeach()
