/* check_cache.c - tokens kept on disk: they come back as they were, or not at all. */
#include "runtime/data/batch.h"
#include "runtime/data/cache.h"
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* --- digest ----------------------------------------------------------------------------------- */

/* Published with the reference implementation and its Python binding. */
static const struct {
    const char *text;
    uint64_t seed, value;
} vectors[] = {
    {"", 0, UINT64_C(0xEF46DB3751D8E999)},
    {"a", 0, UINT64_C(0xD24EC4F1A98C6E5B)},
    {"abc", 0, UINT64_C(0x44BC2CF5AD770999)},
    {"xxhash", 20141025, UINT64_C(13067679811253438005)},
    {"Nobody inspects the spammish repetition", 0, UINT64_C(0xFBCEA83C8A378BF1)},
};

START_TEST(a_digest_is_the_published_one) {
    struct pl_digest h;
    pl_digest_init(&h, vectors[_i].seed);
    pl_digest_add(&h, vectors[_i].text, strlen(vectors[_i].text));
    ck_assert_uint_eq(pl_digest_value(&h), vectors[_i].value);
}
END_TEST

START_TEST(a_digest_does_not_depend_on_the_pieces) {
    unsigned char text[200];
    struct pl_digest whole, pieces;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 37);
    for (size_t n = 0; n <= sizeof text; n += 7) {
        for (size_t piece = 1; piece < 80; piece++) {
            pl_digest_init(&whole, 9);
            pl_digest_add(&whole, text, n);
            pl_digest_init(&pieces, 9);
            for (size_t at = 0; at < n; at += piece)
                pl_digest_add(&pieces, text + at, n - at < piece ? n - at : piece);
            ck_assert_uint_eq(pl_digest_value(&whole), pl_digest_value(&pieces));
        }
    }
}
END_TEST

/* --- data through the cache ------------------------------------------------------------------- */

/* Every kind of row: plain, masked, labels of their own, nothing supervised, too long. */
static const char rows[] = "{\"input_ids\":[10,11,12]}\n"
                           "{\"input_ids\":[20,21,22],\"labels\":[-100,-100,22]}\n"
                           "{\"input_ids\":[30,31],\"labels\":[30,999]}\n"
                           "{\"input_ids\":[40,41],\"labels\":[40,-100]}\n"
                           "{\"input_ids\":[50,51,52,53,54,55,56,57,58,59]}\n"
                           "{\"input_ids\":[0]}\n";

static void start(struct fixture *f) {
    fixture_start(f, PL_FORMAT_TOKENS);
    f->job.max_seq_length = 8;
    f->job.dataset_cache = dir;
    fixture_write(f, rows, strlen(rows));
}

static void open_ok(struct fixture *f) {
    ck_assert_msg(fixture_open(f) == PL_ERR_OK, "%s", f->d.message);
}

static char name[SCRATCH_PATH + 64]; /* name of the last file seen */
static int named;

static void see(const char *entry, void *ctx) {
    (void)ctx;
    snprintf(name, sizeof name, "%s/%s", dir, entry);
    named++;
}

static int files_kept(void) {
    named = 0;
    dir_each(dir, see, NULL);
    return named;
}

