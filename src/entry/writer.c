#include "entry/writer.h"

#include <fcntl.h>

#include "os/file.h"
#include "os/os.h"

HAK_COLD void writer_open(writer_t *w, int fd) {
  w->fd = fd;
  w->good = true;
  w->to = NULL;
  w->placed = false;
  w->at = 0;
  w->room = 0;
  w->sum = 0;
  format_init(&w->out, w->text, sizeof w->text);
}

HAK_COLD void writer_into(writer_t *w, int memory, char *to, size_t room) {
  writer_open(w, memory);
  w->to = to;
  w->room = room;
}

HAK_COLD void writer_at(writer_t *w, int fd, uint64_t at, size_t room) {
  writer_open(w, fd);
  w->placed = true;
  w->at = at;
  w->room = room;
}

/* Four bits at a time. */
static uint32_t crc_32(uint32_t crc, const char *text, size_t bytes) {
  static const uint32_t of_nibble[] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  crc = ~crc;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= (uint8_t)text[i];
    crc = crc >> 4 ^ of_nibble[crc & 15];
    crc = crc >> 4 ^ of_nibble[crc & 15];
  }
  return ~crc;
}

static bool put(writer_t *w) {
  size_t bytes = w->out.used;
  if (w->to == NULL && !w->placed) return os_write(w->fd, w->out.text, bytes);
  if (bytes > w->room) return false;
  if (w->placed) {
    if (!file_pwrite(w->fd, w->out.text, bytes, w->at)) return false;
    w->at += bytes;
  } else {
    if (!file_copy(w->fd, w->to, w->out.text, bytes)) return false;
    w->to += bytes;
  }
  w->sum = crc_32(w->sum, w->out.text, bytes);
  w->room -= bytes;
  return true;
}

HAK_COLD bool writer_flush(writer_t *w) {
  w->good = w->good && put(w);
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

HAK_COLD void writer_path(char path[PATH_ROOM], const char *pattern) {
  format_t f;
  format_init(&f, path, PATH_ROOM);
  for (; *pattern != '\0'; pattern++) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      format_unsigned(&f, os_process_id());
      pattern++;
    } else {
      format_char(&f, *pattern);
    }
  }
}

HAK_COLD int writer_file(const char *pattern) {
  char path[PATH_ROOM];
  writer_path(path, pattern);
  /* A pipe without a reader is an error: an exit that waited for a reader might wait for ever.  Once the pipe is open, writes wait, as
   * on standard error.  Under a filter of the program's own, only the calls that the report needs are made. */
  int hasty = load_relaxed(&os_filters) == 0 ? O_NONBLOCK : 0;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | hasty, 0666);
  if (fd >= 0 && hasty != 0) (void)fcntl(fd, F_SETFL, 0); /* of this opening alone, even if it is /dev/stderr */
  return fd;
}
