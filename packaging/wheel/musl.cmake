# Makes the wheel's libraries need musl under its name in Alpine, as every wheel tagged musllinux does.
#
# musl names itself libc.so, and its loader takes any name that begins with "libc." for itself. But on a machine with glibc libc.so is
# also a linker script, on which programs that examine wheels fail. So the libraries are linked with a stub instead of libc: it has only
# the name, and libc's symbols are found when the libraries are loaded.

if(HAKMEM_HAS_GLIBC) # older.cmake
  return()
endif()

file(WRITE ${PROJECT_BINARY_DIR}/empty.c "")
add_library(musl_name SHARED ${PROJECT_BINARY_DIR}/empty.c)
set_target_properties(musl_name PROPERTIES NO_SONAME ON)
target_link_options(musl_name PRIVATE -nostdlib -Wl,-soname,libc.musl-${CMAKE_SYSTEM_PROCESSOR}.so.1)

foreach(library IN ITEMS hakmem hakmem_secure)
  target_link_libraries(${library} PRIVATE musl_name $<$<C_COMPILER_ID:GNU>:gcc>)
  target_link_options(${library} PRIVATE -nodefaultlibs -Wl,--no-as-needed)
  set_target_properties(${library} PROPERTIES SKIP_BUILD_RPATH ON)
endforeach()
