# Makes the wheel's libraries run on glibc 2.17 and later, although they are built with a newer one.
#
# In glibc 2.34, functions that hakmem calls moved from libpthread and libdl to libc, and got a new version there besides the old one.
# The library is linked with stubs of the old libpthread and libdl before libc, so it requires the old versions, which every glibc has,
# as if it were built on an old system. It then needs the two libraries, which a new glibc still has, empty.

include(CheckSymbolExists)
check_symbol_exists(__GLIBC__ "features.h" HAKMEM_HAS_GLIBC)
if(NOT HAKMEM_HAS_GLIBC)
  return()
endif()

# The first symbol version on this processor, and the version of dladdr1, which came later.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(older_pthread "GLIBC_2.2.5 { pthread_*; };")
  set(older_dl "GLIBC_2.2.5 { dlsym; }; GLIBC_2.3.3 { dladdr1; };")
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(older_pthread "GLIBC_2.17 { pthread_*; };")
  set(older_dl "GLIBC_2.17 { dlsym; dladdr1; };")
else()
  return()
endif()

foreach(name IN ITEMS pthread dl)
  file(WRITE ${PROJECT_BINARY_DIR}/lib${name}.map "${older_${name}}\n")
  add_library(older_${name} SHARED packaging/wheel/lib${name}.c)
  target_compile_options(older_${name} PRIVATE -w) # only the names matter, not the types
  target_link_options(older_${name} PRIVATE -nostdlib -Wl,--version-script,${PROJECT_BINARY_DIR}/lib${name}.map)
endforeach()
set_target_properties(older_pthread older_dl PROPERTIES NO_SONAME ON)
target_link_options(older_pthread PRIVATE -Wl,-soname,libpthread.so.0)
target_link_options(older_dl PRIVATE -Wl,-soname,libdl.so.2)

foreach(library IN ITEMS hakmem hakmem_secure)
  target_link_libraries(${library} PRIVATE older_pthread older_dl)
  set_target_properties(${library} PROPERTIES SKIP_BUILD_RPATH ON)
endforeach()
