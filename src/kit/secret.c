#include "kit/secret.h"

#include "os/os.h"

struct secret secret;

void secret_start(void) {
  if (secret.first != 0) return; /* an earlier boot ran out of memory */
  secret.first = os_random() | 1;
  secret.second = os_random() | 1;
  secret.order = os_random();
  (void)os_seal(&secret, sizeof secret, true);
}