/* Expects the rows, whichever way they are read. */
static void expect_rows(struct fixture *f) {
    static const struct {
        uint64_t n, computed;
        int32_t ids[8], labels[8];
    } wanted[] = {
        {3, 3, {10, 11, 12}, {10, 11, 12}},
        {3, 3, {20, 21, 22}, {-100, -100, 22}},
        {2, 2, {30, 31}, {30, 999}},
        {2, 0, {40, 41}, {40, -100}},
        {8, 8, {50, 51, 52, 53, 54, 55, 56, 57}, {50, 51, 52, 53, 54, 55, 56, 57}},
        {1, 0, {0}, {0}},
    };
    struct pl_sample s = {0};
    const struct pl_data_stats *st = pl_data_stats(f->data);
    ck_assert_uint_eq(st->rows, 6);
    ck_assert_uint_eq(st->tokens, 19);
    ck_assert_uint_eq(st->supervised_tokens, 2 + 1 + 1 + 0 + 7 + 0);
    ck_assert_uint_eq(st->unsupervised_rows, 2);
    ck_assert_uint_eq(st->truncated_rows, 1);
    ck_assert_uint_eq(st->longest, 8);
    ck_assert_uint_eq(pl_data_longest(f->data)->n, 4);
    ck_assert_uint_eq(pl_data_longest(f->data)->row[0], 4);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f->notes), ":4: 2 rows without a token"));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f->notes), ":5: 1 row longer than"));
    for (uint64_t r = 0; r < 6; r++) {
        ck_assert_msg(pl_data_sample(f->data, r, &s, &f->d) == PL_ERR_OK, "%s", f->d.message);
        ck_assert_uint_eq(s.n, wanted[r].n);
        ck_assert_uint_eq(pl_data_tokens(f->data, r), wanted[r].computed);
        ck_assert_int_eq(pl_data_is_cut(f->data, r), r == 4);
        ck_assert_mem_eq(s.ids, wanted[r].ids, (size_t)s.n * sizeof *s.ids);
        ck_assert_mem_eq(s.labels, wanted[r].labels, (size_t)s.n * sizeof *s.labels);
    }
    pl_sample_finish(&s);
}

START_TEST(kept_tokens_are_those_of_the_file) {
    struct fixture f;
    start(&f);
    f.job.dataset_cache = (char *)(uintptr_t) "off";
    open_ok(&f);
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 0);
    f.job.dataset_cache = dir;
    open_ok(&f);
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 1);
    open_ok(&f);
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 1);
    fixture_finish(&f);
}
END_TEST

START_TEST(samples_come_from_the_cache_and_not_from_the_file) {
    struct fixture f;
    start(&f);
    for (int run = 0; run < 2; run++) {
        open_ok(&f);
        ck_assert_int_eq(truncate(f.path, 0), 0);
        expect_rows(&f);
        unlink(f.path);
        FILE *again = fopen(f.path, "w");
        ck_assert(again && fputs(rows, again) >= 0 && fclose(again) == 0);
    }
    fixture_finish(&f);
}
END_TEST

