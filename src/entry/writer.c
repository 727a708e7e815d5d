#include "entry/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include "os/os.h"

HAK_COLD void writer_open(writer_t *w, int fd) {
  w->fd = fd;
  w->good = true;
  format_init(&w->out, w->text, sizeof w->text);
}

HAK_COLD bool writer_flush(writer_t *w) {
  w->good = w->good && os_write(w->fd, w->out.text, w->out.used);
  format_init(&w->out, w->text, sizeof w->text);
  return w->good;
}

HAK_COLD format_t *writer(writer_t *w) {
  if (w->out.used + WRITER_ROOM > sizeof w->text) (void)writer_flush(w);
  return &w->out;
}

HAK_COLD void word_number(format_t *f, uint64_t value) {
  format_char(f, ' ');
  format_unsigned(f, value);
}

HAK_COLD void word_address(format_t *f, uintptr_t value) {
  format_char(f, ' ');
  format_hex(f, value);
}

HAK_COLD void line_number(writer_t *w, const char *kind, uint64_t value) {
  format_t *f = writer(w);
  format_text(f, kind);
  word_number(f, value);
  format_char(f, '\n');
}

HAK_COLD int writer_file(const char *pattern) {
  char path[320];
  format_t f;
  format_init(&f, path, sizeof path);
  for (; *pattern != '\0'; pattern++) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      format_unsigned(&f, (uint64_t)getpid());
      pattern++;
    } else {
      format_char(&f, *pattern);
    }
  }
  return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}
