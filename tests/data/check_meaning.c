/* check_meaning.c - what the keys of a row mean for what is trained on: each is honoured, refused
 * by name, or told once for the file.
 *
 * The byte tokenizer makes every token a byte of the text, so that masks can be read. */
#include "tests/data/fixture.h"

#define IDS(ids) "{\"input_ids\":[" ids "]"
#define ABCD     IDS("97,98,99,100")
#define QUESTION "{\"role\":\"user\",\"content\":\"q\"}"
#define TURNS    "[" QUESTION ",{\"role\":\"assistant\",\"content\":\"a\"}]"
#define SYSTEM_TURNS(s)                                                                            \
    "[{\"role\":\"system\",\"content\":\"" s "\"},{\"role\":\"user\",\"content\":\"q\"},"          \
    "{\"role\":\"assistant\",\"content\":\"a\"}]"
#define SPOKEN "[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}]"
#define CHAT(s)                                                                                    \
    "<|im_start|>system\n" s "<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"  \
    "a<|im_end|>\n"

/* --- what is trained on ----------------------------------------------------------------------- */
static const struct {
    const char *row, *text, *trained; /* dots stand for what is masked; text NULL: not looked at */
} meanings[] = {
    /* padding is no token of the sample, on either side */
    {IDS("97,98,99,48,48") ",\"attention_mask\":[1,1,1,0,0]}", "abc", "abc"},
    {IDS("48,48,97,98,99") ",\"attention_mask\":[0,0,1,1,1]}", "abc", "abc"},
    {"{\"attention_mask\":[0,1,1,0],\"input_ids\":[48,97,98,48]}", "ab", "ab"},
    {ABCD ",\"attention_mask\":[true,true,true,true]}", "abcd", "abcd"},
    {ABCD ",\"attention_mask\":[0,0,0,0]}", "", ""},
    {IDS("97,98,99,48") ",\"labels\":[-100,98,99,48],\"attention_mask\":[1,1,1,0]}", "abc", ".bc"},
    /* masks over tokens, alone and together with labels */
    {ABCD ",\"assistant_masks\":[0,0,1,1]}", "abcd", ".cd"},
    {ABCD ",\"completion_mask\":[0,1,1,1]}", "abcd", ".bcd"},
    {ABCD ",\"loss_mask\":[0,1,0,1.0]}", "abcd", ".b.d"},
    {ABCD ",\"loss_mask\":[false,true,false,true]}", "abcd", ".b.d"},
    {ABCD ",\"completion_mask\":[0,1,1,1],\"assistant_masks\":[1,1,0,1]}", "abcd", ".b.d"},
    {ABCD ",\"assistant_masks\":[0,0,1,1],\"labels\":[97,98,-100,100]}", "abcd", ".d"},
    {IDS("48,97,98") ",\"attention_mask\":[0,1,1],\"completion_mask\":[1,0,1]}", "ab", ".b"},
    {ABCD ",\"assistant_masks\":null,\"attention_mask\":null}", "abcd", "abcd"},
    /* positions that say nothing new */
    {ABCD ",\"position_ids\":[0,1,2,3],\"seq_lengths\":[4]}", "abcd", "abcd"},
    {IDS("48,97,98") ",\"position_ids\":[0,1,2],\"attention_mask\":[0,1,1]}", "ab", "ab"},
    {IDS("48,97,98") ",\"position_ids\":[1,0,1],\"attention_mask\":[0,1,1]}", "ab", "ab"},
    /* the system text next to the turns */
    {"{\"messages\":" TURNS ",\"system\":\"s\"}", CHAT("s"), ".a<|im_end|>."},
    {"{\"system_prompt\":\"s\",\"messages\":" TURNS "}", CHAT("s"), ".a<|im_end|>."},
    {"{\"conversations\":" SPOKEN ",\"system_prompt\":\"s\"}", CHAT("s"), ".a<|im_end|>."},
    {"{\"messages\":" SYSTEM_TURNS("s") ",\"system\":\"s\"}", CHAT("s"), ".a<|im_end|>."},
    {"{\"messages\":" SYSTEM_TURNS("s") ",\"system\":\"\"}", CHAT("s"), ".a<|im_end|>."},
    {"{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"system\":\"s\",\"completion\":["
     "{\"role\":\"assistant\",\"content\":\"a\"}]}",
     CHAT("s"), ".a<|im_end|>."},
    {"{\"instruction\":\"I\",\"output\":\"O\",\"system_prompt\":\"s\"}",
     "s\n\n### Instruction:\nI\n\n### Response:O$", ".O$"},
    /* K2 of row_keys.h */
    /* values that count as absent */
    {"{\"prompt\":\"q\",\"completion\":\"a\",\"label\":true,\"chosen\":null,\"tools\":[]}", "qa$",
     ".a$"},
    {"{\"messages\":" TURNS ",\"images\":[],\"chat_template_kwargs\":{},\"documents\":null}", NULL,
     ".a<|im_end|>."},
    {"{\"instruction\":\"I\",\"output\":\"O\",\"context\":\"\"}", NULL, ".O$"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"images\":null},"
     "{\"role\":\"assistant\",\"content\":\"a\"}]}",
     NULL, ".a<|im_end|>."},
};

