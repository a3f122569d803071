# What `cmake --install` leaves behind: headers, the shared libraries, their manual pages, the tool with its own
# (tools/), and what programs need to find them: find_package(tailrace [COMPONENTS mpi]) and pkg-config.
# tests/project/install_test.py installs and builds the README's examples against it.
include(CMakePackageConfigHelpers)

set(tailrace_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tailrace)

# The libraries and commands that have the names of VELOC's, SCR's and FTI's lie beside our own, or apart: beneath
# TAILRACE_COMPAT_PREFIX, which is a path below the prefix. Their headers always lie apart.
set(tailrace_compat_libdir ${CMAKE_INSTALL_LIBDIR})
set(tailrace_compat_bindir ${CMAKE_INSTALL_BINDIR})
set(tailrace_compat_rpath "$ORIGIN")
if(TAILRACE_COMPAT_PREFIX)
  set(tailrace_compat_libdir ${TAILRACE_COMPAT_PREFIX}/lib)
  set(tailrace_compat_bindir ${TAILRACE_COMPAT_PREFIX}/bin)
  file(RELATIVE_PATH tailrace_compat_to_lib /prefix/${tailrace_compat_libdir} /prefix/${CMAKE_INSTALL_LIBDIR})
  list(APPEND tailrace_compat_rpath "$ORIGIN/${tailrace_compat_to_lib}")
endif()
file(RELATIVE_PATH tailrace_compat_bin_to_lib /prefix/${tailrace_compat_bindir} /prefix/${CMAKE_INSTALL_LIBDIR})

# tailrace_compat_package(NAME VERSION): find_package(NAME), for programs whose build asks for that library. The version
# is that of its interface.
function(tailrace_compat_package name version)
  set(directory ${tailrace_compat_libdir}/cmake/${name})
  file(RELATIVE_PATH tailrace_compat_to_package /prefix/${directory} /prefix/${tailrace_package_dir})
  configure_file(cmake/${name}Config.cmake.in ${PROJECT_BINARY_DIR}/${name}Config.cmake @ONLY)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/${name}ConfigVersion.cmake
    VERSION ${version} COMPATIBILITY SameMajorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/${name}Config.cmake ${PROJECT_BINARY_DIR}/${name}ConfigVersion.cmake
    DESTINATION ${directory})
endfunction()

set(tailrace_headers include/tailrace.h include/tailrace_status.h include/tailrace.hpp include/tailrace_types.hpp
  include/tailrace_span.hpp)
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

if(TAILRACE_FORTRAN)
  set_target_properties(tailrace_fortran PROPERTIES EXPORT_NAME fortran INSTALL_RPATH "$ORIGIN")
  install(TARGETS tailrace_fortran EXPORT tailraceFortranTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT tailraceFortranTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})
  # The module of this compiler, and for other compilers the source.
  install(FILES ${PROJECT_BINARY_DIR}/fortran/modules/tailrace.mod DESTINATION ${TAILRACE_FORTRAN_MODULES})
  install(FILES fortran/tailrace.F90 fortran/descriptors.c fortran/descriptors.h fortran/lists.c fortran/open_mpi.c
    DESTINATION ${CMAKE_INSTALL_DATADIR}/tailrace/fortran)
endif()

if(TARGET veloc_client)
  set_target_properties(veloc_client PROPERTIES EXPORT_NAME veloc INSTALL_RPATH "${tailrace_compat_rpath}")
  set_target_properties(veloc_modules PROPERTIES EXPORT_NAME veloc_modules)
  install(TARGETS veloc_client veloc_modules EXPORT tailraceVelocTargets LIBRARY DESTINATION ${tailrace_compat_libdir})
  install(EXPORT tailraceVelocTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})
  set_target_properties(veloc_backend PROPERTIES INSTALL_RPATH "$ORIGIN/${tailrace_compat_bin_to_lib}")
  install(TARGETS veloc_backend veloc_inspect RUNTIME DESTINATION ${tailrace_compat_bindir})
  tailrace_compat_package(veloc 1.8.0)
endif()

