/* check.h - assertions of internal invariants; always compiled, executed only in debug builds. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "base/config.h"

#define HAK_ASSERT(cond)                        \
  do {                                          \
    if (HAK_DEBUG && !(cond)) __builtin_trap(); \
  } while (0)

/* For a function that only audits call, defined beside the data that it checks: HAK_AUDITED goes before its definition, HAK_AUDITS
 * around its declaration. */
#if HAK_AUDIT
#define HAK_AUDITED
#define HAK_AUDITS(declaration) declaration
#else
#define HAK_AUDITED static __attribute__((unused))
#define HAK_AUDITS(declaration)
#endif

#endif