START_TEST(a_second_opening_reads_no_row) {
    struct fixture f;
    struct stat before, after;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_int_eq(stat(name, &before), 0);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_int_eq(stat(name, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino); /* making it again would rename a new one */
    fixture_finish(&f);
}
END_TEST

/* --- damage ----------------------------------------------------------------------------------- */

static void write_whole(const char *path, const char *bytes, size_t n) {
    FILE *out = fopen(path, "wb");
    ck_assert(out && fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
}

/* The damaged file is noted, not used, and made again. */
static void expect_mended(struct fixture *f, const char *what) {
    open_ok(f);
    ck_assert_msg(strstr(pl_text_str(&f->notes), "is not used: ") != NULL, "%s: no note in %s",
                  what, pl_text_str(&f->notes));
    expect_rows(f);
    open_ok(f);
    ck_assert_msg(strstr(pl_text_str(&f->notes), "is not used: ") == NULL, "%s: not mended: %s",
                  what, pl_text_str(&f->notes));
    expect_rows(f);
}

/* H3 of cache.h */
START_TEST(one_flipped_bit_anywhere_is_found) {
    struct fixture f;
    size_t n;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    char *bytes = file_read(name, &n);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= (char)(1 << i % 8);
        write_whole(name, bytes, n);
        bytes[i] ^= (char)(1 << i % 8);
        expect_mended(&f, textf("byte %zu of %zu", i, n));
    }
    free(bytes);
    fixture_finish(&f);
}
END_TEST

/* H3 of cache.h */
START_TEST(a_file_of_another_length_is_found) {
    struct fixture f;
    size_t n;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    char *bytes = file_read(name, &n);
    for (size_t keep = 0; keep < n; keep++) {
        write_whole(name, bytes, keep);
        expect_mended(&f, textf("%zu bytes of %zu", keep, n));
    }
    write_whole(name, bytes, n + 1); /* with the NUL at its end */
    expect_mended(&f, "a byte too much");
    free(bytes);
    fixture_finish(&f);
}
END_TEST

/* H1 of cache.h: the file repeats its key. */
START_TEST(the_tokens_of_other_data_are_not_taken) {
    struct fixture f;
    struct pl_cache c;
    struct pl_cache_writer w;
    struct pl_text why = {0};
    struct pl_sample s = {0};
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    /* a whole file, of another key, under this one's name */
    const struct pl_cache_key other = {{1, 2}};
    char target[sizeof name];
    snprintf(target, sizeof target, "%s", name);
    ck_assert(pl_cache_create(&w, dir, &other, NULL));
    ck_assert(pl_cache_commit(&w, &(struct pl_remarks){.dropped = {0}}, NULL));
    ck_assert(pl_cache_open(&c, dir, &other, 1000, 8, &why));
    ck_assert_int_eq(rename(c.path, target), 0);
    pl_cache_close(&c);
    expect_mended(&f, "another key");
    pl_text_finish(&why);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* H3 of cache.h. Digests are right: somebody has written the file by other rules. */
START_TEST(rows_that_make_no_sense_are_not_taken) {
    static const struct pl_cache_row edits[] = {
        {4, 0, 0, 0},         {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 9, 0}, {0, UINT32_MAX - 1, 0, 0},
        {UINT64_MAX, 0, 0, 0}};
    int32_t ids[] = {3, 4};
    const struct pl_sample s = {.ids = ids, .labels = ids, .n = 2, .cap = 2};
    const struct pl_cache_key key = {{1, 2}};
    for (size_t i = 0; i <= sizeof edits / sizeof *edits; i++) {
        struct pl_cache_writer w;
        struct pl_cache c;
        struct pl_text why = {0};
        ck_assert(pl_cache_create(&w, dir, &key, NULL));
        pl_cache_add(&w, &s, 1, false);
        pl_cache_add(&w, &s, 1, false);
        bool edited = i < sizeof edits / sizeof *edits;
        w.rows[0].place += edited ? edits[i].place : 0;
        w.rows[0].tokens += edited ? edits[i].tokens : 0;
        w.rows[0].targets += edited ? edits[i].targets : 0;
        ck_assert(pl_cache_commit(&w, &(struct pl_remarks){.dropped = {0}}, NULL));
        ck_assert_msg(pl_cache_open(&c, dir, &key, 1000, 8, &why) == !edited, "edit %zu", i);
        ck_assert(!edited || strstr(pl_text_str(&why), "its rows contradict each other"));
        pl_cache_close(&c);
        pl_text_finish(&why);
    }
}
END_TEST

/* H3 of cache.h */
START_TEST(an_id_outside_the_vocabulary_is_an_error_of_the_read) {
    struct pl_cache_writer w;
    struct pl_cache c;
    struct pl_diag d = {0};
    int32_t ids[] = {3, 1000}, labels[] = {3, 1000}, odd[] = {3, -7};
    struct pl_sample s = {.ids = ids, .labels = labels, .n = 2, .cap = 2}, out = {0};
    const struct pl_cache_key key = {{1, 2}};
    ck_assert(pl_cache_create(&w, dir, &key, NULL));
    pl_cache_add(&w, &s, 1, false);
    s.labels = odd;
    pl_cache_add(&w, &s, 1, false);
    ck_assert(pl_cache_commit(&w, &(struct pl_remarks){.dropped = {0}}, NULL));
    ck_assert(pl_cache_open(&c, dir, &key, 1000, 8, NULL));
    ck_assert_uint_eq(c.header.rows, 2);
    for (int i = 0; i < 2; i++) {
        d = (struct pl_diag){0};
        ck_assert_int_eq(pl_cache_read(&c, c.rows[i].place, 2, &out, &d), PL_ERR_DATA_FILE);
        ck_assert_str_eq(d.file, c.path);
        ck_assert_uint_eq(out.n, 0);
    }
    c.vocab = 1001;
    ck_assert_int_eq(pl_cache_read(&c, c.rows[0].place, 2, &out, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_cache_read(&c, c.rows[1].place, 2, &out, &d), PL_ERR_DATA_FILE);
    c.max_tokens = 1;
    ck_assert_int_eq(pl_cache_read(&c, c.rows[0].place, 2, &out, &d), PL_ERR_DATA_FILE);
    ck_assert_uint_eq(out.n, 0);
    pl_cache_close(&c);
    pl_sample_finish(&out);
}
END_TEST

/* H4 of cache.h */
START_TEST(a_cache_cut_short_under_a_run_is_an_error_of_the_read) {
    struct fixture f;
    struct pl_sample s = {0};
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_int_eq(truncate(name, 150), 0);
    ck_assert_int_eq(pl_data_sample(f.data, 4, &s, &f.d), PL_ERR_DATA_FILE);
    ck_assert_str_eq(f.d.file, name);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- forged files ----------------------------------------------------------------------------- */

/* The cached file of the fixture anew, under its own key and with right digests: a row of `tokens`
 * tokens that says how many of them are targets, and `denying` more that say that none is. */
static void forge(uint64_t tokens, uint64_t denying) {
    struct pl_cache_header was;
    struct pl_cache_writer w;
    int32_t ids[256];
    const struct pl_sample s = {.ids = ids, .labels = ids, .n = tokens, .cap = tokens};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = (int32_t)i;
    ck_assert_int_eq(files_kept(), 1);
    char *bytes = file_read(name, NULL);
    memcpy(&was, bytes, sizeof was);
    free(bytes);
    ck_assert(pl_cache_create(&w, dir, &was.key, NULL));
    for (uint64_t i = 0; i <= denying; i++)
        pl_cache_add(&w, &s, i ? 0 : tokens - 1, false);
    ck_assert(pl_cache_commit(&w, &was.remarks, NULL));
}

/* The first step of the opened data, into a micro-batch of the size that is planned for it. */
static pl_err first_step(struct fixture *f, uint64_t pack_tokens) {
    struct pl_walk walk;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    pl_walk_init(&walk, 0, pl_data_rows(f->data), false, 1);
    const struct pl_batch_source from = {
        .data = f->data, .walk = &walk, .pack_tokens = pack_tokens};
    ck_assert_int_eq(pl_micro_batch_init(&mb, 8, 4, &f->d), PL_ERR_OK);
    pl_err err = pl_step_batch_load(&b, &from, 0, 1, &f->d);
    if (err == PL_ERR_OK) err = pl_micro_batch_fill(&mb, &b, 0, 1, &f->d);
    pl_step_batch_finish(&b);
    pl_micro_batch_finish(&mb);
    return err;
}

START_TEST(a_row_longer_than_the_job_allows_is_not_taken) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    forge(200, 0);
    open_ok(&f);
    ck_assert_int_eq(first_step(&f, 0), PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "is not used: a row of it is longer"));
    expect_rows(&f);
    fixture_finish(&f);
}
END_TEST

/* A row that trains nothing takes no room in a pack, so one that trains may not claim to be such.
 */
START_TEST(a_row_that_denies_its_targets_is_an_error_of_the_read) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    forge(8, 0);
    open_ok(&f);
    ck_assert_int_eq(first_step(&f, 8), PL_ERR_OK);
    forge(8, 3);
    open_ok(&f);
    ck_assert_int_eq(first_step(&f, 8), PL_ERR_DATA_FILE);
    ck_assert_str_eq(f.d.file, name);
    ck_assert_ptr_nonnull(strstr(pl_diag_hint_text(&f.d), "delete the file"));
    fixture_finish(&f);
}
END_TEST

/* --- whose the files are ---------------------------------------------------------------------- */

static mode_t mode_of(const char *path) {
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* H5 of cache.h */
START_TEST(a_cache_is_for_its_user_alone) {
    struct fixture f;
    char made[SCRATCH_PATH + 8];
    start(&f);
    snprintf(made, sizeof made, "%s/made", dir);
    f.job.dataset_cache = made;
    mode_t before = umask(0);
    open_ok(&f);
    umask(before);
    ck_assert_uint_eq(mode_of(made), 0700);
    strcat(dir, "/made");
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_uint_eq(mode_of(name), 0600);
    *strrchr(dir, '/') = 0;
    fixture_finish(&f);
}
END_TEST

START_TEST(a_file_that_others_may_write_to_is_not_used) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_int_eq(chmod(name, 0620), 0);
    expect_mended(&f, "other users may write to it");
    ck_assert_uint_eq(mode_of(name), 0600);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(name, 1, (gid_t)-1), 0);
        expect_mended(&f, "it belongs to another user");
    }
    fixture_finish(&f);
}
END_TEST

