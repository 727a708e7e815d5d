#include "kit/fault.h"

#include "os/line.h"
#include "os/os.h"

const char *_Atomic fault_foreign;

HAK_COLD void fault_line(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class) {
  line_t line;
  format_t *f = line_begin(&line);
  format_text(f, fault);
  format_text(f, ": ");
  format_text(f, function);
  format_text(f, "(");
  format_hex(f, (uint64_t)(uintptr_t)pointer);
  format_text(f, "): ");
  format_text(f, detail);
  if (size_class == FAULT_LARGE) {
    format_text(f, ", class large");
  } else if (size_class == FAULT_GUARDED) {
    format_text(f, ", in a guard slot");
  } else if (size_class != 0) {
    format_text(f, ", class ");
    format_unsigned(f, size_class);
  }
  line_end(&line);
}

HAK_COLD _Noreturn void fault_abort(const char *fault, const char *function, const void *pointer, const char *detail, size_t size_class) {
  fault_line(fault, function, pointer, detail, size_class);
  os_abort();
}
