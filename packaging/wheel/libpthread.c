/* libpthread - a stand-in for the linker alone, as an old glibc has it: older.cmake. */
void pthread_key_create(void) {}
void pthread_key_delete(void) {}
void pthread_setspecific(void) {}

/* Came with glibc 2.32, and the library does without. It has no version here, so that none is asked for. */
char __libc_single_threaded;