static void expect_not_kept(struct fixture *f, const char *reason) {
    open_ok(f);
    ck_assert_msg(strstr(pl_text_str(&f->notes), reason) != NULL, "%s: %s", reason,
                  pl_text_str(&f->notes));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f->notes), "tokens are not kept"));
    expect_rows(f);
}

START_TEST(a_directory_that_others_may_write_to_is_not_used) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(chmod(dir, 0702), 0);
    expect_not_kept(&f, "other users may write to it");
    ck_assert_int_eq(chmod(dir, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(dir, 1, (gid_t)-1), 0);
        expect_not_kept(&f, "it belongs to another user");
    }
    fixture_finish(&f);
}
END_TEST

/* A hard link needs no right to write to what it names. */
START_TEST(a_file_that_has_another_name_is_not_written_to) {
    struct fixture f;
    char part[sizeof name + 8], mine[SCRATCH_PATH + 8];
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    snprintf(part, sizeof part, "%.*s.part", (int)(strlen(name) - strlen(".tokens")), name);
    snprintf(mine, sizeof mine, "%s-mine", dir);
    ck_assert_int_eq(unlink(name), 0);
    file_write(mine, "precious");
    ck_assert_int_eq(link(mine, part), 0);
    open_ok(&f);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "cannot write into"));
    expect_rows(&f);
    char *text = file_read(mine, NULL);
    ck_assert_str_eq(text, "precious");
    free(text);
    unlink(mine);
    fixture_finish(&f);
}
END_TEST

