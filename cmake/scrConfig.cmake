# find_package(scr): the targets that SCR's package has, with tailrace beneath. docs/scr.md says more.
include(CMakeFindDependencyMacro)
# The tailrace that was installed with this file.
get_filename_component(scr_tailrace_dir ${CMAKE_CURRENT_LIST_DIR}/../tailrace ABSOLUTE)
set(tailrace_DIR ${scr_tailrace_dir})
find_dependency(tailrace COMPONENTS scr)
if(NOT TARGET scr::scr)
  add_library(scr::scr INTERFACE IMPORTED)
  set_property(TARGET scr::scr PROPERTY INTERFACE_LINK_LIBRARIES tailrace::scr)
  add_library(scr::scrf INTERFACE IMPORTED)
  set_property(TARGET scr::scrf PROPERTY INTERFACE_LINK_LIBRARIES tailrace::scrf)
endif()
