/* change.h - how a name of libc's that changes what the process holds is put before libc's own. */
#ifndef ENTRY_CHANGE_H
#define ENTRY_CHANGE_H

#include "base/atomics.h"
#include "base/bits.h"
#include "front/keeper.h"
#include "entry/entry.h"

/* Under names of our own, since libc's headers spell some types in several ways. */
#define LIBC_NAME(name) __asm__(name)
#define CHANGE_WEAK __attribute__((weak))

/* Around each change: no keeper runs in between (keeper_hold), and what may be out of sight after it is noted first. */
HAK_CHECKED bool change_begin(void);
void change_end(bool held);

/* The next definition of the name after ours; NULL where there is none, or nobody to ask. */
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