/* --- keys ------------------------------------------------------------------------------------- */

static void longer(struct fixture *f) {
    f->job.max_seq_length = 9;
}
static void dropping(struct fixture *f) {
    f->job.overlength = PL_OVERLENGTH_DROP;
}
static void wider(struct fixture *f) {
    f->model.vocab = 2000;
}
static void fewer(struct fixture *f) {
    f->set.max_samples = 5;
}
static void another_row(struct fixture *f) {
    FILE *out = fopen(f->path, "a");
    ck_assert(out && fputs("{\"input_ids\":[1,2]}\n", out) >= 0 && fclose(out) == 0);
}
static void same_length(struct fixture *f) {
    FILE *out = fopen(f->path, "r+");
    ck_assert(out && fputs("{\"input_ids\":[10,13,12]}\n", out) >= 0 && fclose(out) == 0);
}

/* H1 of cache.h */
START_TEST(whatever_tokens_depend_on_gives_another_file) {
    static void (*const changes[])(struct fixture *) = {longer, dropping,    wider,
                                                        fewer,  another_row, same_length};
    struct fixture f;
    start(&f);
    open_ok(&f);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        changes[i](&f);
        open_ok(&f);
        ck_assert_int_eq(files_kept(), (int)i + 2);
    }
    struct pl_sample s = {0};
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_int_eq(s.ids[1], 13);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* Slices of as many rows are told apart, and each is read again from its own file. */
START_TEST(every_slice_has_a_file_of_its_own) {
    static const struct pl_row_slice slices[] = {{.from = {true, 1}, .to = {true, 2}},
                                                 {.from = {true, 2}, .to = {true, 3}}};
    static const int32_t first[] = {20, 30};
    struct fixture f;
    struct pl_sample s = {0};
    start(&f);
    for (int i = 0; i < 4; i++) {
        f.set.slice = slices[i % 2];
        open_ok(&f);
        ck_assert_int_eq(files_kept(), i ? 2 : 1);
        ck_assert_uint_eq(pl_data_rows(f.data), 1);
        ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
        ck_assert_int_eq(s.ids[0], first[i % 2]);
    }
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- with a tokenizer ------------------------------------------------------------------------- */

#define TOKENIZERS DATA "/tokenizer/"

static const char chats[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"},"
                            "{\"role\":\"assistant\",\"content\":\"General\"}]}\n"
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"},"
                            "{\"role\":\"assistant\",\"content\":\"B C D\"}]}\n";

static char tokenizer[SCRATCH_PATH + 16];

static void take_tokenizer(const char *from) {
    scratch_remove(tokenizer);
    scratch_copy(textf("%s%s", TOKENIZERS, from), tokenizer);
}

/* `dataset_cache: auto` in a cache of our own; the scratch directory holds nothing else. */
static void start_chats(struct fixture *f) {
    char xdg[SCRATCH_PATH];
    snprintf(xdg, sizeof xdg, "%s", dir);
    snprintf(tokenizer, sizeof tokenizer, "%s-tokenizer", dir);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", xdg, 1), 0);
    take_tokenizer("gpt2_style");
    snprintf(dir, sizeof dir, "%s/plimsoll/tokens", textf("%s", xdg));
    fixture_start(f, PL_FORMAT_MESSAGES);
    f->model.vocab = 100000;
    f->job.tokenizer = tokenizer;
    f->job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO + 1; /* chatml */
    f->job.train_on = PL_TRAIN_ON_RESPONSES;
    fixture_write(f, chats, strlen(chats));
}

static void end_chats(struct fixture *f) {
    scratch_remove(tokenizer);
    *strstr(dir, "/plimsoll/tokens") = 0;
    fixture_finish(f);
}

/* Every sample of the open data, as text. */
static void dump(struct fixture *f, struct pl_text *out) {
    struct pl_sample s = {0};
    for (uint64_t r = 0; r < pl_data_rows(f->data); r++) {
        ck_assert_int_eq(pl_data_sample(f->data, r, &s, &f->d), PL_ERR_OK);
        for (uint64_t i = 0; i < s.n; i++)
            pl_text_addf(out, "%d/%d ", s.ids[i], s.labels[i]);
        pl_text_add(out, "\n");
    }
    pl_sample_finish(&s);
}

/* The very same tokens, for all that a digest knows. */
static void one_more_space(struct fixture *f) {
    (void)f;
    FILE *out = fopen(textf("%s/tokenizer.json", tokenizer), "a");
    ck_assert(out && fputs(" ", out) >= 0 && fclose(out) == 0);
}
static void another_tokenizer(struct fixture *f) {
    (void)f;
    take_tokenizer("llama3_style");
}
static void another_template(struct fixture *f) {
    f->job.chat_template.choice++;
}
static void another_mask(struct fixture *f) {
    f->job.train_on = PL_TRAIN_ON_ALL;
}
static void one_more_message(struct fixture *f) {
    FILE *out = fopen(f->path, "a");
    ck_assert(out && fputs(chats, out) >= 0 && fclose(out) == 0);
}

START_TEST(what_a_tokenizer_read_is_kept_until_something_changes) {
    static void (*const changes[])(struct fixture *) = {
        one_more_space, another_tokenizer, another_template, another_mask, one_more_message};
    struct fixture f;
    start_chats(&f);
    for (size_t i = 0; i <= sizeof changes / sizeof *changes; i++) {
        struct pl_text cold = {0}, made = {0}, kept = {0};
        if (i) changes[i - 1](&f);
        f.job.dataset_cache = (char *)(uintptr_t) "off";
        open_ok(&f);
        dump(&f, &cold);
        f.job.dataset_cache = (char *)(uintptr_t) "auto";
        open_ok(&f);
        dump(&f, &made);
        ck_assert_int_eq(files_kept(), (int)i + 1);
        open_ok(&f);
        dump(&f, &kept);
        ck_assert_int_eq(files_kept(), (int)i + 1);
        ck_assert_str_eq(pl_text_str(&made), pl_text_str(&cold));
        ck_assert_str_eq(pl_text_str(&kept), pl_text_str(&cold));
        pl_text_finish(&cold);
        pl_text_finish(&made);
        pl_text_finish(&kept);
    }
    end_chats(&f);
}
END_TEST

START_TEST(bytes_and_tokens_are_not_worth_a_file) {
    struct fixture f;
    start_chats(&f);
    f.job.tokenizer = (char *)(uintptr_t) "byte";
    open_ok(&f);
    ck_assert(!path_exists(dir));
    end_chats(&f);
}
END_TEST

/* --- writing ---------------------------------------------------------------------------------- */

START_TEST(what_a_killed_run_left_is_written_over) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    char part[sizeof name + 8];
    snprintf(part, sizeof part, "%.*s.part", (int)(strlen(name) - strlen(".tokens")), name);
    ck_assert_int_eq(unlink(name), 0);
    char *rubbish = calloc(1, 4096); /* longer than what takes its place */
    ck_assert_ptr_nonnull(rubbish);
    write_whole(part, rubbish, 4096);
    free(rubbish);
    open_ok(&f);
    ck_assert_ptr_null(strstr(pl_text_str(&f.notes), "is not used"));
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_ptr_null(strstr(name, ".part"));
    fixture_finish(&f);
}
END_TEST

START_TEST(two_runs_do_not_write_one_file) {
    struct fixture f;
    start(&f);
    open_ok(&f);
    ck_assert_int_eq(files_kept(), 1);
    char part[sizeof name + 8];
    snprintf(part, sizeof part, "%.*s.part", (int)(strlen(name) - strlen(".tokens")), name);
    ck_assert_int_eq(unlink(name), 0);
    int fd = open(part, O_RDWR | O_CREAT, 0600);
    ck_assert(fd >= 0 && flock(fd, LOCK_SH) == 0);
    open_ok(&f);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "another run is writing"));
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 1);
    ck_assert_str_eq(name, part);
    close(fd);
    fixture_finish(&f);
}
END_TEST

