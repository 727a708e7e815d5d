#include "os/line.h"

#include "os/os.h"

HAK_COLD format_t *line_begin(line_t *line) {
  format_init(&line->format, line->text, sizeof line->text - 1); /* leaves room for the newline */
  format_text(&line->format, "hakmem: ");
  return &line->format;
}

HAK_COLD void line_end(line_t *line) {
  line->text[line->format.used++] = '\n';
  (void)os_write(2, line->text, line->format.used);
}

HAK_COLD void line_write(const char *text) {
  line_t line;
  format_text(line_begin(&line), text);
  line_end(&line);
}
