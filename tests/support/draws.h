/* draws.h - how many of its cases a test takes where a sanitizer makes each many times slower.
 *
 * The plain build takes them all. One with a sanitizer looks at the same code, of which some cases
 * reach every line, so a test whose cases differ in their numbers alone takes fewer there. */
#ifndef PL_TESTS_SUPPORT_DRAWS_H
#define PL_TESTS_SUPPORT_DRAWS_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DRAWS(all, fewer) (fewer)
#else
#define DRAWS(all, fewer) (all)
#endif

#endif
