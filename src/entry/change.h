/* change.h - wraps libc functions that change what the process holds. */
#ifndef ENTRY_CHANGE_H
#define ENTRY_CHANGE_H

#include "base/atomics.h"
#include "base/bits.h"
#include "front/keeper.h"
#include "entry/entry.h"

/* The wrappers have C names of our own, since libc's headers declare some types in several ways. */
#define LIBC_NAME(name) __asm__(name)
#define CHANGE_WEAK __attribute__((weak))

/* Called around each change: no keeper runs in between (keeper_hold), and files that may be out of reach afterwards are read first. */
HAK_CHECKED bool change_begin(void);
void change_end(bool held);

/* The next definition of the name after ours; NULL if there is none, or no dlsym. */
void *change_next(void *_Atomic *known, const char *name);

#define CHANGE(name, type, parameters, arguments, otherwise)                 \
  HAK_EXPORT CHANGE_WEAK type change_##name parameters LIBC_NAME(#name);     \
  type change_##name parameters {                                            \
    static void *_Atomic known;                                              \
    bool held = change_begin();                                              \
    type(*next) parameters = (type(*) parameters)change_next(&known, #name); \
    type result = next != NULL ? next arguments : (otherwise);               \
    change_end(held);                                                        \
    return result;                                                           \
  }

#endif