/* H2 of cache.h */
START_TEST(a_full_disk_costs_the_cache_and_not_the_run) {
    struct fixture f;
    start(&f);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){140, 140}), 0);
    open_ok(&f);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "cannot write"));
    expect_rows(&f);
    ck_assert_int_eq(files_kept(), 0);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_directory_that_cannot_be_made_is_said) {
    struct fixture f;
    char deep[SCRATCH_PATH + 16];
    start(&f);
    snprintf(deep, sizeof deep, "%s/no/where", dir);
    f.job.dataset_cache = deep;
    open_ok(&f);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "tokens are not kept"));
    expect_rows(&f);
    fixture_finish(&f);
}
END_TEST

/* H2 of cache.h */
START_TEST(a_bad_row_leaves_no_file) {
    struct fixture f;
    start(&f);
    another_row(&f);
    FILE *out = fopen(f.path, "a");
    ck_assert(out && fputs("{\"input_ids\":[1,oops]}\n", out) >= 0 && fclose(out) == 0);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_uint_eq(f.d.line, 8);
    ck_assert_int_eq(files_kept(), 0);
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache");
    TCase *t = tcase_create("digest");
    tcase_add_loop_test(t, a_digest_is_the_published_one, 0,
                        (int)(sizeof vectors / sizeof *vectors));
    tcase_add_test(t, a_digest_does_not_depend_on_the_pieces);
    suite_add_tcase(suite, t);
    t = tcase_create("cache");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, kept_tokens_are_those_of_the_file);
    tcase_add_test(t, samples_come_from_the_cache_and_not_from_the_file);
    tcase_add_test(t, a_second_opening_reads_no_row);
    tcase_add_test(t, one_flipped_bit_anywhere_is_found);
    tcase_add_test(t, a_file_of_another_length_is_found);
    tcase_add_test(t, the_tokens_of_other_data_are_not_taken);
    tcase_add_test(t, rows_that_make_no_sense_are_not_taken);
    tcase_add_test(t, an_id_outside_the_vocabulary_is_an_error_of_the_read);
    tcase_add_test(t, a_cache_cut_short_under_a_run_is_an_error_of_the_read);
    tcase_add_test(t, a_row_longer_than_the_job_allows_is_not_taken);
    tcase_add_test(t, a_row_that_denies_its_targets_is_an_error_of_the_read);
    tcase_add_test(t, a_cache_is_for_its_user_alone);
    tcase_add_test(t, a_file_that_others_may_write_to_is_not_used);
    tcase_add_test(t, a_directory_that_others_may_write_to_is_not_used);
    tcase_add_test(t, a_file_that_has_another_name_is_not_written_to);
    tcase_add_test(t, whatever_tokens_depend_on_gives_another_file);
    tcase_add_test(t, every_slice_has_a_file_of_its_own);
    tcase_add_test(t, what_a_tokenizer_read_is_kept_until_something_changes);
    tcase_add_test(t, bytes_and_tokens_are_not_worth_a_file);
    tcase_add_test(t, what_a_killed_run_left_is_written_over);
    tcase_add_test(t, two_runs_do_not_write_one_file);
    tcase_add_test(t, a_full_disk_costs_the_cache_and_not_the_run);
    tcase_add_test(t, a_directory_that_cannot_be_made_is_said);
    tcase_add_test(t, a_bad_row_leaves_no_file);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
