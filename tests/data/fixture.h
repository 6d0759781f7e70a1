/* fixture.h - a job, a model and data files for the tests of the data room. */
#ifndef PL_TESTS_DATA_FIXTURE_H
#define PL_TESTS_DATA_FIXTURE_H

#include "runtime/data/data.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fixture {
    struct pl_job job;
    struct pl_model model;
    struct pl_dataset set;
    struct pl_dataset_list list;
    struct pl_text notes;
    struct pl_diag d;
    struct pl_data *data;
    char path[512];
    bool made; /* path is a file of our own */
};

/* Byte tokens in a vocabulary of 1000, eos 500, sequences up to 8192, chats as ChatML. */
static inline void fixture_start(struct fixture *f, uint32_t format) {
    memset(f, 0, sizeof *f);
    f->job.max_seq_length = 8192;
    f->job.init = PL_INIT_RANDOM;
    f->job.tokenizer = (char *)(uintptr_t) "byte";
    f->job.train_on = PL_TRAIN_ON_RESPONSES;
    f->job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO + 1; /* the first: chatml */
    f->model.vocab = 1000;
    f->model.eos[0] = 500;
    f->model.n_eos = 1;
    f->set = PL_DATASET_DEFAULT;
    f->set.format = format;
    f->set.path = f->path;
    f->list.items = &f->set;
    f->list.n = 1;
}

static inline void fixture_write(struct fixture *f, const char *text, size_t n) {
    const char *dir = getenv("TMPDIR");
    snprintf(f->path, sizeof f->path, "%s/plimsoll-data-XXXXXX", dir ? dir : "/tmp");
    int fd = mkstemp(f->path);
    ck_assert_int_ge(fd, 0);
    f->made = true;
    for (size_t done = 0; done < n;) {
        ssize_t got = write(fd, text + done, n - done);
        ck_assert_int_gt(got, 0);
        done += (size_t)got;
    }
    ck_assert_int_eq(close(fd), 0);
}

static inline pl_err fixture_open(struct fixture *f) {
    f->d = (struct pl_diag){0};
    pl_text_finish(&f->notes);
    pl_data_close(&f->data);
    return pl_data_open(&f->job, &f->model, &f->list, &f->notes, &f->data, &f->d);
}

static inline void fixture_finish(struct fixture *f) {
    pl_data_close(&f->data);
    pl_text_finish(&f->notes);
    if (f->made) unlink(f->path);
}

/* Opens rows given as text, which must succeed. */
static inline void fixture_rows(struct fixture *f, uint32_t format, const char *text) {
    fixture_start(f, format);
    fixture_write(f, text, strlen(text));
    pl_err err = fixture_open(f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f->d.message);
}

/* Returns the ids as text, eos as `$`; with `trained`, each run of masked ones as one dot. */
static inline const char *fixture_show(const struct pl_sample *s, bool trained,
                                       char buf[2048]) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n && n < 2047; i++) {
        bool masked = trained && s->labels[i] == PL_LABEL_MASKED;
        if (!masked) ck_assert(!trained || s->labels[i] == s->ids[i]);
        if (masked && n && buf[n - 1] == '.' && s->labels[i - 1] == PL_LABEL_MASKED) continue;
        buf[n++] = masked ? '.' : (char)(s->ids[i] == 500 ? '$' : s->ids[i]);
    }
    buf[n] = 0;
    return buf;
}

#endif
