/* prompt_form.h - the forms that a prompt has in rows of data. */
#ifndef PL_RUNTIME_DATA_PROMPT_FORM_H
#define PL_RUNTIME_DATA_PROMPT_FORM_H

#include "estimator/base/text.h"

enum pl_prompt_form {
    PL_PROMPT_PLAIN,  /* the text itself */
    PL_PROMPT_CHAT,   /* a turn of the user, by the chat template */
    PL_PROMPT_ALPACA, /* an instruction without input, in the words of `format: alpaca` */
};

/* Appends the words of `format: alpaca` around an instruction without input. */
void pl_prompt_add_alpaca(struct pl_text *out, const char *instruction, size_t n);

#endif
