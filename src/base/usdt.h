/* usdt.h - probes for external tracers: places in the code that tools find by notes in the file and set breakpoints on.
 *
 * A probe is one nop instruction.  Its note (SystemTap's third format, which bpftrace, perf, gdb and OpenTelemetry's profiler read)
 * holds the names of the provider and the probe, its address, the locations of its arguments, and its semaphore: a word that a tracer
 * increments while it listens.  The arguments are in the registers of function arguments, so that a tracer that ignores their locations
 * finds them, too. */
#ifndef BASE_USDT_H
#define BASE_USDT_H

#include <stdint.h>

#include "base/config.h"

/* The secure library samples no blocks, so it has nothing to report. */
#if HAK_SAMPLED && defined(__x86_64__)
#define USDT_FIRST "rdi"
#define USDT_SECOND "rsi"
#define USDT_THIRD "rdx"
#elif HAK_SAMPLED && defined(__aarch64__)
#define USDT_FIRST "x0"
#define USDT_SECOND "x1"
#define USDT_THIRD "x2"
#endif

#if defined(USDT_FIRST)
/* For an _Atomic uint16_t that tracers write.  Its section must have bytes in the file, since the kernel finds it by its file offset. */
#define USDT_SEMAPHORE __attribute__((section(".probes"), used))

/* From _.stapsdt.base a reader of the file computes how far the code was moved since it was linked. */
#define USDT_NOTE(provider, name, semaphore, arguments)                                                                   \
  "990: nop\n"                                                                                                            \
  ".pushsection .note.stapsdt, \"\", %%note\n"                                                                            \
  "  .balign 4\n"                                                                                                         \
  "  .4byte 992f - 991f, 994f - 993f, 3\n"                                                                                \
  "991: .asciz \"stapsdt\"\n"                                                                                             \
  "992: .balign 4\n"                                                                                                      \
  "993: .8byte 990b, _.stapsdt.base, " #semaphore "; .asciz \"" #provider "\"; .asciz \"" #name "\"; .asciz \"" arguments \
  "\"\n"                                                                                                                  \
  "994: .balign 4\n"                                                                                                      \
  ".popsection\n"                                                                                                         \
  ".ifndef _.stapsdt.base\n"                                                                                              \
  ".pushsection .stapsdt.base, \"aG\", %%progbits, .stapsdt.base, comdat\n"                                               \
  "  .weak _.stapsdt.base\n"                                                                                              \
  "  .hidden _.stapsdt.base\n"                                                                                            \
  "_.stapsdt.base: .space 1\n"                                                                                            \
  "  .size _.stapsdt.base, 1\n"                                                                                           \
  ".popsection\n"                                                                                                         \
  ".endif\n"

/* Arguments are uint64_t and need no computation, which could use the same registers. */
#define USDT_PROBE1(provider, name, semaphore, first)                                   \
  do {                                                                                  \
    register uint64_t usdt_first __asm__(USDT_FIRST) = (first);                         \
    __asm__ volatile(USDT_NOTE(provider, name, semaphore, "8@%0") : : "r"(usdt_first)); \
  } while (0)
#define USDT_PROBE3(provider, name, semaphore, first, second, third)                                                                 \
  do {                                                                                                                               \
    register uint64_t usdt_first __asm__(USDT_FIRST) = (first);                                                                      \
    register uint64_t usdt_second __asm__(USDT_SECOND) = (second);                                                                   \
    register uint64_t usdt_third __asm__(USDT_THIRD) = (third);                                                                      \
    __asm__ volatile(USDT_NOTE(provider, name, semaphore, "8@%0 8@%1 8@%2") : : "r"(usdt_first), "r"(usdt_second), "r"(usdt_third)); \
  } while (0)
#else
#define USDT_SEMAPHORE
#define USDT_PROBE1(provider, name, semaphore, first) ((void)(first))
#define USDT_PROBE3(provider, name, semaphore, first, second, third) ((void)(first), (void)(second), (void)(third))
#endif

#endif
