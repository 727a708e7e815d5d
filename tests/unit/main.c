/* main.c - runs the checks of one unit test program; see check.h. */
#include "check.h"

int main(int argc, char **argv) { return check_main(argc, argv); }
