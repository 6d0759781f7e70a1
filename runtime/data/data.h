/* data.h - rows of training data as tokens, streamed from disk in a fixed order.
 *
 * In: files of one format each.  Out: samples by row number.  Needs: estimator.
 *   S1  opening reads every row once, checks it, and reports the first bad one by file and line;
 *       only offsets stay in memory
 *   S2  the order is a function of (seed, epoch, position) alone: any position can be asked for
 *       without having seen the ones before it
 *   S3  a row without a supervised token can be read as any other, and is counted in the
 *       statistics; the walk decides if it is in the order (holdout.h)
 *   S4  a row is handed out with the tokens and labels that it had when it was counted, or not at
 *       all: each read compares a digest
 *   S5  the number of files is bounded by memory, not by descriptors (content.h) */
#ifndef PL_RUNTIME_DATA_DATA_H
#define PL_RUNTIME_DATA_DATA_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"
#include "estimator/model/model.h"
#include "runtime/data/chat/message.h"
#include "runtime/data/data_stats.h"
#include "runtime/data/prompt_form.h"
#include "runtime/data/sample.h"

struct pl_data;
struct pl_tokenizer;

/* Opens the files of `list` (paths resolved by pl_job_input_path). Rules for length, vocabulary and
 * tokenizer come from job and model. `notes` gets one line per warning. */
pl_err pl_data_open(const struct pl_job *job, const struct pl_model *m,
                    const struct pl_dataset_list *list, struct pl_text *notes, struct pl_data **out,
                    struct pl_diag *d);
/* Opens the files of a job that this split trains or evaluates on: `dataset`, entries of
 * `datasets`, `eval_datasets`. *out is NULL if the job names none. */
pl_err pl_data_open_split(const struct pl_job *job, const struct pl_model *m, uint32_t split,
                          struct pl_text *notes, struct pl_data **out, struct pl_diag *d);
/* pl_data_open_split in three stages, each more expensive than the one before; job and model must
 * outlive the last. First the tokenizer, if a format that is given needs one; then every file, with
 * the columns of its entry; then all rows, where `format: auto` opens the tokenizer when the first
 * row is read. */
pl_err pl_data_begin_split(const struct pl_job *job, const struct pl_model *m, uint32_t split,
                           struct pl_data **out, struct pl_diag *d);
pl_err pl_data_find(struct pl_data *data, struct pl_diag *d);
/* watch: nullable. */
pl_err pl_data_read(struct pl_data *data, struct pl_text *notes, const struct pl_data_watch *watch,
                    struct pl_diag *d);
void pl_data_close(struct pl_data **data);
uint32_t pl_data_files(const struct pl_data *data);
const struct pl_data_file *pl_data_file(const struct pl_data *data, uint32_t i);
const struct pl_data_file *pl_data_file_of(const struct pl_data *data, uint64_t row);
uint64_t pl_data_rows(const struct pl_data *data);
/* Writes the day that chats show, as `chat_date` takes it; "" = they show none. */
const char *pl_data_chat_date(const struct pl_data *data, char buf[PL_DAY_TEXT]);
const struct pl_data_stats *pl_data_stats(const struct pl_data *data);
const struct pl_longest *pl_data_longest(const struct pl_data *data);
/* Returns the tokenizer of the rows; NULL: they have their tokens already. */
const struct pl_tokenizer *pl_data_tokenizer(const struct pl_data *data);
/* Returns the form that prompts have in the rows of the first file: that of a conversation also in
 * rows of preferences, where there is a chat template. */
enum pl_prompt_form pl_data_prompt_form(const struct pl_data *data);
/* Appends the Jinja program that rendered the conversations; nothing if there were none, or if it
 * is the tokenizer's own. */
void pl_data_write_program(const struct pl_data *data, struct pl_text *out);
/* Computes a digest of the tokenizer's files; false: there is no tokenizer, or it has no files. */
bool pl_data_tokenizer_identity(const struct pl_data *data, uint64_t *out);
/* Returns the tokens that training computes for a row; 0 if nothing in it is supervised. */
uint64_t pl_data_tokens(const struct pl_data *data, uint64_t row);
/* True if the row was longer than max_seq_length, and was cut to it. */
bool pl_data_is_cut(const struct pl_data *data, uint64_t row);
/* Reads the tokens of row `row` (0-based over all files). Any thread may call; calls exclude each
 * other. PL_ERR_DATA_FILE: the file can no longer be read, or is not the one that was opened. */
pl_err pl_data_sample(struct pl_data *data, uint64_t row, struct pl_sample *out, struct pl_diag *d);

/* Returns the row at `position` of an endless walk over rows [first, first+n): epoch = position /
 * n; shuffled by (seed, epoch) if `shuffle`, else in file order. Each epoch visits every row
 * once. */
uint64_t pl_data_order(uint64_t position, uint64_t first, uint64_t n, bool shuffle, uint64_t seed);

#endif
