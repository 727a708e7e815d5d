#include "kit/request.h"

_Atomic uint64_t request_wanted, request_taken, request_done;

bool request_take(uint64_t *number) {
  uint64_t wanted = load_relaxed(&request_wanted), taken = load_relaxed(&request_taken);
  if (wanted == taken || wanted == load_relaxed(&request_done)) return false; /* taken back while somebody is at it */
  *number = wanted;
  return atomic_compare_exchange_strong_explicit(&request_taken, &taken, wanted, memory_order_relaxed, memory_order_relaxed);
}

/* Not of one that others have begun with another since: who waits for that would miss it. */
void request_finish(uint64_t number) {
  if (load_relaxed(&request_taken) == number) store_relaxed(&request_done, number);
}

/* Another thread may have been at work in the parent: nobody is here. */
HAK_COLD void request_after_fork(void) {
  store_relaxed(&request_taken, load_relaxed(&request_done));
  store_relaxed(&request_wanted, load_relaxed(&request_done));
}