START_TEST(a_row_trains_what_its_keys_say) {
    struct fixture f;
    struct pl_sample s = {0};
    char buf[2048];
    fixture_start(&f, PL_FORMAT_AUTO);
    /* a row without a token to train on is read, so one with a token is in the same file */
    struct pl_text rows = {0};
    pl_text_addf(&rows, "%s\n%s\n", meanings[_i].row,
                 meanings[_i].trained[0] ? "" : "{\"input_ids\":[1,2]}");
    fixture_write(&f, pl_text_str(&rows), rows.len);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", meanings[_i].row, f.d.message);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    if (meanings[_i].text) ck_assert_str_eq(fixture_show(&s, false, buf), meanings[_i].text);
    ck_assert_str_eq(fixture_show(&s, true, buf), meanings[_i].trained);
    pl_text_finish(&rows);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */
#define PAIR  "{\"prompt\":\"q\",\"completion\":\"a\""
#define CHATS "{\"messages\":" TURNS
static const struct {
    const char *row, *says, *hint;
} refusals[] = {
    {ABCD ",\"attention_mask\":[1,0,1,1]}", "attention_mask 1 hides a token between others", ""},
    {ABCD ",\"attention_mask\":[1,1,2,2]}", "attention_mask 2 is 2, expected 0 or 1", "packing"},
    {ABCD ",\"attention_mask\":[1,1]}", "2 attention_mask values for 4 input_ids", ""},
    {ABCD ",\"assistant_masks\":[0,1]}", "2 assistant_masks values for 4 input_ids", ""},
    {ABCD ",\"loss_mask\":[0,0.5,1,1]}", "loss_mask 1 is 0.5, expected 0 or 1", ""},
    {ABCD ",\"position_ids\":[0,1,0,1]}", "position_ids begin anew at token 2", "packing"},
    {ABCD ",\"position_ids\":[5,6,7,8]}", "position_ids 0 is 5, expected 0", ""},
    {ABCD ",\"position_ids\":[0,1]}", "2 position_ids values for 4 input_ids", ""},
    {ABCD ",\"seq_lengths\":[2,2]}", "seq_lengths: the row packs several samples", "packing"},
    {ABCD ",\"cu_seqlens\":[0,2,4]}", "`cu_seqlens` is not supported", "packing"},
    {ABCD ",\"pixel_values\":[0.5]}", "`pixel_values` is not supported", "text"},
    {PAIR ",\"label\":false}", "`label` is false", "KTO"},
    {CHATS ",\"kto_tag\":false}", "`kto_tag` is false", "KTO"},
    {"{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", "`chosen` is not supported",
     "preference"},
    {"{\"chosen\":\"a\",\"rejected\":\"b\"}", "`chosen` is not supported", "preference"},
    {"{\"text\":\"a\",\"rejected\":\"b\"}", "`rejected` is not supported", "preference"},
    {CHATS ",\"images\":[\"a.png\"]}", "`images` is not supported", "text"},
    {CHATS ",\"videos\":[\"a.mp4\"]}", "`videos` is not supported", "text"},
    {CHATS ",\"audios\":[\"a.wav\"]}", "`audios` is not supported", "text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"images\":[\"x\"]}]}",
     "`images` is not supported", "text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"a\",\"image_url\":\"x\"}]}]}",
     "`image_url` is not supported", "text"},
    {CHATS ",\"chat_template_kwargs\":{\"enable_thinking\":false}}",
     "`chat_template_kwargs` is not supported", "chat_template"},
    {CHATS ",\"enable_thinking\":false}", "`enable_thinking` is not supported", "chat_template"},
    {CHATS ",\"documents\":[{\"text\":\"d\"}]}", "`documents` is not supported", ""},
    {CHATS ",\"functions\":[{\"name\":\"f\"}]}", "`functions` is not supported", "tools"},
    {"{\"messages\":" SYSTEM_TURNS("s") ",\"system\":\"t\"}",
     "`system` and a system message that differs", "keep one"},
    {CHATS ",\"system\":\"s\",\"system_prompt\":\"s\"}",
     "`system_prompt` comes after another key of its meaning", "keep one"},
    {PAIR ",\"system\":\"s\"}", "`system` has no place in a prompt that is a string", "prompt"},
    {"{\"instruction\":\"I\",\"output\":\"O\",\"context\":\"c\"}", "`context` is not supported",
     "field_input: context"},
    {"{\"text\":\"a\",\"role\":\"prompter\",\"parent_id\":null}", "`role` is not supported",
     "messages"},
    {"{\"text\":\"a\",\"message_tree_id\":\"x\"}", "`message_tree_id` is not supported",
     "messages"},
};

/* K2 of row_keys.h */
START_TEST(a_row_that_would_train_something_else_is_refused_by_name) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    fixture_write(&f, refusals[_i].row, strlen(refusals[_i].row));
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_DATA_FIELD, "%s: read, error %d: %s", refusals[_i].row, (int)err,
                  f.d.message);
    ck_assert_msg(strstr(f.d.message, refusals[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), refusals[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

/* --- what is told ----------------------------------------------------------------------------- */
static const char odd_rows[] =
    "{\"text\":\"a\",\"id\":1,\"source\":\"x\",\"meta\":{},\"split\":\"train\"}\n"
    "{\"text\":\"a\",\"colour\":\"red\"}\n"
    "{\"text\":\"b\",\"colour\":\"blue\",\"prompt\":\"p\"}\n";

static void expect_told(const struct fixture *f) {
    char line[700];
    snprintf(line, sizeof line, "%s:2: 2 rows with a key `colour` that format text does not read",
             f->path);
    ck_assert_msg(strstr(pl_text_str(&f->notes), line), "%s", pl_text_str(&f->notes));
    snprintf(line, sizeof line, "%s:3: 1 row with a key `prompt` that format text does not read",
             f->path);
    ck_assert_msg(strstr(pl_text_str(&f->notes), line), "%s", pl_text_str(&f->notes));
}

/* K1 of row_keys.h, F1 of formats.h and R1 of remarks.h */
START_TEST(a_key_that_nothing_reads_is_told_once_with_its_count) {
    struct fixture f;
    fixture_rows(&f, PL_FORMAT_AUTO, odd_rows);
    expect_told(&f);
    ck_assert_ptr_null(strstr(pl_text_str(&f.notes), "`id`"));
    ck_assert_ptr_null(strstr(pl_text_str(&f.notes), "`meta`"));
    fixture_finish(&f);
}
END_TEST

/* R2 of remarks.h */
START_TEST(keys_are_told_of_a_file_whose_tokens_were_kept) {
    struct fixture f;
    char kept[] = "/tmp/plimsoll-kept-XXXXXX", command[128];
    ck_assert_ptr_nonnull(mkdtemp(kept));
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.dataset_cache = kept;
    fixture_write(&f, odd_rows, sizeof odd_rows - 1);
    for (int run = 0; run < 2; run++) {
        ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
        expect_told(&f);
    }
    fixture_finish(&f);
    snprintf(command, sizeof command, "rm -r %s", kept);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* K3 of row_keys.h */
START_TEST(of_many_keys_some_are_named_and_all_are_counted) {
    struct fixture f;
    struct pl_text rows = {0};
    pl_text_add(&rows, "{\"text\":\"a\"");
    for (int i = 0; i < 40; i++)
        pl_text_addf(&rows, ",\"odd%d\":%d", i, i);
    pl_text_add(&rows, "}\n");
    fixture_rows(&f, PL_FORMAT_AUTO, pl_text_str(&rows));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "`odd0`"));
    ck_assert_msg(strstr(pl_text_str(&f.notes), "24 more keys of rows that format text does not"),
                  "%s", pl_text_str(&f.notes));
    pl_text_finish(&rows);
    fixture_finish(&f);
}
END_TEST

/* --- what is wasted --------------------------------------------------------------------------- */
START_TEST(a_row_cut_before_its_answer_names_the_length_that_keeps_it) {
    struct fixture f;
    char kept[] = "/tmp/plimsoll-kept-XXXXXX", command[128], line[700];
    static const char rows[] = "{\"prompt\":\"q\",\"completion\":\"a\"}\n"
                               "{\"prompt\":\"qqqqqqqqqq\",\"completion\":\"aa\"}\n"
                               "{\"prompt\":\"qqqqqqqqqqqq\",\"completion\":\"aa\"}\n";
    ck_assert_ptr_nonnull(mkdtemp(kept));
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.max_seq_length = 8;
    f.job.dataset_cache = kept;
    fixture_write(&f, rows, sizeof rows - 1);
    snprintf(line, sizeof line,
             "warning: %s:2: 2 rows cut by max_seq_length before the first token to train on; this "
             "is the first; `max_seq_length: 15` cuts none",
             f.path);
    for (int run = 0; run < 2; run++) {
        ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
        ck_assert_msg(strstr(pl_text_str(&f.notes), line), "%s", pl_text_str(&f.notes));
        ck_assert_uint_eq(pl_data_file(f.data, 0)->stats.truncated_rows, 2);
        ck_assert_uint_eq(pl_data_file(f.data, 0)->stats.tokens, 3 + 8 + 8);
    }
    fixture_finish(&f);
    snprintf(command, sizeof command, "rm -r %s", kept);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(a_file_that_trains_next_to_nothing_is_named) {
    struct fixture f;
    struct pl_text row = {0};
    pl_text_add(&row, "{\"completion\":\"a\",\"prompt\":\"");
    for (int i = 0; i < 400; i++)
        pl_text_add(&row, "q");
    pl_text_add(&row, "\"}\n");
    fixture_rows(&f, PL_FORMAT_AUTO, pl_text_str(&row));
    ck_assert_msg(strstr(pl_text_str(&f.notes), ": 2 of 402 tokens are trained on, below 1 %"),
                  "%s", pl_text_str(&f.notes));
    pl_text_finish(&row);
    fixture_finish(&f);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("meaning");
    TCase *t = tcase_create("keys");
    tcase_add_loop_test(t, a_row_trains_what_its_keys_say, 0, ROWS(meanings));
    tcase_add_loop_test(t, a_row_that_would_train_something_else_is_refused_by_name, 0,
                        ROWS(refusals));
    tcase_add_test(t, a_key_that_nothing_reads_is_told_once_with_its_count);
    tcase_add_test(t, keys_are_told_of_a_file_whose_tokens_were_kept);
    tcase_add_test(t, of_many_keys_some_are_named_and_all_are_counted);
    tcase_add_test(t, a_row_cut_before_its_answer_names_the_length_that_keeps_it);
    tcase_add_test(t, a_file_that_trains_next_to_nothing_is_named);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
