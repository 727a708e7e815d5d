/* modules.c - shared libraries that the C library loads itself: iconv's modules. In a statically linked program they bring
 * a shared C library along, with a malloc of its own, beside hakmem in the program. */
#include <iconv.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "symbol.h"

enum { ROUNDS = 50, BLOCKS = 200 };

static const struct {
  const char *charset, *bytes; /* U+65E5 or U+0416 in this charset */
  bool cyrillic;
} texts[] = {{"EUC-JP", "\xc6\xfc", false}, {"SHIFT_JIS", "\x93\xfa", false}, {"BIG5", "\xa4\xe9", false}, {"KOI8-R", "\xf6", true}};

static void convert(size_t which) {
  char from[] = "\xe6\x97\xa5", cyrillic[] = "\xd0\x96", to[8] = "";
  char *in = texts[which].cyrillic ? cyrillic : from, *out = to;
  size_t in_left = strlen(in), out_left = sizeof to - 1;
  iconv_t converter = iconv_open(texts[which].charset, "UTF-8");
  REQUIRE(converter != (iconv_t)-1);
  CHECK(iconv(converter, &in, &in_left, &out, &out_left) == 0);
  CHECK(strcmp(to, texts[which].bytes) == 0);
  CHECK(iconv_close(converter) == 0);
}

static void *convert_all(void *unused) {
  char *blocks[BLOCKS];
  for (size_t round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(i * i + 1), (int)i, i * i + 1);
    convert(round % (sizeof texts / sizeof texts[0]));
    for (size_t i = 0; i < BLOCKS; i++) {
      CHECK(blocks[i][0] == (char)i && blocks[i][i * i] == (char)i);
      free(blocks[i]);
    }
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  CHECK(!getenv("TEST_EXPECTS_HAKMEM") || symbol_find("hak_version"));
  convert_all(NULL);
  if (pthread_create(&thread, NULL, convert_all, NULL) != 0) return 2;
  convert_all(NULL);
  pthread_join(thread, NULL);
  return check_failures() != 0;
}
