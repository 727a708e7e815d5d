#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_os.h"

/* Far from programs, libraries, stacks and the mappings of sanitizers. */
#define ARENA ((uintptr_t)1 << 45)

static const uint8_t *at, *end;

bool input_ends(void) { return at == end; }
uint8_t input_byte(void) { return at < end ? *at++ : 0; }

uint16_t input_word(void) {
  unsigned low = input_byte();
  return (uint16_t)(low | (unsigned)input_byte() << 8);
}

uint64_t input_number(void) {
  uint64_t number = 0;
  for (unsigned i = 0; i < 8; i++) number |= (uint64_t)input_byte() << 8 * i;
  return number;
}

unsigned input_below(unsigned limit) { return limit > 256 ? input_word() % limit : input_byte() % limit; }

const uint8_t *input_rest(size_t *size) {
  const uint8_t *rest = at;
  *size = (size_t)(end - at);
  at = end;
  return rest;
}

void fuzz_fail(const char *file, int line, const char *format, ...) {
  char text[1024];
  const char *slash = strrchr(file, '/');
  int n = snprintf(text, sizeof text, "fuzz: %s:%d: ", slash != NULL ? slash + 1 : file, line);
  va_list values;
  va_start(values, format);
  n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, values);
  va_end(values);
  size_t length = (size_t)n < sizeof text - 1 ? (size_t)n : sizeof text - 2;
  text[length++] = '\n';
  if (write(2, text, length) < 0) _exit(3);
  abort();
}

void fuzz_run(const uint8_t *data, size_t size) {
  at = data;
  end = data + size;
  fake_os_set_arena(ARENA);
  fake_os_set_alone(true);
  fake_os_capture();
  fuzz_target();
}
