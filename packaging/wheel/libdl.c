/* libdl - a stand-in for the linker alone, as an old glibc has it: older.cmake. */
void dlsym(void) {}
void dladdr1(void) {}
