/* hang.h - limits of time in tests.
 *
 * A machine may be busy, so a test asks of what should end only that it ends within HANG_SECONDS.
 * That it ends at once, and not because a limit of the program has passed, is shown by a limit that
 * is longer than that: NEVER_SECONDS. */
#ifndef PL_TESTS_SUPPORT_HANG_H
#define PL_TESTS_SUPPORT_HANG_H

#define HANG_SECONDS  200
#define NEVER_SECONDS 900

#endif
