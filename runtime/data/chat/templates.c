/* templates.c - the chat templates, one row each, and what single ones do besides.
 *
 * Sources: the Jinja programs in the tokenizer_config.json of the models, as published; each row is
 * compared with what the program itself renders (tests/data/chat). Branches for tools are not
 * here: messages with tool calls do not reach a template. */
#include "runtime/data/chat/render.h"

#include <string.h>

#define BOS  PL_CHAT_BOS
#define EOS  PL_CHAT_EOS
#define DATE PL_CHAT_DATE

/* --- ChatML and its relatives ---------------------------------------------------------------- */
#define IM(role)                                                                                   \
    { .before = "<|im_start|>" role "\n", .end = "<|im_end|>", .after = "\n" }
#define IM_ANSWER    "<|im_start|>assistant\n"
#define CHATML_TURNS .turn = {IM("system"), IM("user"), IM("assistant")}, .generate = IM_ANSWER

/* --- Qwen3: reasoning of earlier answers is dropped ------------------------------------------ */
/* Finds the last question, a user message that is not a tool's answer: after it reasoning is
 * kept. */
static void qwen3_begin(struct pl_chat_render *r) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    r->last_question = r->n - 1;
    for (size_t i = r->n; i-- > 0;) {
        const struct pl_chat_message *m = &r->m[i];
        bool response = m->n >= n_close && memcmp(m->content, open, n_open) == 0 &&
                        memcmp(m->content + m->n - n_close, close, n_close) == 0;
        if (m->role != PL_CHAT_USER || response) continue;
        r->last_question = i;
        return;
    }
}

/* Cuts an answer at its reasoning: what stands between the last <think> before the first </think>
 * and that, and what follows the last </think>. */
static struct pl_chat_piece qwen3_reasoning(struct pl_chat_piece *content) {
    static const char open[] = "<think>", close[] = "</think>";
    struct pl_chat_piece all = *content, thoughts = {all.s, 0};
    ptrdiff_t first = pl_chat_find_word(all, close), last = pl_chat_find_last_word(all, close);
    if (first < 0) return thoughts;
    size_t past = (size_t)last + sizeof close - 1;
    *content = pl_chat_strip_lines((struct pl_chat_piece){all.s + past, all.n - past}, true, false);
    thoughts = pl_chat_strip_lines((struct pl_chat_piece){all.s, (size_t)first}, false, true);
    ptrdiff_t opened = pl_chat_find_last_word(thoughts, open);
    if (opened >= 0) {
        thoughts.s += (size_t)opened + sizeof open - 1;
        thoughts.n -= (size_t)opened + sizeof open - 1;
    }
    return pl_chat_strip_lines(thoughts, true, true);
}

static bool qwen3_answer(struct pl_chat_render *r, size_t i) {
    if (r->m[i].role != PL_CHAT_ASSISTANT) return false;
    struct pl_chat_piece content = pl_chat_content(&r->m[i]);
    struct pl_chat_piece thoughts = qwen3_reasoning(&content);
    struct pl_chat_span *span = &r->spans[i];
    pl_chat_put(r, IM_ANSWER);
    span->begin = r->text->len;
    if (i > r->last_question && (i + 1 == r->n || thoughts.n)) {
        pl_chat_put(r, "<think>\n");
        pl_chat_put_piece(r, thoughts);
        pl_chat_put(r, "\n</think>\n\n");
        /* without reasoning the header of an answer holds the empty thoughts already */
        if (!r->reasons && !thoughts.n) span->begin = r->text->len;
        content = pl_chat_strip_lines(content, true, false);
    }
    pl_chat_put_piece(r, content);
    pl_chat_put(r, "<|im_end|>");
    span->end = r->text->len;
    pl_chat_put(r, "\n");
    return true;
}

