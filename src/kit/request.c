#include "kit/request.h"

_Atomic uint64_t request_wanted, request_taken, request_done;

bool request_take(uint64_t *number) {
  uint64_t wanted = load_relaxed(&request_wanted), taken = load_relaxed(&request_taken);
  if (wanted == taken || wanted == load_relaxed(&request_done)) return false; /* withdrawn while its work is in progress */
  *number = wanted;
  return atomic_compare_exchange_strong_explicit(&request_taken, &taken, wanted, memory_order_relaxed, memory_order_relaxed);
}

/* Reports nothing if another request has been begun since: reporting this one could hide that one from its requester. */
void request_finish(uint64_t number) {
  if (load_relaxed(&request_taken) == number) store_relaxed(&request_done, number);
}

/* Another thread may have been doing the work in the parent; it does not exist here. */
HAK_COLD void request_after_fork(void) {
  store_relaxed(&request_taken, load_relaxed(&request_done));
  store_relaxed(&request_wanted, load_relaxed(&request_done));
}