if(TARGET scr)
  set_target_properties(scr scrf PROPERTIES INSTALL_RPATH "${tailrace_compat_rpath}")
  install(TARGETS scr scrf EXPORT tailraceScrTargets LIBRARY DESTINATION ${tailrace_compat_libdir})
  set_target_properties(scr_index scr_print PROPERTIES INSTALL_RPATH "$ORIGIN/${tailrace_compat_bin_to_lib}")
  install(TARGETS scr_index scr_halt scr_print RUNTIME DESTINATION ${tailrace_compat_bindir})
  install(EXPORT tailraceScrTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})
  tailrace_compat_package(scr 3.1.0)
endif()

if(TARGET fti)
  set(tailrace_fti_libraries fti)
  if(TARGET fti_f90)
    list(APPEND tailrace_fti_libraries fti_f90)
    # The module of this compiler, and for other compilers the source.
    install(FILES ${PROJECT_BINARY_DIR}/compat/fti/modules/fti.mod DESTINATION ${TAILRACE_FORTRAN_MODULES})
    install(FILES compat/fti/fti.F90 DESTINATION ${CMAKE_INSTALL_DATADIR}/tailrace/fortran)
  endif()
  set_target_properties(${tailrace_fti_libraries} PROPERTIES INSTALL_RPATH "${tailrace_compat_rpath}")
  install(TARGETS ${tailrace_fti_libraries} EXPORT tailraceFtiTargets LIBRARY DESTINATION ${tailrace_compat_libdir})
  install(EXPORT tailraceFtiTargets NAMESPACE tailrace:: DESTINATION ${tailrace_package_dir})
  tailrace_compat_package(FTI 1.6.0)
endif()

# The headers of other libraries' interfaces lie apart, so that nobody finds them by chance.
if(TARGET veloc_client OR TARGET scr OR TARGET fti)
  install(DIRECTORY include/tailrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(FILES ${tailrace_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The pages of section 3, and for each name in the NAME of one a page that leads to it: `man tailrace_save`.
file(GLOB tailrace_pages CONFIGURE_DEPENDS docs/man/*.3)
if(NOT TAILRACE_MPI)
  list(FILTER tailrace_pages EXCLUDE REGEX "/tailrace_collective_files\\.3$")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tailrace_pages})
foreach(page IN LISTS tailrace_pages)
  get_filename_component(page_name ${page} NAME_WE)
  file(STRINGS ${page} names REGEX "^\\.Nm ")
  list(TRANSFORM names REPLACE "^\\.Nm ([^ ]+).*$" "\\1")
  list(REMOVE_ITEM names ${page_name})
  foreach(name IN LISTS names)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/man/${name}.3 CONTENT ".so man3/${page_name}.3\n")
    install(FILES ${PROJECT_BINARY_DIR}/man/${name}.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
  endforeach()
endforeach()
install(FILES ${tailrace_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/tailraceConfig.cmake.in ${PROJECT_BINARY_DIR}/tailraceConfig.cmake
  INSTALL_DESTINATION ${tailrace_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tailraceConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tailraceConfig.cmake ${PROJECT_BINARY_DIR}/tailraceConfigVersion.cmake
  DESTINATION ${tailrace_package_dir})

# pkg-config files find their prefix from where they lie, so an installation may be moved.
file(RELATIVE_PATH tailrace_pc_to_prefix
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" tailrace_pc_to_prefix "${tailrace_pc_to_prefix}")
set(tailrace_pkg_config tailrace)
set(tailrace_pc_of_fortran tailrace)
if(TAILRACE_MPI)
  list(APPEND tailrace_pkg_config tailrace_mpi)
  set(tailrace_pc_of_fortran tailrace_mpi)
endif()
if(TAILRACE_FORTRAN)
  list(APPEND tailrace_pkg_config tailrace_fortran)
endif()
if(TARGET veloc_client)
  list(APPEND tailrace_pkg_config tailrace_veloc)
endif()
if(TARGET scr)
  list(APPEND tailrace_pkg_config tailrace_scr)
endif()
if(TARGET fti)
  list(APPEND tailrace_pkg_config tailrace_fti)
endif()
if(TARGET fti_f90)
  list(APPEND tailrace_pkg_config tailrace_fti_f90)
endif()
foreach(name IN LISTS tailrace_pkg_config)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