/* `thinks`: whether an answer that is asked for begins with its thoughts. */
#define QWEN3_PROGRAM(thinks)                                                                      \
    "{%- set ns = namespace(question=messages | length - 1, found=false) %}\n"                     \
    "{%- for message in messages[::-1] %}\n"                                                       \
    "{%- if not ns.found and message['role'] == 'user' and not ("                                  \
    "message['content'].startswith('<tool_response>') and "                                        \
    "message['content'].endswith('</tool_response>')) %}\n"                                        \
    "{%- set ns.question = messages | length - 1 - loop.index0 %}{%- set ns.found = true %}\n"     \
    "{%- endif %}\n{%- endfor %}\n"                                                                \
    "{%- for message in messages %}\n"                                                             \
    "{%- if message['role'] == 'assistant' %}\n"                                                   \
    "{%- set content = message['content'] %}{%- set thoughts = '' %}\n"                            \
    "{%- if '</think>' in content %}\n"                                                            \
    "{%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}\n"      \
    "{%- set thoughts = thoughts.strip('\\n') %}\n"                                                \
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"                           \
    "{%- endif %}\n"                                                                               \
    "{{- '<|im_start|>assistant\\n' }}\n"                                                          \
    "{%- if loop.index0 > ns.question and (loop.last or thoughts) %}\n"                            \
    "{{- '<think>\\n' ~ thoughts ~ '\\n</think>\\n\\n' ~ content.lstrip('\\n') }}\n"               \
    "{%- else %}{{- content }}{%- endif %}\n"                                                      \
    "{{- '<|im_end|>\\n' }}\n"                                                                     \
    "{%- elif message['role'] in ['system', 'user'] %}\n"                                          \
    "{{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}\n"     \
    "{%- else %}{{- raise_exception('unknown role: ' ~ message['role']) }}\n"                      \
    "{%- endif %}\n{%- endfor %}\n"                                                                \
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}\n"                           \
    "{%- if not " thinks " %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\n"                   \
    "{%- endif %}"
#define MAY_THINK "(enable_thinking is not defined or enable_thinking)"

#define QWEN3_ROW                                                                                  \
    CHATML_TURNS, .bos = "", .eos = "<|im_end|>", .open = "",                                      \
                  .generate_plain = IM_ANSWER "<think>\n\n</think>\n\n", .begin = qwen3_begin,     \
                  .special = qwen3_answer

/* --- SmolLM: who says nothing about it is named ----------------------------------------------- */
#define SMOLLM                                                                                     \
    "You are a helpful AI "                                                                        \
    "assistant named SmolLM, trained by Hugging Face"

/* --- SmolLM3: a system block in any case, with date and mode ---------------------------------- */
#define SMOLLM3_NO_THOUGHTS "<think>\n\n</think>\n"

#define SMOLLM3_REASONER                                                                           \
    SMOLLM                                                                                         \
    ". Your role as an assistant involves thoroughly exploring questions through a "               \
    "systematic thinking process before providing the final precise and accurate "                 \
    "solutions. This requires engaging in a comprehensive cycle of analysis, "                     \
    "summarizing, exploration, reassessment, reflection, backtracking, and iteration "             \
    "to develop well-considered thinking process. Please structure your response into"             \
    " two main sections: Thought and Solution using the specified format: <think> "                \
    "Thought section </think> Solution section. In the Thought section, detail your "              \
    "reasoning process in steps. Each step should include detailed considerations "                \
    "such as analysing questions, summarizing relevant findings, brainstorming new "               \
    "ideas, verifying the accuracy of the current steps, refining any errors, and "                \
    "revisiting previous steps. In the Solution section, based on various attempts, "              \
    "explorations, and reflections from the Thought section, systematically present "              \
    "the final solution that you deem correct. The Solution section should be "                    \
    "logical, accurate, and concise and detail necessary steps needed to reach the "               \
    "conclusion."

/* The system message without its switches for the mode. */
static struct pl_chat_piece smollm3_instructions(struct pl_chat_piece system,
                                                 struct pl_text scratch[2]) {
    pl_chat_add_without(&scratch[0], system, "/no_think");
    pl_chat_add_without(&scratch[1],
                        (struct pl_chat_piece){pl_text_str(&scratch[0]), scratch[0].len}, "/think");
    return pl_chat_rstrip((struct pl_chat_piece){pl_text_str(&scratch[1]), scratch[1].len});
}

static void smollm3_block(struct pl_chat_render *r, struct pl_chat_piece instructions) {
    pl_chat_put(r, "## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: " DATE
                   "\nReasoning Mode: ");
    pl_chat_put(r, r->reasons ? "/think" : "/no_think");
    pl_chat_put(r, "\n\n## Custom Instructions\n\n");
    if (instructions.n)
        pl_chat_put_piece(r, instructions);
    else
        pl_chat_put(r, r->reasons ? SMOLLM3_REASONER : SMOLLM ".");
    pl_chat_put(r, "\n\n"); /* the block is closed by <|im_end|> only when it lists tools */
}

static void smollm3_begin(struct pl_chat_render *r) {
    static const char override[] = "/system_override";
    struct pl_text scratch[3] = {{0}, {0}, {0}};
    struct pl_chat_piece system = {"", 0};
    if (r->m[0].role == PL_CHAT_SYSTEM) system = pl_chat_content(&r->m[0]);
    if (pl_chat_find_word(system, "/no_think") >= 0)
        r->reasons = false;
    else if (pl_chat_find_word(system, "/think") >= 0)
        r->reasons = true;
    struct pl_chat_piece own = smollm3_instructions(system, scratch);
    size_t begin = r->text->len;
    if (pl_chat_find_word(system, override) >= 0) {
        pl_chat_add_without(&scratch[2], own, override);
        own = (struct pl_chat_piece){pl_text_str(&scratch[2]), scratch[2].len};
        pl_chat_put_piece(r, pl_chat_rstrip(own));
        pl_chat_put(r, "<|im_end|>\n");
    } else {
        smollm3_block(r, own);
    }
    if (r->m[0].role == PL_CHAT_SYSTEM) {
        r->spans[0].begin = begin;
        r->spans[0].end = r->text->len;
    }
    for (size_t i = 0; i < 3; i++) {
        if (scratch[i].failed) r->text->failed = true;
        pl_text_finish(&scratch[i]);
    }
}

static bool smollm3_message(struct pl_chat_render *r, size_t i) {
    static const struct pl_chat_turn answer = IM("assistant");
    static const struct pl_chat_turn plain_answer = {
        .before = IM_ANSWER SMOLLM3_NO_THOUGHTS, .end = "<|im_end|>", .after = "\n"};
    if (i == 0 && r->m[i].role == PL_CHAT_SYSTEM) return true; /* in the block */
    if (r->m[i].role != PL_CHAT_ASSISTANT) return false;
    pl_chat_put_turn(r, r->reasons ? &answer : &plain_answer, i,
                     pl_chat_strip_lines(pl_chat_content(&r->m[i]), true, false));
    return true;
}

#define SMOLLM3_PROGRAM(thinks)                                                                    \
    "{%- set ns = namespace(thinks=" thinks ") %}\n"                                               \
    "{%- set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}\n"      \
    "{%- if '/no_think' in system %}{%- set ns.thinks = false %}\n"                                \
    "{%- elif '/think' in system %}{%- set ns.thinks = true %}{%- endif %}\n"                      \
    "{%- set own = system.replace('/no_think', '').replace('/think', '').rstrip() %}\n"            \
    "{{- '<|im_start|>system\\n' }}\n"                                                             \
    "{%- if '/system_override' in system %}\n"                                                     \
    "{{- own.replace('/system_override', '').rstrip() ~ '<|im_end|>\\n' }}\n"                      \
    "{%- else %}\n"                                                                                \
    "{{- '## Metadata\\n\\nKnowledge Cutoff Date: June 2025\\nToday Date: ' }}\n"                  \
    "{{- strftime_now('%d %B %Y') ~ '\\nReasoning Mode: ' }}\n"                                    \
    "{{- ('/think' if ns.thinks else '/no_think') ~ '\\n\\n## Custom Instructions\\n\\n' }}\n"     \
    "{%- if own %}{{- own }}{%- elif ns.thinks %}{{- '" SMOLLM3_REASONER "' }}\n"                  \
    "{%- else %}{{- '" SMOLLM ".' }}{%- endif %}\n"                                                \
    "{{- '\\n\\n' }}\n{%- endif %}\n"                                                              \
    "{%- for message in messages %}\n"                                                             \
    "{%- if message['role'] == 'user' %}\n"                                                        \
    "{{- '<|im_start|>user\\n' ~ message['content'] ~ '<|im_end|>\\n' }}\n"                        \
    "{%- elif message['role'] == 'assistant' %}\n"                                                 \
    "{{- '<|im_start|>assistant\\n' ~ ('' if ns.thinks else '<think>\\n\\n</think>\\n') }}\n"      \
    "{{- message['content'].lstrip('\\n') ~ '<|im_end|>\\n' }}\n"                                  \
    "{%- endif %}\n{%- endfor %}\n"                                                                \
    "{%- if add_generation_prompt %}\n"                                                            \
    "{{- '<|im_start|>assistant\\n' ~ ('' if ns.thinks else '<think>\\n\\n</think>\\n') }}\n"      \
    "{%- endif %}"

#define SMOLLM3_ROW                                                                                \
    .bos = "<|begin_of_text|>", .eos = "<|im_end|>", .open = "<|im_start|>system\n",               \
    .turn = {{0}, IM("user"), IM("assistant")}, .generate = IM_ANSWER,                             \
    .generate_plain = IM_ANSWER SMOLLM3_NO_THOUGHTS, .date = PL_CHAT_DATE_LONG,                    \
    .begin = smollm3_begin, .special = smollm3_message

/* --- Llama 2 and Mistral: no system turn, questions and answers alternate --------------------- */
static pl_err check_alternation(struct pl_chat_render *r) {
    size_t first = r->m[0].role == PL_CHAT_SYSTEM;
    for (size_t i = first; i < r->n; i++) {
        bool question = (i - first) % 2 == 0;
        if ((r->m[i].role == PL_CHAT_USER) != question)
            return pl_chat_refuse(r, i,
                                  "after an optional system message, roles must alternate "
                                  "user, assistant, user, ...");
    }
    return PL_ERR_OK;
}

static pl_err check_mistral(struct pl_chat_render *r) {
    PL_TRY(check_alternation(r));
    for (size_t i = 1; i < r->n; i++)
        if (r->m[i].role == PL_CHAT_SYSTEM)
            return pl_chat_refuse(r, i, "only the first message may be a system message");
    return PL_ERR_OK;
}

/* Begins a program: `system` is set where there is such a message, `rest` are the others, which
 * alternate. */
#define ALTERNATING                                                                                \
    "{%- set rest = messages %}\n"                                                                 \
    "{%- if messages[0]['role'] == 'system' %}\n"                                                  \
    "{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}{%- endif %}\n"       \
    "{%- for message in rest %}\n"                                                                 \
    "{%- if message['role'] != ('user' if loop.index0 % 2 == 0 else 'assistant') %}\n"             \
    "{{- raise_exception('roles must alternate user, assistant, user, ...') }}{%- endif %}\n"
/* The system text stands in the question that `into` picks; without one it is left out. */
#define MISTRAL_PROGRAM(into)                                                                      \
    "{{- bos_token }}\n" ALTERNATING "{%- if message['role'] == 'assistant' %}\n"                  \
    "{{- ' ' ~ message['content'] | trim ~ eos_token }}\n"                                         \
    "{%- elif system is defined and " into " %}\n"                                                 \
    "{{- '[INST] ' ~ system ~ '\\n\\n' ~ message['content'] ~ '[/INST]' }}\n"                      \
    "{%- else %}{{- '[INST] ' ~ message['content'] ~ '[/INST]' }}\n"                               \
    "{%- endif %}\n{%- endfor %}"

/* The system text goes into message `into`; spans[0] is where it stands there. */
static bool mistral_message(struct pl_chat_render *r, size_t i, size_t into) {
    if (i == 0 && r->m[0].role == PL_CHAT_SYSTEM) {
        r->spans[0].lost = into >= r->n || r->m[into].role != PL_CHAT_USER;
        return true;
    }
    if (r->m[0].role != PL_CHAT_SYSTEM || i != into || r->m[i].role != PL_CHAT_USER) return false;
    pl_chat_put(r, "[INST] ");
    r->spans[0].begin = r->text->len;
    pl_chat_put_piece(r, pl_chat_content(&r->m[0]));
    r->spans[0].end = r->text->len;
    pl_chat_put(r, "\n\n");
    r->spans[i].begin = r->text->len;
    pl_chat_put_piece(r, pl_chat_content(&r->m[i]));
    pl_chat_put(r, "[/INST]");
    r->spans[i].end = r->text->len;
    return true;
}

static bool mistral_last(struct pl_chat_render *r, size_t i) {
    return mistral_message(r, i, r->n - 1);
}

static bool mistral_first(struct pl_chat_render *r, size_t i) {
    return mistral_message(r, i, 1);
}

#define MISTRAL_ROW                                                                                \
    .bos = "<s>", .eos = "</s>", .open = BOS,                                                      \
    .turn = {{0},                                                                                  \
             {.before = "[INST] ", .end = "[/INST]", .after = ""},                                 \
             {.before = "", .lead = " ", .strip = true, .end = EOS, .after = ""}},                 \
    .check = check_mistral

static bool llama2_message(struct pl_chat_render *r, size_t i) {
    struct pl_chat_piece both = pl_chat_content(&r->m[i]);
    if (i == 0 && r->m[0].role == PL_CHAT_SYSTEM) {
        r->spans[0].lost = r->n == 1;
        return true;
    }
    if (i != 1 || r->m[0].role != PL_CHAT_SYSTEM) return false;
    pl_chat_put(r, BOS "[INST] <<SYS>>\n");
    r->spans[0].begin = r->text->len;
    pl_chat_put_piece(r, pl_chat_content(&r->m[0]));
    r->spans[0].end = r->text->len;
    /* the template strips system text and question as one: a blank question takes the line feeds
     * before it along */
    both = pl_chat_rstrip(both);
    pl_chat_put(r, both.n ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
    r->spans[i].begin = r->text->len;
    pl_chat_put_piece(r, both);
    pl_chat_put(r, " [/INST]");
    r->spans[i].end = r->text->len;
    return true;
}

static const char llama2_program[] =
    ALTERNATING "{%- if message['role'] == 'user' %}\n"
                "{%- set content = message['content'] %}\n"
                "{%- if loop.first and system is defined %}\n"
                "{%- set content = '<<SYS>>\\n' ~ system ~ '\\n<</SYS>>\\n\\n' ~ content %}\n"
                "{%- endif %}\n"
                "{{- bos_token ~ '[INST] ' ~ content | trim ~ ' [/INST]' }}\n"
                "{%- else %}{{- ' ' ~ message['content'] | trim ~ ' ' ~ eos_token }}\n"
                "{%- endif %}\n{%- endfor %}";

/* --- Llama 3 ---------------------------------------------------------------------------------- */
#define L3(role, more)                                                                             \
    {                                                                                              \
        .before = "<|start_header_id|>" role "<|end_header_id|>\n\n" more, .strip = true,          \
        .end = "<|eot_id|>", .after = ""                                                           \
    }
#define LLAMA3_ROW                                                                                 \
    .bos = "<|begin_of_text|>", .eos = "<|eot_id|>", .open = BOS,                                  \
    .turn = {L3("system", ""), L3("user", ""), L3("assistant", "")},                               \
    .generate = "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define LLAMA31_SYSTEM(date)                                                                       \
    .default_system = "",                                                                          \
    .first_system =                                                                                \
        L3("system", "Cutting Knowledge Date: December 2023\nToday Date: " date "\n\n")

#define PHI4(role)                                                                                 \
    { .before = "<|" role "|>", .end = "<|end|>", .after = "" }
#define ZEPHYR(role)                                                                               \
    { .before = "<|" role "|>\n", .end = EOS, .after = "\n" }

const struct pl_chat_template pl_chat_table[] = {
    {.name = "chatml", CHATML_TURNS, .bos = "", .eos = "<|im_end|>", .open = ""},
    {.name = "llama2",
     .bos = "<s>",
     .eos = "</s>",
     .open = "",
     .turn = {{0},
              {.before = BOS "[INST] ", .strip = true, .end = " [/INST]", .after = ""},
              {.before = "", .lead = " ", .strip = true, .end = " " EOS, .after = ""}},
     .check = check_alternation,
     .special = llama2_message,
     .program = llama2_program},
    {.name = "llama3", LLAMA3_ROW},
    /* the template's date comes from its caller, who in practice gives none */
    {.name = "llama31", LLAMA3_ROW, LLAMA31_SYSTEM("26 Jul 2024")},
    {.name = "llama32", LLAMA3_ROW, LLAMA31_SYSTEM(DATE), .date = PL_CHAT_DATE_ABBREVIATED},
    {.name = "mistral",
     MISTRAL_ROW,
     .special = mistral_last,
     .program = MISTRAL_PROGRAM("loop.last")},
    {.name = "mistral_sysfirst",
     MISTRAL_ROW,
     .special = mistral_first,
     .program = MISTRAL_PROGRAM("loop.first")},
    {.name = "mistral_small3",
     .bos = "<s>",
     .eos = "</s>",
     .open = BOS,
     .default_system =
         "You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French "
         "startup headquartered in Paris.\nYour knowledge base was last updated on 2023-10-01. The "
         "current date is " DATE ".\n\nWhen you're not sure about some information, you say that "
         "you don't have the information and don't make up anything.\nIf the user's question is "
         "not clear, ambiguous, or does not provide enough context for you to accurately answer "
         "the question, you do not try to answer it right away and you rather ask the user to "
         "clarify their request (e.g. \"What are some good restaurants around me?\" => \"Where are "
         "you?\" or \"When is the next flight to Tokyo\" => \"Where do you travel from?\")",
     .turn = {{.before = "[SYSTEM_PROMPT]", .end = "[/SYSTEM_PROMPT]", .after = ""},
              {.before = "[INST]", .end = "[/INST]", .after = ""},
              {.before = "", .end = EOS, .after = ""}},
     .date = PL_CHAT_DATE_ISO},
    {.name = "qwen25",
     CHATML_TURNS,
     .bos = "",
     .eos = "<|im_end|>",
     .open = "",
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen25_base",
     CHATML_TURNS,
     .bos = "",
     .eos = "<|endoftext|>",
     .open = "",
     .default_system = "You are a helpful assistant."},
    {.name = "qwen3", QWEN3_ROW, .reasons = true, .program = QWEN3_PROGRAM(MAY_THINK)},
    {.name = "qwen3_nothink", QWEN3_ROW, .program = QWEN3_PROGRAM("false")},
    {.name = "phi4_mini",
     .bos = "<|endoftext|>",
     .eos = "<|endoftext|>",
     .open = "",
     .turn = {PHI4("system"), PHI4("user"), PHI4("assistant")},
     .close = EOS,
     .generate = "<|assistant|>"},
    {.name = "smollm2",
     CHATML_TURNS,
     .bos = "<|im_start|>",
     .eos = "<|im_end|>",
     .open = "",
     .default_system = SMOLLM},
    {.name = "smollm3", SMOLLM3_ROW, .reasons = true, .program = SMOLLM3_PROGRAM(MAY_THINK)},
    {.name = "smollm3_nothink", SMOLLM3_ROW, .program = SMOLLM3_PROGRAM("false")},
    {.name = "zephyr",
     .bos = "<s>",
     .eos = "</s>",
     .open = "",
     .turn = {ZEPHYR("system"), ZEPHYR("user"), ZEPHYR("assistant")},
     .generate = "<|assistant|>\n"},
    {.name = "alpaca",
     .bos = "<s>",
     .eos = "</s>",
     .open = BOS,
     .first_system = {.before = "", .end = "", .after = ""},
     .turn = {{0},
              {.before = "### Instruction:\n", .end = "", .after = ""},
              {.before = "### Response:\n", .end = EOS, .after = ""}},
     .between = "\n\n",
     .generate = "\n\n### Response:\n"},
};
const size_t pl_chat_table_rows = sizeof pl_chat_table / sizeof *pl_chat_table;
