# What `cmake --install` puts in place: headers, the libraries, pkg-config and CMake package files, the command
# line, its man pages, the licence and the documents.

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)

install(TARGETS ${libraries} EXPORT hakmemTargets)
install(DIRECTORY include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT hakmemTargets NAMESPACE hakmem:: DESTINATION ${package_dir})

configure_package_config_file(packaging/hakmemConfig.cmake.in hakmemConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(hakmemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hakmemConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/hakmemConfigVersion.cmake
        DESTINATION ${package_dir})

# The prefix follows the file, so an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
foreach(pc_name IN ITEMS hakmem hakmem-secure)
  set(pc_kind "")
  if(pc_name STREQUAL "hakmem-secure")
    if(NOT TARGET hakmem_secure)
      continue()
    endif()
    set(pc_kind ", for hostile input")
  endif()
  configure_file(packaging/hakmem.pc.in ${pc_name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(NOT HAKMEM_INSTALL_COMMAND)
  return()
endif()

# The command line finds libraries and launcher beside its modules, and its version in what a package manager of Python's would leave.
set(modules_dir ${CMAKE_INSTALL_LIBDIR}/hakmem)
install(DIRECTORY cli/hakmem DESTINATION ${modules_dir} PATTERN __pycache__ EXCLUDE)
install(PROGRAMS $<TARGET_FILE:hakmem_launch> DESTINATION ${modules_dir}/hakmem)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/METADATA "Metadata-Version: 2.1\nName: hakmem\nVersion: ${PROJECT_VERSION}\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/METADATA DESTINATION ${modules_dir}/hakmem-${PROJECT_VERSION}.dist-info)
foreach(library IN ITEMS hakmem hakmem_secure)
  if(TARGET ${library})
    string(REPLACE _ - name lib${library}.so)
    set(link ${CMAKE_CURRENT_BINARY_DIR}/modules/${name})
    file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/modules)
    file(CREATE_LINK ../../${name} ${link} SYMBOLIC)
    install(FILES ${link} DESTINATION ${modules_dir}/hakmem)
  endif()
endforeach()
file(RELATIVE_PATH bin_to_modules /${CMAKE_INSTALL_BINDIR} /${modules_dir})
configure_file(packaging/hakmem.in bin/hakmem @ONLY)
install(PROGRAMS ${CMAKE_CURRENT_BINARY_DIR}/bin/hakmem DESTINATION ${CMAKE_INSTALL_BINDIR})

install(DIRECTORY packaging/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
