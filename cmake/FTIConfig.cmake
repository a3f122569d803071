# find_package(FTI): the targets that FTI's package has, with tailrace beneath. docs/fti.md says more.
include(CMakeFindDependencyMacro)
# The tailrace that was installed with this file.
get_filename_component(fti_tailrace_dir ${CMAKE_CURRENT_LIST_DIR}/../tailrace ABSOLUTE)
set(tailrace_DIR ${fti_tailrace_dir})
find_dependency(tailrace COMPONENTS fti)
# There are no static libraries, and who asks for one gets the shared one.
foreach(fti_library fti fti_f90)
  if(TARGET tailrace::${fti_library} AND NOT TARGET ${fti_library}.shared)
    foreach(fti_kind shared static)
      add_library(${fti_library}.${fti_kind} INTERFACE IMPORTED)
      set_property(TARGET ${fti_library}.${fti_kind} PROPERTY INTERFACE_LINK_LIBRARIES tailrace::${fti_library})
    endforeach()
  endif()
endforeach()
