/* check.h - assertions of internal invariants; compiled always, run in debug builds. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "base/config.h"

#define HAK_ASSERT(cond)               \
  do {                                 \
    if (HAK_DEBUG && !(cond)) __builtin_trap(); \
  } while (0)

#endif
