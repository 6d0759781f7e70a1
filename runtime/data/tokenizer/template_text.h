/* template_text.h - a chat template as a tokenizer has it, not rendered yet.
 *
 * Needs: nothing. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TEMPLATE_TEXT_H
#define PL_RUNTIME_DATA_TOKENIZER_TEMPLATE_TEXT_H

/* A chat template that came with the tokenizer: chat_template.jinja and the files of
 * chat_templates/ where there are any, else those of tokenizer_config.json. */
struct pl_tokenizer_template {
    char *name;  /* "default", "tool_use", ... */
    char *text;  /* the Jinja program */
    char *where; /* the file it is from */
};

#endif
