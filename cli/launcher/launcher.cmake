# The command line's launcher, and what the Python package contains besides the modules: the libraries and the launcher.

include(CheckCSourceCompiles)

# Static if there is a libc.a: the launcher's resident set is the least that a run can be measured to have.
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
check_c_source_compiles("int main(void) { return 0; }" HAKMEM_HAS_STATIC_LIBC)
unset(CMAKE_REQUIRED_LINK_OPTIONS)

add_executable(hakmem_launch cli/launcher/launch.c)
target_compile_options(hakmem_launch PRIVATE ${HAKMEM_WARNINGS})
if(HAKMEM_HAS_STATIC_LIBC)
  target_link_options(hakmem_launch PRIVATE -static)
endif()

if(NOT SKBUILD)
  return()
endif()

# Symbolic links do not survive in a wheel, so the libraries are packed under their plain names.
install(FILES $<TARGET_FILE:hakmem> DESTINATION hakmem RENAME libhakmem.so COMPONENT python)
if(TARGET hakmem_secure)
  install(FILES $<TARGET_FILE:hakmem_secure> DESTINATION hakmem RENAME libhakmem-secure.so COMPONENT python)
endif()
install(PROGRAMS $<TARGET_FILE:hakmem_launch> DESTINATION hakmem COMPONENT python)
file(GLOB man_pages packaging/man/*.1)
install(FILES ${man_pages} DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT python)
