/* late.c - opens the library of late.cpp, whose path is the argument, and calls it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  int (*late)(void) = library != NULL ? (int (*)(void))dlsym(library, "late") : NULL;
  if (late == NULL || (getenv("TEST_EXPECTS_HAKMEM") != NULL && dlsym(RTLD_DEFAULT, "hak_version") == NULL)) {
    fprintf(stderr, "late: %s\n", late == NULL ? dlerror() : "not under hakmem");
    return 1;
  }
  int wrong = late();
  if (wrong != 0) fprintf(stderr, "late: %#x\n", (unsigned)wrong);
  return wrong != 0;
}
