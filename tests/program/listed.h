/* listed.h - programs of every kind. */
#ifndef PL_TESTS_PROGRAM_LISTED_H
#define PL_TESTS_PROGRAM_LISTED_H

#include "estimator/plan/plan.h"

enum { PL_TEST_MODES = 4, PL_TEST_VARIANTS = 18 };
extern const char *const pl_test_modes[]; /* [PL_TEST_MODES] */

struct pl_job_shape pl_test_listed_shape(const struct pl_model *m, int mode);
/* Makes variant i of the shape; a setting that a mode does not have changes nothing there. */
void pl_test_vary(struct pl_job_shape *s, int i);

#endif
