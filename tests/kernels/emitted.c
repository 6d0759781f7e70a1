/* emitted.c - the table of emitted.h. */
#include "tests/kernels/emitted.h"

#include <stdio.h>
#include <string.h>

/* The table is for both back-ends: only on the CPU do bf16 weights and biases of a frozen base
 * occur together with activations in fp32. */
static const struct {
    enum pl_op_kind kind;
    const char *signatures;
} rows[] = {
    {PL_OP_LINEAR, "bb>b bb>f bbb>b bf>b bf>f bfb>b fb>b fb>f fbb>f fbf>f ff>b ff>f ffb>f fff>f"},
    {PL_OP_LINEAR_DX, "bb>b bb>f bf>b bf>f fb>b fb>f ff>b ff>f"},
    {PL_OP_LINEAR_DW, "bb>b bb>f bf>b bf>f fb>b fb>f ff>b ff>f"},
    {PL_OP_GROUPED_LINEAR, "bb-b>b bb>b bb>f bf>b bf>f fb-b>f fb-f>f fb>b fb>f ff-f>f ff>b ff>f"},
    {PL_OP_GROUPED_LINEAR_DX,
     "bb-b>b bb>b bb>f bf-b>b bf>b bf>f fb-b>f fb-f>f fb>b fb>f ff-b>f ff-f>f ff>b ff>f"},
    {PL_OP_GROUPED_LINEAR_DW, "bb>b bb>f bf>b bf>f fb>b fb>f ff>b ff>f"},
    {PL_OP_GROUPED_BIAS_GRAD, "b>b b>f f>f"},
    {PL_OP_COPY_IN, "b>b f>f"},
    {PL_OP_COPY_OUT, "b>b f>f"},
    {PL_OP_EMBED, "-b>b -b>f -f>f"},
    {PL_OP_EMBED4, "--f-f>b --f-f>f --f>b --f>f"},
    {PL_OP_EMBED_BWD, "--b>b --b>f --f>f"},
    {PL_OP_GATHER_ADD, "b>b bb>b f>f ff>f"},
    {PL_OP_ADD_SCALE, "-b>b -bb>b --b>b --f>f --b>f -bf>b -f>f -fb>f -ff>f >b >f"},
    {PL_OP_SOFTCAP, ">b >f"},
    {PL_OP_SCATTER_ROWS, "b>b f>f"},
    {PL_OP_BIAS_GRAD, "b>b b>f f>f"},
    {PL_OP_RMSNORM, "bb>bf fb>ff ff>ff"},
    {PL_OP_ADD_RMSNORM, "-bb>bbf -fb>fff -ff>fff"},
    {PL_OP_RENORM, "bbf>b fbf>f fff>f"},
    {PL_OP_RMSNORM_BWD, "-bbf>b -bbf>bb -bbf>bf -fbf>f -fff>f -fff>ff bbbf>b bbbf>bb bbbf>bf "
                        "bbbf>-b bbbf>-f ffbf>f ffff>f ffff>ff ffff>-f"},
    {PL_OP_QK_NORM, "b>bf bb>bf f>ff fb>ff ff>ff"},
    {PL_OP_QK_NORM_BWD, "-b-f>b -bbf>b -bbf>bb -bbf>bf -f-f>f -fbf>f -fff>f -fff>ff"},
    {PL_OP_ROPE, "--f>b --f>f --ff>b --ff>f"},
    {PL_OP_ATTENTION, "bbb>bf bbb--b>bf bbb--f>bf fff>ff fff--b>ff fff--f>ff"},
    {PL_OP_ATTENTION_BWD, "bbbbfb>bbb ffffff>fff"},
    {PL_OP_KV_APPEND, "bb>bb ff>ff"},
    {PL_OP_ATTENTION_CACHED, "bbb>b bbb---b>b fff>f fff---b>f fff---f>f"},
    {PL_OP_SINK_BWD, "bbfb>b bbfb>f bbff>f fffb>f ffff>f"},
    {PL_OP_ROUTE, "b>f f>f"},
    {PL_OP_ROUTE_BWD, "bf-f>b ff-f>f"},
    {PL_OP_AUX_LOSS, ">"},
    {PL_OP_EXPERT_ORDER, ">"},
    {PL_OP_DISPATCH, "b>b f>f"},
    {PL_OP_DISPATCH_BWD, "b>b f>f"},
    {PL_OP_COMBINE, "bf>b ff>f"},
    {PL_OP_COMBINE_BWD, "b-f>bf f-f>ff"},
    {PL_OP_SWIGLU_CLAMPED, "b>b f>f"},
    {PL_OP_SWIGLU_CLAMPED_BWD, "-b>b -f>f >bb >ff"},
    {PL_OP_CONV_SILU, "bb>b bb>bb fb>f fb>ff ff>f ff>ff"},
    {PL_OP_CONV_SILU_BWD, "bb-b>b bb-b>bb bb-b>bf fb-f>f ff-f>f ff-f>ff"},
    {PL_OP_GATED_DELTA, "bbbb>b bbbb>bf bbbb>b-f bbfb>b bbfb>bf bbfb>b-f bbff>b bbff>bf bbff>b-f "
                        "ffbb>f ffbb>ff ffbb>f-f fffb>f fffb>ff fffb>f-f ffff>f ffff>ff ffff>f-f"},
    {PL_OP_GATED_DELTA_BWD, "bbbb-fb>bb bbbb-fb>bbbb bbbb-fb>bbff bbfb-fb>bb bbff-fb>bbff "
                            "ffbb-ff>ff fffb-ff>ff ffff-ff>ff ffff-ff>ffff"},
    {PL_OP_GATED_NORM, "bbb>bf bbf>bf ffb>ff fff>ff"},
    {PL_OP_GATED_NORM_BWD, "bbbbf>bb bbbbf>bbb bbbbf>bbf bbbff>bb bbbff>bbf fffbf>ff fffff>ff "
                           "fffff>fff"},
    {PL_OP_SPLIT_HEADS, "b>b f>f"},
    {PL_OP_SPLIT_HEADS_BWD, "b>b f>f"},
    {PL_OP_SIGMOID_GATE, "bb>b ff>f"},
    {PL_OP_SIGMOID_GATE_BWD, "bbb>bb fff>ff"},
    {PL_OP_SWIGLU, "b>b f>f"},
    {PL_OP_SWIGLU_BWD, "-b>b -f>f >bb >ff"},
    {PL_OP_GEGLU, "b>b f>f"},
    {PL_OP_GEGLU_BWD, "-b>b -f>f >bb >ff"},
    {PL_OP_GELU_MUL, "bb>b ff>f"},
    {PL_OP_GELU_MUL_BWD, "-bb>b -bb>bb -ff>f -ff>ff"},
    {PL_OP_CROSS_ENTROPY, "----f>b ----f>f >b >f"},
    {PL_OP_SQUARE_SUM, "b> f>"},
    {PL_OP_CLIP_SCALE, ">"},
    {PL_OP_ADAMW, "-b>bbb -b>bbbf -b>bff -b>bfff -f>bbbf -f>bfff -f>fbb -f>fff"},
    {PL_OP_ADAMW_8BIT, "-b>b--ff -b>b--fff -b>bff -b>bff--f -f>b--fff -f>bff--f -f>f--ff -f>fff"},
    {PL_OP_SGD, "-b>b -b>b-f -b>bf -f>bf -f>f"},
    {PL_OP_LION, "-b>bb -b>bbf -b>bf -b>bff -f>bbf -f>bff -f>fb -f>ff"},
    {PL_OP_ZERO, "> >b >f"},
    {PL_OP_FOLD, "> b>b b-b>b f>b f-f>b f>f f-f>f"},
    {PL_OP_NARROW, "f>b"},
    {PL_OP_DEQUANT4, "-f-f>b -f-f>f -f>b -f>f >b >f"},
};

