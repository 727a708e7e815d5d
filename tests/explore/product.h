/* product.h - the scenarios of remote frees, made from dimensions instead of chosen. */
#ifndef TESTS_EXPLORE_PRODUCT_H
#define TESTS_EXPLORE_PRODUCT_H

#include "explore.h"

/* The cells of the product. One that is asked for is the one that runs next. */
const scenario_t *product_cell(size_t i);
size_t product_count(void);

#endif
