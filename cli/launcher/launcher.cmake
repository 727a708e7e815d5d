# What the Python package carries: the library and the launcher, beside the modules.
# Symbolic links don't survive in a wheel, so the library goes in under its plain name.

add_executable(hakmem_launch cli/launcher/launch.c)
target_compile_options(hakmem_launch PRIVATE ${HAKMEM_WARNINGS})
install(FILES $<TARGET_FILE:hakmem> DESTINATION hakmem RENAME libhakmem.so COMPONENT python)
install(PROGRAMS $<TARGET_FILE:hakmem_launch> DESTINATION hakmem COMPONENT python)
