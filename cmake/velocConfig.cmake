# find_package(veloc): the targets that VELOC's package has, with tailrace beneath. docs/veloc.md says more.
include(CMakeFindDependencyMacro)
# The tailrace that was installed with this file.
get_filename_component(veloc_tailrace_dir ${CMAKE_CURRENT_LIST_DIR}/../tailrace ABSOLUTE)
set(tailrace_DIR ${veloc_tailrace_dir})
find_dependency(tailrace COMPONENTS veloc)
if(NOT TARGET veloc::client)
  add_library(veloc::client INTERFACE IMPORTED)
  set_property(TARGET veloc::client PROPERTY INTERFACE_LINK_LIBRARIES tailrace::veloc)
  add_library(veloc::modules INTERFACE IMPORTED)
  set_property(TARGET veloc::modules PROPERTY INTERFACE_LINK_LIBRARIES tailrace::veloc_modules)
endif()
