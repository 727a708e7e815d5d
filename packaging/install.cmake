# What `cmake --install` puts in place: headers, the libraries, pkg-config and CMake package files.

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
configure_file(packaging/hakmem.pc.in hakmem.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hakmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
