# The ways in which a test program gets hakmem; the same objects are linked in each.
#
#   preloaded    by LD_PRELOAD
#   linked       the shared library
#   archive      the archive, in a program that is otherwise linked dynamically
#   static       the archive, in a statically linked program
#   static_pie   the same, at any address
#
# The ways secure_preloaded, secure (linked) and secure_static use the secure library.

# hak_link(TARGET WAY)
function(hak_link target way)
  set(library hakmem)
  if(way MATCHES "^secure_?(.*)$")
    set(library hakmem_secure)
    set(way "${CMAKE_MATCH_1}") # set even if nothing follows
  endif()
  if(way STREQUAL "preloaded")
    add_dependencies(${target} ${library})
  elseif(way STREQUAL "linked" OR way STREQUAL "")
    target_link_libraries(${target} PRIVATE ${library})
  else()
    target_link_libraries(${target} PRIVATE ${library}_static ${HAK_END_OF_${way}})
    target_link_options(${target} PRIVATE ${HAK_OPTIONS_OF_${way}})
  endif()
endfunction()

# hak_preload(VARIABLE WAY): the environment that a test needs for this way.
function(hak_preload variable way)
  set(${variable} PARENT_SCOPE)
  if(way STREQUAL "preloaded")
    set(${variable} LD_PRELOAD=$<TARGET_FILE:hakmem> PARENT_SCOPE)
  elseif(way STREQUAL "secure_preloaded")
    set(${variable} LD_PRELOAD=$<TARGET_FILE:hakmem_secure> PARENT_SCOPE)
  endif()
endfunction()

# ---- The available static ways: both need the C library as an archive ----

set(HAK_STATIC_WAYS)
if(HAKMEM_SANITIZE)
  return() # a sanitizer's runtime is a shared library
endif()

set(HAK_OPTIONS_OF_static -static)
set(HAK_OPTIONS_OF_static_pie -static-pie)
find_path(musl_objects rcrt1.o PATHS /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-musl NO_DEFAULT_PATH NO_CACHE)
if(HAKMEM_TEST_PORT STREQUAL "musl" AND musl_objects) # Debian's wrapper does not know -static-pie: these are the options that gcc would use
  foreach(object IN ITEMS crtbeginS.o crtendS.o)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${object} OUTPUT_VARIABLE ${object} OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  set(HAK_OPTIONS_OF_static_pie -static -nostartfiles -Wl,-pie,--no-dynamic-linker,-z,text ${musl_objects}/rcrt1.o
                                ${musl_objects}/crti.o ${crtbeginS.o})
  set(HAK_END_OF_static_pie -lgcc -lc ${crtendS.o} ${musl_objects}/crtn.o)
endif()

include(CheckCSourceRuns)
foreach(way IN ITEMS static static_pie)
  set(CMAKE_REQUIRED_LINK_OPTIONS ${HAK_OPTIONS_OF_${way}})
  set(CMAKE_REQUIRED_LIBRARIES ${HAK_END_OF_${way}})
  check_c_source_runs("
    #include <link.h>
    extern const ElfW(Ehdr) __ehdr_start;
    int main(void) {
      const ElfW(Phdr) *part = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
      for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (part[i].p_type == PT_INTERP) return 1; /* not linked as asked */
      return 0;
    }" HAKMEM_LINKS_${way})
  if(HAKMEM_LINKS_${way})
    list(APPEND HAK_STATIC_WAYS ${way})
  endif()
endforeach()
unset(CMAKE_REQUIRED_LINK_OPTIONS)
unset(CMAKE_REQUIRED_LIBRARIES)
