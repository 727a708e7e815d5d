/* product.h - the scenarios of remote frees, generated as a product of dimensions. */
#ifndef TESTS_EXPLORE_PRODUCT_H
#define TESTS_EXPLORE_PRODUCT_H

#include "explore.h"

/* The cells of the product. The cell returned last is the one that runs next. */
const scenario_t *product_cell(size_t i);
size_t product_count(void);

#endif