static char *add_letters(const int *types, int n, char *to) {
    char *end = to;
    for (int i = 0; i < n; i++) {
        to[i] = types[i] == PL_DTYPE_F32                        ? 'f'
                : types[i] >= 0 && pl_dtype_is_narrow(types[i]) ? 'b'
                                                                : '-';
        if (to[i] != '-') end = to + i + 1;
    }
    return end;
}

void emitted_signature(const int in[PL_OP_MAX_IN], const int out[PL_OP_MAX_OUT],
                       char text[EMITTED_TEXT]) {
    char *end = add_letters(in, PL_OP_MAX_IN, text);
    *end++ = '>';
    *add_letters(out, PL_OP_MAX_OUT, end) = '\0';
}

bool emitted_storage(enum pl_op_kind kind, const char *signature) {
    const size_t n = strlen(signature);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (rows[r].kind != kind) continue;
        for (const char *at = rows[r].signatures; *at; at += strcspn(at, " ")) {
            at += strspn(at, " ");
            if (strcspn(at, " ") == n && memcmp(at, signature, n) == 0) return true;
        }
    }
    return false;
}

bool emitted_layout(enum pl_dtype dtype, uint64_t first, uint64_t cols, uint64_t ld) {
    if (cols == 1 && ld == 1) return true;
    return cols > 0 && first % 16 == 0 && (ld == cols || ld * pl_dtype_bytes(dtype) % 16 == 0);
}
