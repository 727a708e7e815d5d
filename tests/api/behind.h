#ifndef API_BEHIND_H
#define API_BEHIND_H

/* The next definition of the name after the library's own place in the order of search. */
void *behind_next(const char *name);

#endif
