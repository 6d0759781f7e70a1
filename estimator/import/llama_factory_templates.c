/* llama_factory_templates.c - templates of LLaMA-Factory that have no name here, as Jinja programs
 * that write the same text and mark what is trained on. Their texts are those of
 * src/llamafactory/data/template.py of 2026-08. */
#include "estimator/import/dialect.h"

#include <string.h>

/* In a text, {c} is the content of the message, {bos} and {eos} are special tokens. What follows
 * the content of an answer is trained on with it. */
struct form {
    const char *name, *begin, *system, *question, *answer;
    const char *rules; /* the system text of rows without one; NULL: none */
    bool inside;       /* the system text stands in the first question, before its content */
    bool reasons;      /* an answer without reasoning begins with an empty one */
};

#define CHATML_SYSTEM   "<|im_start|>system\n{c}<|im_end|>\n"
#define CHATML_QUESTION "<|im_start|>user\n{c}<|im_end|>\n<|im_start|>assistant\n"
#define CHATML_ANSWER   "{c}<|im_end|>\n"
#define GEMMA_QUESTION  "<start_of_turn>user\n{c}<end_of_turn>\n<start_of_turn>model\n"
#define GEMMA_ANSWER    "{c}<end_of_turn>\n"
#define PARAGRAPH       "{c}\n\n"
static const struct form forms[] = {
    {"qwen3", "", CHATML_SYSTEM, CHATML_QUESTION, CHATML_ANSWER, NULL, false, true},
    {"smollm2", "", CHATML_SYSTEM, CHATML_QUESTION, CHATML_ANSWER,
     "You are a helpful AI "
     "assistant named SmolLM, trained by Hugging Face.",
     false, false},
    {"gemma", "{bos}", PARAGRAPH, GEMMA_QUESTION, GEMMA_ANSWER, NULL, true, false},
    {"gemma2", "{bos}", PARAGRAPH, GEMMA_QUESTION, GEMMA_ANSWER, NULL, true, false},
    {"gemma3", "{bos}", PARAGRAPH, GEMMA_QUESTION, GEMMA_ANSWER, NULL, true, false},
    {"phi", "", "<|system|>\n{c}<|end|>\n", "<|user|>\n{c}<|end|>\n<|assistant|>\n", "{c}<|end|>\n",
     NULL, false, false},
    {"llama2", "", "<<SYS>>\n{c}\n<</SYS>>\n\n", "{bos}[INST] {c} [/INST]", "{c}{eos}", NULL, true,
     false},
    {"mistral_small", "{bos}", "[SYSTEM_PROMPT]{c}[/SYSTEM_PROMPT]", "[INST]{c}[/INST]", "{c}{eos}",
     NULL, false, false},
    {"zephyr", "", "<|system|>\n{c}{eos}", "<|user|>\n{c}{eos}<|assistant|>\n", "{c}{eos}",
     "You are Zephyr, a helpful assistant.", false, false},
    {"alpaca", "", "{c}", "### Instruction:\n{c}\n\n### Response:\n", "{c}{eos}\n\n",
     "Below is an instruction that describes a task. Write a response that appropriately "
     "completes the request.\n\n",
     false, false},
    {"default", "", "System: {c}{eos}\n", "Human: {c}{eos}\nAssistant:", "{c}{eos}\n", NULL, false,
     false},
    {"deepseek", "{bos}", PARAGRAPH, "User: {c}\n\nAssistant:", "{c}{eos}", NULL, false, false},
    {"vicuna", "", "{c}", "USER: {c} ASSISTANT:", "{c}{eos}",
     "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
     "helpful, detailed, and polite answers to the user's questions.",
     false, false},
};

/* Appends n bytes as a string of Jinja in quotes. */
static void add_string(struct pl_text *out, const char *text, size_t n) {
    pl_text_add(out, "'");
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n')
            pl_text_add(out, "\\n");
        else
            pl_text_addf(out, text[i] == '\'' || text[i] == '\\' ? "\\%c" : "%c", text[i]);
    pl_text_add(out, "'");
}

/* Appends what writes a text: strings, special tokens, and `content` in the place of {c}. */
static void add_text(struct pl_text *out, const char *text, const char *content) {
    static const struct {
        const char *mark, *is;
    } marks[] = {{"{c}", NULL}, {"{bos}", "{{ bos_token }}"}, {"{eos}", "{{ eos_token }}"}};
    while (*text) {
        size_t k = 0;
        while (k < 3 && strncmp(text, marks[k].mark, strlen(marks[k].mark)) != 0)
            k++;
        if (k < 3) {
            pl_text_add(out, marks[k].is ? marks[k].is : content);
            text += strlen(marks[k].mark);
            continue;
        }
        const size_t n = strcspn(text, "{");
        pl_text_add(out, "{{ ");
        add_string(out, text, n);
        pl_text_add(out, " }}");
        text += n;
    }
}

#define CONTENT "{{ m['content'] }}"
#define HAS_NONE                                                                                   \
    "{% if '<think>' not in m['content'] and '</think>' not in m['content'] %}"                    \
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"

/* Sets `system` and `turns`: the rows of these templates begin with a system text or a question. */
static void add_begin(struct pl_text *out, const struct form *f) {
    const char *rules = f->rules ? f->rules : "";
    pl_text_add(out, "{% if messages[0]['role'] == 'system' %}"
                     "{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
                     "{% else %}{% set system = ");
    add_string(out, rules, strlen(rules));
    pl_text_add(out, " %}{% set turns = messages %}{% endif %}");
    add_text(out, f->begin, "");
    if (f->inside) return;
    pl_text_add(out, "{% if system %}");
    add_text(out, f->system, "{{ system }}");
    pl_text_add(out, "{% endif %}");
}

static void add_question(struct pl_text *out, const struct form *f) {
    struct pl_text content = {0};
    if (f->inside) {
        pl_text_add(&content, "{% if loop.first and system %}");
        add_text(&content, f->system, "{{ system }}");
        pl_text_add(&content, "{% endif %}");
    }
    pl_text_add(&content, CONTENT);
    add_text(out, f->question, pl_text_str(&content));
    out->failed |= content.failed;
    pl_text_finish(&content);
}

static void add_program(struct pl_text *out, const struct form *f) {
    add_begin(out, f);
    pl_text_add(out, "{% for m in turns %}{% if m['role'] == 'user' %}");
    add_question(out, f);
    pl_text_add(out, "{% elif m['role'] == 'assistant' %}{% generation %}");
    if (f->reasons) pl_text_add(out, HAS_NONE);
    add_text(out, f->answer, CONTENT);
    pl_text_add(out, "{% endgeneration %}{% endif %}{% endfor %}");
}

bool pl_llama_factory_template(struct pl_import *im, const struct pl_taken *t) {
    struct pl_text program = {0};
    const struct form *f = forms, *end = forms + sizeof forms / sizeof *forms;
    while (f < end && strcmp(f->name, pl_node_text(t->value)) != 0)
        f++;
    if (f == end) return false;
    add_program(&program, f);
    const char *text = pl_import_own(im, &program);
    pl_text_finish(&program);
    if (text) pl_import_hold_template(im, t, text, "a template of LLaMA-Factory");
    return true;
}
