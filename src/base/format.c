#include "base/format.h"

void format_init(format_t *f, char *text, size_t size) {
  f->text = text;
  f->size = size;
  f->used = 0;
  text[0] = '\0';
}

void format_char(format_t *f, char c) {
  if (f->used + 1 >= f->size) return;
  f->text[f->used++] = c;
  f->text[f->used] = '\0';
}

void format_text(format_t *f, const char *text) {
  while (*text != '\0') format_char(f, *text++);
}

static void format_digits(format_t *f, uint64_t value, unsigned radix) {
  char digits[20];
  size_t n = 0;
  do {
    digits[n++] = "0123456789abcdef"[value % radix];
    value /= radix;
  } while (value != 0);
  while (n > 0) format_char(f, digits[--n]);
}

void format_unsigned(format_t *f, uint64_t value) { format_digits(f, value, 10); }

void format_bytes(format_t *f, uint64_t count) {
  format_unsigned(f, count);
  format_text(f, count == 1 ? " byte" : " bytes");
}

void format_signed(format_t *f, int64_t value) {
  if (value < 0) format_char(f, '-');
  format_digits(f, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

void format_hex(format_t *f, uint64_t value) {
  format_text(f, "0x");
  format_digits(f, value, 16);
}
