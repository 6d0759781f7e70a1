/* joblog.h - train_log.jsonl of a finished run. Failures end the test.
 *
 * Use: json_t *log = joblog_read(dir); ... json_decref(log); */
#ifndef PL_TESTS_SUPPORT_JOBLOG_H
#define PL_TESTS_SUPPORT_JOBLOG_H

#include <jansson.h>
#include <stdint.h>

/* Returns every line of dir/train_log.jsonl, an array of objects. */
json_t *joblog_read(const char *dir);
/* Returns the number-th (from 0) line of this event, borrowed; NULL if there are fewer. */
json_t *joblog_event(const json_t *log, const char *event, size_t number);
/* Returns the line of a step, borrowed; NULL if it was not logged. The test ends if it was logged
 * twice. */
json_t *joblog_step(const json_t *log, uint64_t step);
size_t joblog_count(const json_t *log, const char *event);
/* Returns a number of a line; the test ends if it is not a number. */
double joblog_number(const json_t *line, const char *key);
/* Returns a number of the summary of dir's run; the test ends if there is none. */
double joblog_summary(const char *dir, const char *key);
/* Ends the test unless both logs hold the same steps with the same loss, grad_norm, learning_rate,
 * tokens, epoch and measures, digit for digit. */
void joblog_assert_same_steps(const char *dir_a, const char *dir_b);

#endif
