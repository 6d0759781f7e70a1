/* op_rows.h - the ops of a step program: all facts about each, in one place.
 *
 * Everything else follows from the row of an op: the enums of ops.h, the checks of plan/check.c,
 * costs, scratch, the tables of kernels, docs/operations.md. The includer defines those of these
 * macros that it wants; the others are empty, and none is left afterwards.
 *
 *   PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)
 *       COST: class of cost.h. RUNS: ALONE; TOGETHER, if a back-end may run neighbours as one;
 *       NO_KERNEL. Inputs are PL_IN and outputs PL_OUT, in the order of op->in and op->out:
 *   PL_IN(KIND, ID, name, TYPE, USE, ROWS, COLS)
 *   PL_OUT(KIND, ID, name, TYPE, USE, ROWS, COLS)
 *   PL_FLOPS(KIND, factor, rule)          FLOPs = factor * elements of the first input * rule
 *   PL_SCRATCH(KIND, cpu, cuda)           rules of workspace_internal.h for the operand `ws`
 *   PL_TRAFFIC(KIND, factor)              on a CPU so many times as slow as memory; see cost.c
 *   PL_GRADIENT(KIND, BY)                 BY is an op of the gradient of KIND; a row for each
 *
 * TYPE, USE and dimensions are those of ops.h. Matrices are row-major; weights are [out,in] as in
 * the files. An output of the name of an input is that input, changed in place. All reductions run
 * in fp32 or wider, in an order that does not depend on timing. Kernels accept 0 rows. */
#ifndef PL_OP
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)
#endif
#ifndef PL_IN
#define PL_IN(KIND, ID, name, TYPE, USE, ROWS, COLS)
#endif
#ifndef PL_OUT
#define PL_OUT(KIND, ID, name, TYPE, USE, ROWS, COLS)
#endif
#ifndef PL_FLOPS
#define PL_FLOPS(KIND, factor, rule)
#endif
#ifndef PL_SCRATCH
#define PL_SCRATCH(KIND, cpu, cuda)
#endif
#ifndef PL_TRAFFIC
#define PL_TRAFFIC(KIND, factor)
#endif
#ifndef PL_GRADIENT
#define PL_GRADIENT(KIND, BY)
#endif

/* Rows are laid out as a table. */
/* clang-format off */

PL_OP(EMBED, embed, ROWS, ALONE, "x[i] = W[ids[i]], times attr.scale where that is not 0",
      PL_IN(EMBED, IDS, "ids", I32, NEEDED, N, ONE)
      PL_IN(EMBED, W, "W", FLOAT, NEEDED, V, C),
      PL_OUT(EMBED, X, "x", FLOAT, NEEDED, N, C))
PL_GRADIENT(EMBED, EMBED_BWD)

PL_OP(RMSNORM, rmsnorm, ROWS, ALONE,
      "rstd = 1/sqrt(mean(x^2)+eps); y = x * rstd * w. In all ops of norms w is 1 + w with "
      "attr.unit_offset",
      PL_IN(RMSNORM, X, "x", FLOAT, NEEDED, N, C)
      PL_IN(RMSNORM, W, "w", FLOAT, NEEDED, C, ONE),
      PL_OUT(RMSNORM, Y, "y", FLOAT, NEEDED, N, C)
      PL_OUT(RMSNORM, RSTD, "rstd", F32, NEEDED, N, ONE))
PL_GRADIENT(RMSNORM, RMSNORM_BWD)

PL_OP(ADD_RMSNORM, add_rmsnorm, ROWS, ALONE, "x += r; then as rmsnorm",
      PL_IN(ADD_RMSNORM, X, "x", FLOAT, IN_PLACE, N, C)
      PL_IN(ADD_RMSNORM, R, "r", FLOAT, NEEDED, N, C)
      PL_IN(ADD_RMSNORM, W, "w", FLOAT, NEEDED, C, ONE),
      PL_OUT(ADD_RMSNORM, X, "x", FLOAT, IN_PLACE, N, C)
      PL_OUT(ADD_RMSNORM, Y, "y", FLOAT, NEEDED, N, C)
      PL_OUT(ADD_RMSNORM, RSTD, "rstd", F32, NEEDED, N, ONE))
PL_GRADIENT(ADD_RMSNORM, RMSNORM_BWD)

PL_OP(ADD_SCALE, add_scale, ROWS, ALONE,
      "x = (x + r) * attr.alpha * s; without r x alone, without s by attr.alpha alone",
      PL_IN(ADD_SCALE, X, "x", FLOAT, IN_PLACE, N, C)
      PL_IN(ADD_SCALE, R, "r", FLOAT, OPTIONAL, N, C)
      PL_IN(ADD_SCALE, S, "s", FLOAT, OPTIONAL, ONE, ONE),
      PL_OUT(ADD_SCALE, X, "x", FLOAT, IN_PLACE, N, C))
PL_TRAFFIC(ADD_SCALE, 1.5)
PL_GRADIENT(ADD_SCALE, ADD_SCALE)

PL_OP(RENORM, renorm, ROWS, ALONE, "y = x * rstd * w with a kept rstd",
      PL_IN(RENORM, X, "x", FLOAT, NEEDED, N, C)
      PL_IN(RENORM, W, "w", FLOAT, NEEDED, C, ONE)
      PL_IN(RENORM, RSTD, "rstd", F32, NEEDED, N, ONE),
      PL_OUT(RENORM, Y, "y", FLOAT, NEEDED, N, C))

PL_OP(DEQUANT4, dequant4, DEQUANT, TOGETHER,
      "w = table[code] * absmax of its block. The rows of w lie one after another in the codes, "
      "from attr.first_element on; or attr.columns apart, where w has some columns of a matrix of "
      "so many. absmax: one a block of 64; with absmax8 one for every 256 blocks, and the offset. "
      "Under mxfp4 absmax is 2^(scale - 127), with one scale for 32 rows of a column, and w begins "
      "with the first row. "
      "attr.matrices of attr.matrix_elements: the codes of each, absmax8 and absmax, which its "
      "offset then follows, come after those of the one before; the same rows and columns of each "
      "go to rows of w that are attr.matrix_stride apart, and rows between them stay as they are",
      PL_IN(DEQUANT4, CODES, "codes", U8, NEEDED, ANY, ONE)
      PL_IN(DEQUANT4, ABSMAX, "absmax", CODED, NEEDED, ANY, ONE)
      PL_IN(DEQUANT4, ABSMAX8, "absmax8", U8, OPTIONAL, ANY, ONE)
      PL_IN(DEQUANT4, OFFSET, "offset", F32, OPTIONAL, ONE, ONE),
      PL_OUT(DEQUANT4, W, "w", FLOAT, NEEDED, O, K))
PL_TRAFFIC(DEQUANT4, 2)

PL_OP(EMBED4, embed4, ROWS, ALONE,
      "x[i] = row ids[i] of the matrix of as many columns that dequant4 would make of the codes, "
      "times attr.scale where that is not 0",
      PL_IN(EMBED4, IDS, "ids", I32, NEEDED, N, ONE)
      PL_IN(EMBED4, CODES, "codes", U8, NEEDED, ANY, ONE)
      PL_IN(EMBED4, ABSMAX, "absmax", F32, NEEDED, ANY, ONE)
      PL_IN(EMBED4, ABSMAX8, "absmax8", U8, OPTIONAL, ANY, ONE)
      PL_IN(EMBED4, OFFSET, "offset", F32, OPTIONAL, ONE, ONE),
      PL_OUT(EMBED4, X, "x", FLOAT, NEEDED, N, C))

PL_OP(LINEAR, linear, PRODUCT, ALONE, "y (=|+=) alpha * x W^T + bias",
      PL_IN(LINEAR, X, "x", FLOAT, NEEDED, N, K)
      PL_IN(LINEAR, W, "W", FLOAT, NEEDED, O, K)
      PL_IN(LINEAR, BIAS, "bias", FLOAT, OPTIONAL, O, ONE)
      PL_IN(LINEAR, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(LINEAR, Y, "y", FLOAT, MAYBE_IN_PLACE, N, O),
      PL_OUT(LINEAR, Y, "y", FLOAT, NEEDED, N, O))
PL_FLOPS(LINEAR, 2, rows_of_second)
PL_SCRATCH(LINEAR, NULL, pl_ws_cuda_product)
PL_GRADIENT(LINEAR, LINEAR_DX)
PL_GRADIENT(LINEAR, LINEAR_DW)
PL_GRADIENT(LINEAR, BIAS_GRAD)

PL_OP(GROUPED_LINEAR, grouped_linear, PRODUCT, ALONE,
      "y (=|+=) alpha * x W_e^T + bias_e for the rows of every expert e, which are offsets[e] up "
      "to offsets[e+1]. In all grouped ops the matrices are those of the experts from "
      "attr.first_expert on, O = attr.expert_rows rows for each; nothing is read or written of the "
      "rows of other experts",
      PL_IN(GROUPED_LINEAR, X, "x", FLOAT, NEEDED, P, K)
      PL_IN(GROUPED_LINEAR, W, "W", FLOAT, NEEDED, EO, K)
      PL_IN(GROUPED_LINEAR, OFFSETS, "offsets", I32, NEEDED, EXPERT_ENDS, ONE)
      PL_IN(GROUPED_LINEAR, BIAS, "bias", FLOAT, OPTIONAL, EO, ONE)
      PL_IN(GROUPED_LINEAR, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GROUPED_LINEAR, Y, "y", FLOAT, MAYBE_IN_PLACE, P, O),
      PL_OUT(GROUPED_LINEAR, Y, "y", FLOAT, NEEDED, P, O))
PL_FLOPS(GROUPED_LINEAR, 2, rows_of_expert)
PL_GRADIENT(GROUPED_LINEAR, GROUPED_LINEAR_DX)
PL_GRADIENT(GROUPED_LINEAR, GROUPED_LINEAR_DW)
PL_GRADIENT(GROUPED_LINEAR, GROUPED_BIAS_GRAD)

PL_OP(QK_NORM, qk_norm, ROWS, ALONE,
      "per head h: rstd[i,h] = 1/sqrt(mean(x^2)+eps); y = x * rstd * w; heads = cols / D; "
      "without w by 1",
      PL_IN(QK_NORM, X, "x", FLOAT, NEEDED, N, HD)
      PL_IN(QK_NORM, W, "w", FLOAT, OPTIONAL, D, ONE),
      PL_OUT(QK_NORM, Y, "y", FLOAT, NEEDED, N, HD)
      PL_OUT(QK_NORM, RSTD, "rstd", F32, NEEDED, N, H))
PL_GRADIENT(QK_NORM, QK_NORM_BWD)

PL_OP(ROPE, rope, ROWS, ALONE,
      "rotates pairs (i, i+rot/2) of each head by pos; attr.inverse turns back, which is the "
      "gradient; table2, where present, serves micro-batches with a sequence above attr.long_from; "
      "a table of both has the positions of longer sequences in its second half",
      PL_IN(ROPE, X, "x", FLOAT, IN_PLACE, N, HD)
      PL_IN(ROPE, POS, "pos", I32, NEEDED, N, ONE)
      PL_IN(ROPE, TABLE, "table", F32, NEEDED, S, PAIRS)
      PL_IN(ROPE, TABLE2, "table2", F32, OPTIONAL, S, PAIRS),
      PL_OUT(ROPE, X, "x", FLOAT, IN_PLACE, N, HD))
PL_GRADIENT(ROPE, ROPE)

PL_OP(ATTENTION, attention, ATTENTION, ALONE,
      "causal, per sequence, attr.window positions back; lse = log-sum-exp of the scaled scores. "
      "sinks: a score of each head that has no value, and stands in the sum of every query",
      PL_IN(ATTENTION, Q, "q", FLOAT, NEEDED, N, HD)
      PL_IN(ATTENTION, K, "k", FLOAT, NEEDED, N, GD)
      PL_IN(ATTENTION, V, "v", FLOAT, NEEDED, N, GD)
      PL_IN(ATTENTION, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(ATTENTION, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(ATTENTION, SINKS, "sinks", FLOAT, OPTIONAL, H, ONE),
      PL_OUT(ATTENTION, O, "o", FLOAT, NEEDED, N, HD)
      PL_OUT(ATTENTION, LSE, "lse", F32, NEEDED, N, H))
PL_FLOPS(ATTENTION, 2, keys_seen)
PL_SCRATCH(ATTENTION, pl_ws_attention, NULL)
PL_GRADIENT(ATTENTION, ATTENTION_BWD)
PL_GRADIENT(ATTENTION, SINK_BWD)

PL_OP(KV_APPEND, kv_append, ROWS, ALONE,
      "keys and values of position pos[i] of sequence s become row s * attr.context + pos[i] of "
      "the cache; the positions of a sequence's rows follow each other",
      PL_IN(KV_APPEND, K, "k", FLOAT, NEEDED, N, GD)
      PL_IN(KV_APPEND, V, "v", FLOAT, NEEDED, N, GD)
      PL_IN(KV_APPEND, POS, "pos", I32, NEEDED, N, ONE)
      PL_IN(KV_APPEND, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(KV_APPEND, KC, "kc", FLOAT, IN_PLACE, R, GD)
      PL_IN(KV_APPEND, VC, "vc", FLOAT, IN_PLACE, R, GD),
      PL_OUT(KV_APPEND, KC, "kc", FLOAT, IN_PLACE, R, GD)
      PL_OUT(KV_APPEND, VC, "vc", FLOAT, IN_PLACE, R, GD))

PL_OP(ATTENTION_CACHED, attention_cached, ATTENTION, ALONE,
      "query i of sequence s sees rows s * attr.context + j of the cache, j <= pos[i], attr.window "
      "positions back; pos as for kv_append, sinks as for attention",
      PL_IN(ATTENTION_CACHED, Q, "q", FLOAT, NEEDED, N, HD)
      PL_IN(ATTENTION_CACHED, KC, "kc", FLOAT, NEEDED, R, GD)
      PL_IN(ATTENTION_CACHED, VC, "vc", FLOAT, NEEDED, R, GD)
      PL_IN(ATTENTION_CACHED, POS, "pos", I32, NEEDED, N, ONE)
      PL_IN(ATTENTION_CACHED, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(ATTENTION_CACHED, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(ATTENTION_CACHED, SINKS, "sinks", FLOAT, OPTIONAL, H, ONE),
      PL_OUT(ATTENTION_CACHED, O, "o", FLOAT, NEEDED, N, HD))
PL_FLOPS(ATTENTION_CACHED, 2, keys_seen)
PL_SCRATCH(ATTENTION_CACHED, pl_ws_attention, NULL)

PL_OP(SWIGLU, swiglu, ROWS, ALONE, "m = silu(gu[:, :F]) * gu[:, F:]",
      PL_IN(SWIGLU, GU, "gu", FLOAT, NEEDED, N, F2),
      PL_OUT(SWIGLU, M, "m", FLOAT, NEEDED, N, F))
PL_TRAFFIC(SWIGLU, 1.25)
PL_GRADIENT(SWIGLU, SWIGLU_BWD)

PL_OP(GEGLU, geglu, ROWS, ALONE, "m = gelu(gu[:, :F]) * gu[:, F:], gelu as tanh approximates it",
      PL_IN(GEGLU, GU, "gu", FLOAT, NEEDED, N, F2),
      PL_OUT(GEGLU, M, "m", FLOAT, NEEDED, N, F))
PL_TRAFFIC(GEGLU, 1.25)
PL_GRADIENT(GEGLU, GEGLU_BWD)

PL_OP(GELU_MUL, gelu_mul, ROWS, ALONE, "m = gelu(g) * u, gelu as geglu's",
      PL_IN(GELU_MUL, G, "g", FLOAT, NEEDED, N, F)
      PL_IN(GELU_MUL, U, "u", FLOAT, NEEDED, N, F),
      PL_OUT(GELU_MUL, M, "m", FLOAT, NEEDED, N, F))
PL_TRAFFIC(GELU_MUL, 1.25)
PL_GRADIENT(GELU_MUL, GELU_MUL_BWD)

PL_OP(GELU_MUL_BWD, gelu_mul_bwd, ROWS, ALONE, "g becomes d g in place; du = d u",
      PL_IN(GELU_MUL_BWD, G, "g", FLOAT, IN_PLACE, N, F)
      PL_IN(GELU_MUL_BWD, U, "u", FLOAT, NEEDED, N, F)
      PL_IN(GELU_MUL_BWD, DM, "dm", FLOAT, NEEDED, N, F),
      PL_OUT(GELU_MUL_BWD, G, "g", FLOAT, IN_PLACE, N, F)
      PL_OUT(GELU_MUL_BWD, DU, "du", FLOAT, OPTIONAL, N, F))
PL_TRAFFIC(GELU_MUL_BWD, 1.25)

PL_OP(ROUTE, route, ROWS, ALONE,
      "expert: those of the k largest logits, the lower one first where two are the same; weight = "
      "softmax over these k, or their part of the softmax over all with attr.softmax_first and "
      "without attr.normalise. stats, with attr.aux_coef: (=|+=) the tokens of every expert, "
      "and the sums over the tokens of the softmax over all",
      PL_IN(ROUTE, LOGITS, "logits", FLOAT, NEEDED, N, E)
      PL_IN(ROUTE, STATS, "stats", F64, MAYBE_IN_PLACE, E2, ONE)
      PL_IN(ROUTE, WS, "ws", U8, SCRATCH, ANY, ONE),
      PL_OUT(ROUTE, WEIGHT, "weight", F32, NEEDED, N, KE)
      PL_OUT(ROUTE, EXPERT, "expert", I32, NEEDED, N, KE)
      PL_OUT(ROUTE, STATS, "stats", F64, OPTIONAL, E2, ONE))
PL_SCRATCH(ROUTE, pl_ws_route, pl_ws_route)
PL_GRADIENT(ROUTE, ROUTE_BWD)

PL_OP(ROUTE_BWD, route_bwd, ROWS, ALONE,
      "the gradient of route; with stats also of the auxiliary loss, of whose f_e and P_e (see "
      "aux_loss) P_e has one: += attr.aux_coef * E * batch.aux_scale * sum_e f_e dP_e",
      PL_IN(ROUTE_BWD, LOGITS, "logits", FLOAT, NEEDED, N, E)
      PL_IN(ROUTE_BWD, WEIGHT, "weight", F32, NEEDED, N, KE)
      PL_IN(ROUTE_BWD, EXPERT, "expert", I32, NEEDED, N, KE)
      PL_IN(ROUTE_BWD, DWEIGHT, "dweight", F32, NEEDED, N, KE)
      PL_IN(ROUTE_BWD, STATS, "stats", F64, OPTIONAL, E2, ONE),
      PL_OUT(ROUTE_BWD, DLOGITS, "dlogits", FLOAT, NEEDED, N, E))

PL_OP(AUX_LOSS, aux_loss, ROWS, ALONE,
      "loss[0] += attr.aux_coef * E * sum_e f_e P_e * batch.aux_scale / batch.loss_scale; f_e and "
      "P_e: counts and sums of route / (attr.aux_layers * batch.n_tokens)",
      PL_IN(AUX_LOSS, STATS, "stats", F64, NEEDED, E2, ONE)
      PL_IN(AUX_LOSS, LOSS, "loss", F64, IN_PLACE, TWO, ONE),
      PL_OUT(AUX_LOSS, LOSS, "loss", F64, IN_PLACE, TWO, ONE))
PL_GRADIENT(AUX_LOSS, ROUTE_BWD)

PL_OP(EXPERT_ORDER, expert_order, ROWS, ALONE,
      "sorts the assignments t*k+j by expert[t,j], those of one expert in their order. order: the "
      "assignment of every sorted row; place: the sorted row of every assignment; offsets: where "
      "the rows of every expert begin, and the end",
      PL_IN(EXPERT_ORDER, EXPERT, "expert", I32, NEEDED, N, KE),
      PL_OUT(EXPERT_ORDER, OFFSETS, "offsets", I32, NEEDED, EXPERT_ENDS, ONE)
      PL_OUT(EXPERT_ORDER, ORDER, "order", I32, NEEDED, P, ONE)
      PL_OUT(EXPERT_ORDER, PLACE, "place", I32, NEEDED, P, ONE))

PL_OP(DISPATCH, dispatch, ROWS, ALONE, "xr[r] = x[order[r] / k], k = P/N",
      PL_IN(DISPATCH, X, "x", FLOAT, NEEDED, N, C)
      PL_IN(DISPATCH, ORDER, "order", I32, NEEDED, P, ONE),
      PL_OUT(DISPATCH, XR, "xr", FLOAT, NEEDED, P, C))
PL_GRADIENT(DISPATCH, DISPATCH_BWD)

PL_OP(DISPATCH_BWD, dispatch_bwd, ROWS, ALONE,
      "dx[t] (=|+=) sum over j of dxr[place[t*k+j]], in the order of j",
      PL_IN(DISPATCH_BWD, DXR, "dxr", FLOAT, NEEDED, P, C)
      PL_IN(DISPATCH_BWD, PLACE, "place", I32, NEEDED, P, ONE)
      PL_IN(DISPATCH_BWD, DX, "dx", FLOAT, MAYBE_IN_PLACE, N, C),
      PL_OUT(DISPATCH_BWD, DX, "dx", FLOAT, NEEDED, N, C))

PL_OP(SWIGLU_CLAMPED, swiglu_clamped, ROWS, ALONE,
      "with gate = min(gu[:, 0::2], attr.limit) and up = gu[:, 1::2] within +-attr.limit: "
      "m = (up + 1) * gate * sigmoid(attr.alpha * gate)",
      PL_IN(SWIGLU_CLAMPED, GU, "gu", FLOAT, NEEDED, P, F2),
      PL_OUT(SWIGLU_CLAMPED, M, "m", FLOAT, NEEDED, P, F))
PL_TRAFFIC(SWIGLU_CLAMPED, 1.25)
PL_GRADIENT(SWIGLU_CLAMPED, SWIGLU_CLAMPED_BWD)

PL_OP(SWIGLU_CLAMPED_BWD, swiglu_clamped_bwd, ROWS, ALONE,
      "gu becomes d gu in place, 0 where a bound was passed; m as in swiglu_bwd",
      PL_IN(SWIGLU_CLAMPED_BWD, GU, "gu", FLOAT, IN_PLACE, P, F2)
      PL_IN(SWIGLU_CLAMPED_BWD, DM, "dm", FLOAT, NEEDED, P, F)
      PL_IN(SWIGLU_CLAMPED_BWD, M, "m", FLOAT, MAYBE_IN_PLACE, P, F),
      PL_OUT(SWIGLU_CLAMPED_BWD, GU, "gu", FLOAT, IN_PLACE, P, F2)
      PL_OUT(SWIGLU_CLAMPED_BWD, M, "m", FLOAT, OPTIONAL, P, F))
PL_TRAFFIC(SWIGLU_CLAMPED_BWD, 1.25)

PL_OP(COMBINE, combine, ROWS, ALONE,
      "y[t] = sum over j of weight[t,j] * yr[place[t*k+j]], in the order of j",
      PL_IN(COMBINE, YR, "yr", FLOAT, NEEDED, P, C)
      PL_IN(COMBINE, WEIGHT, "weight", F32, NEEDED, N, KE)
      PL_IN(COMBINE, PLACE, "place", I32, NEEDED, P, ONE),
      PL_OUT(COMBINE, Y, "y", FLOAT, NEEDED, N, C))
PL_GRADIENT(COMBINE, COMBINE_BWD)

PL_OP(COMBINE_BWD, combine_bwd, ROWS, ALONE,
      "for r = place[t*k+j]: dweight[t,j] = the dot product of dy[t] and yr[r]; then yr[r], which "
      "becomes its gradient, = weight[t,j] * dy[t]",
      PL_IN(COMBINE_BWD, DY, "dy", FLOAT, NEEDED, N, C)
      PL_IN(COMBINE_BWD, YR, "yr", FLOAT, IN_PLACE, P, C)
      PL_IN(COMBINE_BWD, WEIGHT, "weight", F32, NEEDED, N, KE)
      PL_IN(COMBINE_BWD, PLACE, "place", I32, NEEDED, P, ONE),
      PL_OUT(COMBINE_BWD, YR, "yr", FLOAT, IN_PLACE, P, C)
      PL_OUT(COMBINE_BWD, DWEIGHT, "dweight", F32, NEEDED, N, KE))

PL_OP(CONV_SILU, conv_silu, ROWS, ALONE,
      "c[i] = silu(sum over j of w[:,j] * y[i-taps+1+j]), where y is 0 before its sequence. With a "
      "cache sequence s continues from pos of its first row on: position p, one of the taps-1 "
      "before it, is row s * (taps-1) + p % (taps-1) of the cache, and the last of y are put there",
      PL_IN(CONV_SILU, Y, "y", FLOAT, NEEDED, N, CH)
      PL_IN(CONV_SILU, W, "w", FLOAT, NEEDED, CH, TAPS)
      PL_IN(CONV_SILU, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(CONV_SILU, POS, "pos", I32, OPTIONAL, N, ONE)
      PL_IN(CONV_SILU, CACHE, "cache", FLOAT, MAYBE_IN_PLACE, ANY, CH),
      PL_OUT(CONV_SILU, C, "c", FLOAT, NEEDED, N, CH)
      PL_OUT(CONV_SILU, CACHE, "cache", FLOAT, MAYBE_IN_PLACE, ANY, CH))
PL_TRAFFIC(CONV_SILU, 1.25)
PL_GRADIENT(CONV_SILU, CONV_SILU_BWD)

PL_OP(CONV_SILU_BWD, conv_silu_bwd, ROWS, ALONE,
      "with g = dc * the slope of silu: dy[i] = sum over j of w[:,j] * g[i+taps-1-j], where g is 0 "
      "after its sequence; dw[:,j] (=|+=) sum over i of g[i] * y[i-taps+1+j] if there is a dw",
      PL_IN(CONV_SILU_BWD, Y, "y", FLOAT, NEEDED, N, CH)
      PL_IN(CONV_SILU_BWD, W, "w", FLOAT, NEEDED, CH, TAPS)
      PL_IN(CONV_SILU_BWD, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(CONV_SILU_BWD, DC, "dc", FLOAT, NEEDED, N, CH)
      PL_IN(CONV_SILU_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(CONV_SILU_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, CH, TAPS),
      PL_OUT(CONV_SILU_BWD, DY, "dy", FLOAT, NEEDED, N, CH)
      PL_OUT(CONV_SILU_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, CH, TAPS))
PL_SCRATCH(CONV_SILU_BWD, pl_ws_conv_silu_bwd, pl_ws_conv_silu_bwd)
PL_TRAFFIC(CONV_SILU_BWD, 1.5)

PL_OP(GATED_NORM, gated_norm, ROWS, ALONE,
      "per head h: rstd[i,h] = 1/sqrt(mean(o^2)+eps); y = o * rstd * w * silu(z); heads = cols / D",
      PL_IN(GATED_NORM, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_NORM, Z, "z", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_NORM, W, "w", FLOAT, NEEDED, D, ONE),
      PL_OUT(GATED_NORM, Y, "y", FLOAT, NEEDED, N, HD)
      PL_OUT(GATED_NORM, RSTD, "rstd", F32, NEEDED, N, H))
PL_TRAFFIC(GATED_NORM, 1.25)
PL_GRADIENT(GATED_NORM, GATED_NORM_BWD)

PL_OP(GATED_NORM_BWD, gated_norm_bwd, ROWS, ALONE,
      "the gradient of gated_norm; dw (=|+=) is summed over tokens and heads if there is a dw",
      PL_IN(GATED_NORM_BWD, DY, "dy", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_NORM_BWD, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_NORM_BWD, Z, "z", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_NORM_BWD, W, "w", FLOAT, NEEDED, D, ONE)
      PL_IN(GATED_NORM_BWD, RSTD, "rstd", F32, NEEDED, N, H)
      PL_IN(GATED_NORM_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GATED_NORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, D, ONE),
      PL_OUT(GATED_NORM_BWD, DO, "do", FLOAT, NEEDED, N, HD)
      PL_OUT(GATED_NORM_BWD, DZ, "dz", FLOAT, NEEDED, N, HD)
      PL_OUT(GATED_NORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, D, ONE))
PL_SCRATCH(GATED_NORM_BWD, pl_ws_qk_norm_bwd, pl_ws_cuda_qk_norm_bwd)
PL_TRAFFIC(GATED_NORM_BWD, 1.25)

PL_OP(SPLIT_HEADS, split_heads, ROWS, ALONE,
      "q = the first D of every 2D columns of qg, which are a head of queries and its gate",
      PL_IN(SPLIT_HEADS, QG, "qg", FLOAT, NEEDED, N, HD2),
      PL_OUT(SPLIT_HEADS, Q, "q", FLOAT, NEEDED, N, HD))
PL_GRADIENT(SPLIT_HEADS, SPLIT_HEADS_BWD)

PL_OP(SPLIT_HEADS_BWD, split_heads_bwd, ROWS, ALONE,
      "these columns of dqg = dq; the gates' are left alone",
      PL_IN(SPLIT_HEADS_BWD, DQ, "dq", FLOAT, NEEDED, N, HD)
      PL_IN(SPLIT_HEADS_BWD, DQG, "dqg", FLOAT, IN_PLACE, N, HD2),
      PL_OUT(SPLIT_HEADS_BWD, DQG, "dqg", FLOAT, IN_PLACE, N, HD2))

PL_OP(SIGMOID_GATE, sigmoid_gate, ROWS, ALONE,
      "y = o * sigmoid(gate); the gate of a head is the second D of every 2D columns of qg",
      PL_IN(SIGMOID_GATE, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(SIGMOID_GATE, QG, "qg", FLOAT, NEEDED, N, HD2),
      PL_OUT(SIGMOID_GATE, Y, "y", FLOAT, NEEDED, N, HD))
PL_TRAFFIC(SIGMOID_GATE, 1.25)
PL_GRADIENT(SIGMOID_GATE, SIGMOID_GATE_BWD)

PL_OP(SIGMOID_GATE_BWD, sigmoid_gate_bwd, ROWS, ALONE,
      "do, and the gates' columns of dqg; those of queries are left to split_heads_bwd",
      PL_IN(SIGMOID_GATE_BWD, DY, "dy", FLOAT, NEEDED, N, HD)
      PL_IN(SIGMOID_GATE_BWD, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(SIGMOID_GATE_BWD, QG, "qg", FLOAT, NEEDED, N, HD2),
      PL_OUT(SIGMOID_GATE_BWD, DO, "do", FLOAT, NEEDED, N, HD)
      PL_OUT(SIGMOID_GATE_BWD, DQG, "dqg", FLOAT, NEEDED, N, HD2))
PL_TRAFFIC(SIGMOID_GATE_BWD, 1.25)

PL_OP(GATED_DELTA, gated_delta, ATTENTION, ALONE,
      "per value head, from S [dk,D] = 0 at the start of a sequence: S *= alpha; S += k (beta * (v "
      "- S^T k))^T; o = S^T q. qkv: q and k of attr.kv_heads heads of dk = attr.key_dim columns, "
      "each divided by sqrt(sum of squares + 1e-6), q also by sqrt(dk), then v of H heads of D; "
      "ba: b and a of every head: beta = sigmoid(b), alpha = exp(-exp(A_log) * softplus(a + "
      "dt_bias)). states: row offsets[s]/64 + s + c is S before chunk c of 64 tokens of sequence "
      "s. With state, of which a row is that of a sequence, S is kept there, and is 0 before "
      "position 0",
      PL_IN(GATED_DELTA, QKV, "qkv", FLOAT, NEEDED, N, CH)
      PL_IN(GATED_DELTA, BA, "ba", FLOAT, NEEDED, N, H2)
      PL_IN(GATED_DELTA, A_LOG, "A_log", FLOAT, NEEDED, H, ONE)
      PL_IN(GATED_DELTA, DT_BIAS, "dt_bias", FLOAT, NEEDED, H, ONE)
      PL_IN(GATED_DELTA, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(GATED_DELTA, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GATED_DELTA, POS, "pos", I32, OPTIONAL, N, ONE)
      PL_IN(GATED_DELTA, STATE, "state", F32, MAYBE_IN_PLACE, B, ANY),
      PL_OUT(GATED_DELTA, O, "o", FLOAT, NEEDED, N, HD)
      PL_OUT(GATED_DELTA, STATES, "states", F32, OPTIONAL, ANY, ANY)
      PL_OUT(GATED_DELTA, STATE, "state", F32, MAYBE_IN_PLACE, B, ANY))
PL_FLOPS(GATED_DELTA, 8, delta_state)
PL_SCRATCH(GATED_DELTA, pl_ws_gated_delta, NULL)
PL_GRADIENT(GATED_DELTA, GATED_DELTA_BWD)

PL_OP(GATED_DELTA_BWD, gated_delta_bwd, ATTENTION, ALONE,
      "the gradient of gated_delta, with the states that it left; dA_log and ddt_bias (=|+=) if "
      "they are there",
      PL_IN(GATED_DELTA_BWD, QKV, "qkv", FLOAT, NEEDED, N, CH)
      PL_IN(GATED_DELTA_BWD, BA, "ba", FLOAT, NEEDED, N, H2)
      PL_IN(GATED_DELTA_BWD, A_LOG, "A_log", FLOAT, NEEDED, H, ONE)
      PL_IN(GATED_DELTA_BWD, DT_BIAS, "dt_bias", FLOAT, NEEDED, H, ONE)
      PL_IN(GATED_DELTA_BWD, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(GATED_DELTA_BWD, STATES, "states", F32, NEEDED, ANY, ANY)
      PL_IN(GATED_DELTA_BWD, DO, "do", FLOAT, NEEDED, N, HD)
      PL_IN(GATED_DELTA_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GATED_DELTA_BWD, DA_LOG, "dA_log", FLOAT, MAYBE_IN_PLACE, H, ONE)
      PL_IN(GATED_DELTA_BWD, DDT_BIAS, "ddt_bias", FLOAT, MAYBE_IN_PLACE, H, ONE),
      PL_OUT(GATED_DELTA_BWD, DQKV, "dqkv", FLOAT, NEEDED, N, CH)
      PL_OUT(GATED_DELTA_BWD, DBA, "dba", FLOAT, NEEDED, N, H2)
      PL_OUT(GATED_DELTA_BWD, DA_LOG, "dA_log", FLOAT, MAYBE_IN_PLACE, H, ONE)
      PL_OUT(GATED_DELTA_BWD, DDT_BIAS, "ddt_bias", FLOAT, MAYBE_IN_PLACE, H, ONE))
PL_FLOPS(GATED_DELTA_BWD, 24, delta_state)
PL_SCRATCH(GATED_DELTA_BWD, pl_ws_gated_delta_bwd, pl_ws_cuda_gated_delta_bwd)

PL_OP(DROPOUT, dropout, ROWS, ALONE,
      "y = x * keep / (1-p); keep is a function of (seed, step, sample, position, site, column). "
      "Row 0 is the token where attr.first_element is",
      PL_IN(DROPOUT, X, "x", FLOAT, NEEDED, N, K)
      PL_IN(DROPOUT, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(DROPOUT, SAMPLE, "sample", U64, NEEDED, B, ONE),
      PL_OUT(DROPOUT, Y, "y", FLOAT, NEEDED, N, K))
PL_GRADIENT(DROPOUT, DROPOUT_BWD)

PL_OP(GATHER_ADD, gather_add, ROWS, ALONE,
      "xs[t] = x[rows[t]] + r[rows[t]]; without r x alone",
      PL_IN(GATHER_ADD, X, "x", FLOAT, NEEDED, N, C)
      PL_IN(GATHER_ADD, R, "r", FLOAT, OPTIONAL, N, C)
      PL_IN(GATHER_ADD, ROWS, "rows", I32, NEEDED, T, ONE),
      PL_OUT(GATHER_ADD, XS, "xs", FLOAT, NEEDED, T, C))
PL_TRAFFIC(GATHER_ADD, 1.5)
PL_GRADIENT(GATHER_ADD, SCATTER_ROWS)

PL_OP(SOFTCAP, softcap, ROWS, ALONE, "z = attr.limit * tanh(z / attr.limit)",
      PL_IN(SOFTCAP, Z, "z", FLOAT, IN_PLACE, T, V),
      PL_OUT(SOFTCAP, Z, "z", FLOAT, IN_PLACE, T, V))
PL_TRAFFIC(SOFTCAP, 1.5)
PL_GRADIENT(SOFTCAP, CROSS_ENTROPY)

PL_OP(CROSS_ENTROPY, cross_entropy, ROWS, ALONE,
      "adds sum(weight * (lse - logit[target])) to loss[0]; with attr.gradient logits become d "
      "loss/d logits times batch.loss_scale. weight is 1 without weights; logp = logit[target] - "
      "lse. Without gradient, weights and logp the rows whose first largest logit is the target's "
      "are counted in loss[1]. rows: those of the chunk. With attr.limit logits are what softcap "
      "made of others, and become the gradient of these. A row whose target is PL_TARGET_NONE has "
      "no loss, a gradient of 0 and a logp of 0, and is not counted",
      PL_IN(CROSS_ENTROPY, LOGITS, "logits", FLOAT, IN_PLACE, T, V)
      PL_IN(CROSS_ENTROPY, TARGETS, "targets", I32, NEEDED, T, ONE)
      PL_IN(CROSS_ENTROPY, LOSS, "loss", F64, IN_PLACE, TWO, ONE)
      PL_IN(CROSS_ENTROPY, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(CROSS_ENTROPY, WEIGHTS, "weights", F32, OPTIONAL, T, ONE),
      PL_OUT(CROSS_ENTROPY, LOGITS, "logits", FLOAT, IN_PLACE, T, V)
      PL_OUT(CROSS_ENTROPY, LOSS, "loss", F64, IN_PLACE, TWO, ONE)
      PL_OUT(CROSS_ENTROPY, LOGP, "logp", F64, OPTIONAL, T, ONE))
PL_SCRATCH(CROSS_ENTROPY, pl_ws_cross_entropy, pl_ws_cuda_cross_entropy)
PL_TRAFFIC(CROSS_ENTROPY, 3.5)
PL_GRADIENT(CROSS_ENTROPY, CROSS_ENTROPY)

PL_OP(SCATTER_ROWS, scatter_rows, ROWS, ALONE, "dx = 0, then dx[rows[t]] = dxs[t]",
      PL_IN(SCATTER_ROWS, DXS, "dxs", FLOAT, NEEDED, T, C)
      PL_IN(SCATTER_ROWS, ROWS, "rows", I32, NEEDED, T, ONE),
      PL_OUT(SCATTER_ROWS, DX, "dx", FLOAT, NEEDED, N, C))

PL_OP(LINEAR_DX, linear_dx, PRODUCT, ALONE, "dx (=|+=) alpha * dy W",
      PL_IN(LINEAR_DX, DY, "dy", FLOAT, NEEDED, N, O)
      PL_IN(LINEAR_DX, W, "W", FLOAT, NEEDED, O, K)
      PL_IN(LINEAR_DX, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(LINEAR_DX, DX, "dx", FLOAT, MAYBE_IN_PLACE, N, K),
      PL_OUT(LINEAR_DX, DX, "dx", FLOAT, NEEDED, N, K))
PL_FLOPS(LINEAR_DX, 2, cols_of_second)
PL_SCRATCH(LINEAR_DX, NULL, pl_ws_cuda_product)

PL_OP(LINEAR_DW, linear_dw, PRODUCT, TOGETHER, "dW (=|+=) alpha * dy^T x",
      PL_IN(LINEAR_DW, DY, "dy", FLOAT, NEEDED, N, O)
      PL_IN(LINEAR_DW, X, "x", FLOAT, NEEDED, N, K)
      PL_IN(LINEAR_DW, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(LINEAR_DW, DW, "dW", FLOAT, IN_PLACE, O, K),
      PL_OUT(LINEAR_DW, DW, "dW", FLOAT, IN_PLACE, O, K))
PL_FLOPS(LINEAR_DW, 2, cols_of_second)
PL_SCRATCH(LINEAR_DW, NULL, pl_ws_cuda_product)

PL_OP(GROUPED_LINEAR_DX, grouped_linear_dx, PRODUCT, ALONE,
      "dx (=|+=) alpha * dy W_e + bias_e for the rows of every expert; the product of a model "
      "whose files hold matrices [in,out], with W^T for W",
      PL_IN(GROUPED_LINEAR_DX, DY, "dy", FLOAT, NEEDED, P, O)
      PL_IN(GROUPED_LINEAR_DX, W, "W", FLOAT, NEEDED, EO, K)
      PL_IN(GROUPED_LINEAR_DX, OFFSETS, "offsets", I32, NEEDED, EXPERT_ENDS, ONE)
      PL_IN(GROUPED_LINEAR_DX, BIAS, "bias", FLOAT, OPTIONAL, EK, ONE)
      PL_IN(GROUPED_LINEAR_DX, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GROUPED_LINEAR_DX, DX, "dx", FLOAT, MAYBE_IN_PLACE, P, K),
      PL_OUT(GROUPED_LINEAR_DX, DX, "dx", FLOAT, NEEDED, P, K))
PL_FLOPS(GROUPED_LINEAR_DX, 2, cols_of_expert)
PL_GRADIENT(GROUPED_LINEAR_DX, GROUPED_LINEAR)
PL_GRADIENT(GROUPED_LINEAR_DX, GROUPED_LINEAR_DW)
PL_GRADIENT(GROUPED_LINEAR_DX, GROUPED_BIAS_GRAD)

PL_OP(GROUPED_LINEAR_DW, grouped_linear_dw, PRODUCT, ALONE,
      "dW_e (=|+=) alpha * dy^T x over the rows of every expert; written without rows: 0",
      PL_IN(GROUPED_LINEAR_DW, DY, "dy", FLOAT, NEEDED, P, O)
      PL_IN(GROUPED_LINEAR_DW, X, "x", FLOAT, NEEDED, P, K)
      PL_IN(GROUPED_LINEAR_DW, OFFSETS, "offsets", I32, NEEDED, EXPERT_ENDS, ONE)
      PL_IN(GROUPED_LINEAR_DW, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(GROUPED_LINEAR_DW, DW, "dW", FLOAT, IN_PLACE, EO, K),
      PL_OUT(GROUPED_LINEAR_DW, DW, "dW", FLOAT, IN_PLACE, EO, K))
PL_FLOPS(GROUPED_LINEAR_DW, 2, cols_of_expert)

PL_OP(GROUPED_BIAS_GRAD, grouped_bias_grad, ROWS, ALONE,
      "db_e (=|+=) sum of dy over the rows of every expert",
      PL_IN(GROUPED_BIAS_GRAD, DY, "dy", FLOAT, NEEDED, P, O)
      PL_IN(GROUPED_BIAS_GRAD, OFFSETS, "offsets", I32, NEEDED, EXPERT_ENDS, ONE)
      PL_IN(GROUPED_BIAS_GRAD, DB, "db", FLOAT, IN_PLACE, EO, ONE),
      PL_OUT(GROUPED_BIAS_GRAD, DB, "db", FLOAT, IN_PLACE, EO, ONE))

PL_OP(BIAS_GRAD, bias_grad, ROWS, ALONE, "db (=|+=) sum over rows of dy",
      PL_IN(BIAS_GRAD, DY, "dy", FLOAT, NEEDED, N, O)
      PL_IN(BIAS_GRAD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(BIAS_GRAD, DB, "db", FLOAT, IN_PLACE, O, ONE),
      PL_OUT(BIAS_GRAD, DB, "db", FLOAT, IN_PLACE, O, ONE))
PL_SCRATCH(BIAS_GRAD, NULL, pl_ws_cuda_bias_grad)

PL_OP(RMSNORM_BWD, rmsnorm_bwd, ROWS, ALONE,
      "with xh = x*rstd, g = dy*w: d = rstd*(g - xh*mean(g*xh)); dx (=|+=) d if there is a dx; "
      "dw (=|+=) sum(dy*xh) if there is a dw. attr.accumulate is dw's, attr.add_dx says += for dx; "
      "dx may be dy itself (in place, add_dx 0)",
      PL_IN(RMSNORM_BWD, DY, "dy", FLOAT, NEEDED, N, C)
      PL_IN(RMSNORM_BWD, X, "x", FLOAT, NEEDED, N, C)
      PL_IN(RMSNORM_BWD, W, "w", FLOAT, NEEDED, C, ONE)
      PL_IN(RMSNORM_BWD, RSTD, "rstd", F32, NEEDED, N, ONE)
      PL_IN(RMSNORM_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(RMSNORM_BWD, DX, "dx", FLOAT, MAYBE_IN_PLACE, N, C)
      PL_IN(RMSNORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, C, ONE),
      PL_OUT(RMSNORM_BWD, DX, "dx", FLOAT, OPTIONAL, N, C)
      PL_OUT(RMSNORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, C, ONE))
PL_SCRATCH(RMSNORM_BWD, pl_ws_rmsnorm_bwd, pl_ws_cuda_rmsnorm_bwd)

PL_OP(QK_NORM_BWD, qk_norm_bwd, ROWS, ALONE,
      "the same per head, dy turned into dx in place; dw summed over tokens and heads",
      PL_IN(QK_NORM_BWD, DY, "dy", FLOAT, IN_PLACE, N, HD)
      PL_IN(QK_NORM_BWD, X, "x", FLOAT, NEEDED, N, HD)
      PL_IN(QK_NORM_BWD, W, "w", FLOAT, OPTIONAL, D, ONE)
      PL_IN(QK_NORM_BWD, RSTD, "rstd", F32, NEEDED, N, H)
      PL_IN(QK_NORM_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(QK_NORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, D, ONE),
      PL_OUT(QK_NORM_BWD, DY, "dy", FLOAT, IN_PLACE, N, HD)
      PL_OUT(QK_NORM_BWD, DW, "dw", FLOAT, MAYBE_IN_PLACE, D, ONE))
PL_SCRATCH(QK_NORM_BWD, pl_ws_qk_norm_bwd, pl_ws_cuda_qk_norm_bwd)

PL_OP(ATTENTION_BWD, attention_bwd, ATTENTION, ALONE,
      "the gradient of attention; with sinks it is the same, since they are in lse",
      PL_IN(ATTENTION_BWD, Q, "q", FLOAT, NEEDED, N, HD)
      PL_IN(ATTENTION_BWD, K, "k", FLOAT, NEEDED, N, GD)
      PL_IN(ATTENTION_BWD, V, "v", FLOAT, NEEDED, N, GD)
      PL_IN(ATTENTION_BWD, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(ATTENTION_BWD, LSE, "lse", F32, NEEDED, N, H)
      PL_IN(ATTENTION_BWD, DO, "do", FLOAT, NEEDED, N, HD)
      PL_IN(ATTENTION_BWD, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(ATTENTION_BWD, WS, "ws", U8, SCRATCH, ANY, ONE),
      PL_OUT(ATTENTION_BWD, DQ, "dq", FLOAT, NEEDED, N, HD)
      PL_OUT(ATTENTION_BWD, DK, "dk", FLOAT, NEEDED, N, GD)
      PL_OUT(ATTENTION_BWD, DV, "dv", FLOAT, NEEDED, N, GD))
PL_FLOPS(ATTENTION_BWD, 5, keys_seen)
PL_SCRATCH(ATTENTION_BWD, pl_ws_attention_bwd, pl_ws_cuda_attention_bwd)

PL_OP(SINK_BWD, sink_bwd, ROWS, ALONE,
      "dsinks[h] (=|+=) -sum over i of exp(sinks[h] - lse[i,h]) * the dot product of do[i] and "
      "o[i] in head h",
      PL_IN(SINK_BWD, O, "o", FLOAT, NEEDED, N, HD)
      PL_IN(SINK_BWD, DO, "do", FLOAT, NEEDED, N, HD)
      PL_IN(SINK_BWD, LSE, "lse", F32, NEEDED, N, H)
      PL_IN(SINK_BWD, SINKS, "sinks", FLOAT, NEEDED, H, ONE)
      PL_IN(SINK_BWD, WS, "ws", U8, SCRATCH, ANY, ONE)
      PL_IN(SINK_BWD, DSINKS, "dsinks", FLOAT, IN_PLACE, H, ONE),
      PL_OUT(SINK_BWD, DSINKS, "dsinks", FLOAT, IN_PLACE, H, ONE))
PL_SCRATCH(SINK_BWD, pl_ws_sink_bwd, pl_ws_sink_bwd)

PL_OP(SWIGLU_BWD, swiglu_bwd, ROWS, ALONE, "gu becomes d gu; m as in swiglu, may be dm itself",
      PL_IN(SWIGLU_BWD, GU, "gu", FLOAT, IN_PLACE, N, F2)
      PL_IN(SWIGLU_BWD, DM, "dm", FLOAT, NEEDED, N, F)
      PL_IN(SWIGLU_BWD, M, "m", FLOAT, MAYBE_IN_PLACE, N, F),
      PL_OUT(SWIGLU_BWD, GU, "gu", FLOAT, IN_PLACE, N, F2)
      PL_OUT(SWIGLU_BWD, M, "m", FLOAT, OPTIONAL, N, F))
PL_TRAFFIC(SWIGLU_BWD, 1.25)

PL_OP(GEGLU_BWD, geglu_bwd, ROWS, ALONE, "gu becomes d gu; m as in geglu, may be dm itself",
      PL_IN(GEGLU_BWD, GU, "gu", FLOAT, IN_PLACE, N, F2)
      PL_IN(GEGLU_BWD, DM, "dm", FLOAT, NEEDED, N, F)
      PL_IN(GEGLU_BWD, M, "m", FLOAT, MAYBE_IN_PLACE, N, F),
      PL_OUT(GEGLU_BWD, GU, "gu", FLOAT, IN_PLACE, N, F2)
      PL_OUT(GEGLU_BWD, M, "m", FLOAT, OPTIONAL, N, F))
PL_TRAFFIC(GEGLU_BWD, 1.25)

PL_OP(DROPOUT_BWD, dropout_bwd, ROWS, ALONE, "dx += d * keep / (1-p), the mask of dropout",
      PL_IN(DROPOUT_BWD, DX, "dx", FLOAT, IN_PLACE, N, K)
      PL_IN(DROPOUT_BWD, D, "d", FLOAT, NEEDED, N, K)
      PL_IN(DROPOUT_BWD, OFFSETS, "offsets", I32, NEEDED, ENDS, ONE)
      PL_IN(DROPOUT_BWD, SAMPLE, "sample", U64, NEEDED, B, ONE),
      PL_OUT(DROPOUT_BWD, DX, "dx", FLOAT, IN_PLACE, N, K))

PL_OP(EMBED_BWD, embed_bwd, ROWS, ALONE,
      "dW (=|+=) rows of dx summed by id, in token order; order: the tokens by ascending id, those "
      "of one id in token order, times attr.scale where that is not 0. Row attr.padding_idx gets "
      "nothing, as in nn.Embedding",
      PL_IN(EMBED_BWD, IDS, "ids", I32, NEEDED, N, ONE)
      PL_IN(EMBED_BWD, ORDER, "order", I32, NEEDED, N, ONE)
      PL_IN(EMBED_BWD, DX, "dx", FLOAT, NEEDED, N, C)
      PL_IN(EMBED_BWD, DW, "dW", FLOAT, IN_PLACE, V, C),
      PL_OUT(EMBED_BWD, DW, "dW", FLOAT, IN_PLACE, V, C))
PL_TRAFFIC(EMBED_BWD, 2)

PL_OP(SQUARE_SUM, square_sum, UPDATE, TOGETHER,
      "partial = sum(g^2) in f64; with attr.block_rows of each block of so many rows",
      PL_IN(SQUARE_SUM, G, "g", FLOAT, NEEDED, O, K)
      PL_IN(SQUARE_SUM, PARTIAL, "partial", F64, IN_PLACE, ANY, ONE)
      PL_IN(SQUARE_SUM, WS, "ws", U8, SCRATCH, ANY, ONE),
      PL_OUT(SQUARE_SUM, PARTIAL, "partial", F64, IN_PLACE, ANY, ONE))
PL_SCRATCH(SQUARE_SUM, pl_ws_square_sum, pl_ws_cuda_square_sum)
PL_TRAFFIC(SQUARE_SUM, 2.25)

PL_OP(CLIP_SCALE, clip_scale, UPDATE, ALONE,
      "clip[0] = sqrt(sum partials)/S, S = 2^batch.loss_exponent; "
      "clip[1] = min(1, max_norm/(clip[0]+1e-6))/S; 1/S if max_norm 0; "
      "NaN when clip[0] or loss[0] is not finite, and for good: a NaN that clip[1] holds already "
      "stays, so that no update follows a step that was lost before the host knows of it",
      PL_IN(CLIP_SCALE, PARTIALS, "partials", F64, NEEDED, M, ONE)
      PL_IN(CLIP_SCALE, LOSS, "loss", F64, NEEDED, TWO, ONE)
      PL_IN(CLIP_SCALE, CLIP, "clip", F64, IN_PLACE, TWO, ONE),
      PL_OUT(CLIP_SCALE, CLIP, "clip", F64, IN_PLACE, TWO, ONE))

PL_OP(ADAMW, adamw, UPDATE, TOGETHER,
      "PyTorch's AdamW with g = clip[1]*grad; p in fp32 is master when there is one, which also "
      "writes w; without one a bf16 w rounds stochastically by (seed, step, tensor, element), and "
      "so do states in bf16, each by numbers of its own. "
      "All updates leave every operand untouched where clip[1] is NaN",
      PL_IN(ADAMW, W, "w", FLOAT, IN_PLACE, O, K)
      PL_IN(ADAMW, G, "g", FLOAT, NEEDED, O, K)
      PL_IN(ADAMW, M, "m", FLOAT, IN_PLACE, O, K)
      PL_IN(ADAMW, V, "v", FLOAT, IN_PLACE, O, K)
      PL_IN(ADAMW, CLIP, "clip", F64, NEEDED, TWO, ONE)
      PL_IN(ADAMW, MASTER, "master", F32, MAYBE_IN_PLACE, O, K),
      PL_OUT(ADAMW, W, "w", FLOAT, IN_PLACE, O, K)
      PL_OUT(ADAMW, M, "m", FLOAT, IN_PLACE, O, K)
      PL_OUT(ADAMW, V, "v", FLOAT, IN_PLACE, O, K)
      PL_OUT(ADAMW, MASTER, "master", F32, MAYBE_IN_PLACE, O, K))

PL_OP(ADAMW_8BIT, adamw_8bit, UPDATE, TOGETHER,
      "the same with m and v as 8-bit codes and an absmax per block of 256 of the flattened "
      "window, or in fp32 where the absmax are absent; decays after the update. Matrices are whole "
      "rows",
      PL_IN(ADAMW_8BIT, W, "w", FLOAT, IN_PLACE, O, K)
      PL_IN(ADAMW_8BIT, G, "g", FLOAT, NEEDED, O, K)
      PL_IN(ADAMW_8BIT, M, "m", CODED, IN_PLACE, O, K)
      PL_IN(ADAMW_8BIT, V, "v", CODED, IN_PLACE, O, K)
      PL_IN(ADAMW_8BIT, CLIP, "clip", F64, NEEDED, TWO, ONE)
      PL_IN(ADAMW_8BIT, M_ABSMAX, "m_absmax", F32, MAYBE_IN_PLACE, STATES, ONE)
      PL_IN(ADAMW_8BIT, V_ABSMAX, "v_absmax", F32, MAYBE_IN_PLACE, STATES, ONE)
      PL_IN(ADAMW_8BIT, MASTER, "master", F32, MAYBE_IN_PLACE, O, K),
      PL_OUT(ADAMW_8BIT, W, "w", FLOAT, IN_PLACE, O, K)
      PL_OUT(ADAMW_8BIT, M, "m", CODED, IN_PLACE, O, K)
      PL_OUT(ADAMW_8BIT, V, "v", CODED, IN_PLACE, O, K)
      PL_OUT(ADAMW_8BIT, M_ABSMAX, "m_absmax", F32, MAYBE_IN_PLACE, STATES, ONE)
      PL_OUT(ADAMW_8BIT, V_ABSMAX, "v_absmax", F32, MAYBE_IN_PLACE, STATES, ONE)
      PL_OUT(ADAMW_8BIT, MASTER, "master", F32, MAYBE_IN_PLACE, O, K))
PL_TRAFFIC(ADAMW_8BIT, 2.5)

PL_OP(SGD, sgd, UPDATE, TOGETHER, "w -= lr * (clip[1]*g + wd*w)",
      PL_IN(SGD, W, "w", FLOAT, IN_PLACE, O, K)
      PL_IN(SGD, G, "g", FLOAT, NEEDED, O, K)
      PL_IN(SGD, CLIP, "clip", F64, NEEDED, TWO, ONE)
      PL_IN(SGD, MASTER, "master", F32, MAYBE_IN_PLACE, O, K),
      PL_OUT(SGD, W, "w", FLOAT, IN_PLACE, O, K)
      PL_OUT(SGD, MASTER, "master", F32, MAYBE_IN_PLACE, O, K))

PL_OP(LION, lion, UPDATE, TOGETHER,
      "w -= lr * (sign(beta1*m + (1-beta1)*g) + wd*w), then m = beta2*m + (1-beta2)*g, with "
      "g = clip[1]*grad (arXiv 2302.06675, program 1)",
      PL_IN(LION, W, "w", FLOAT, IN_PLACE, O, K)
      PL_IN(LION, G, "g", FLOAT, NEEDED, O, K)
      PL_IN(LION, M, "m", FLOAT, IN_PLACE, O, K)
      PL_IN(LION, CLIP, "clip", F64, NEEDED, TWO, ONE)
      PL_IN(LION, MASTER, "master", F32, MAYBE_IN_PLACE, O, K),
      PL_OUT(LION, W, "w", FLOAT, IN_PLACE, O, K)
      PL_OUT(LION, M, "m", FLOAT, IN_PLACE, O, K)
      PL_OUT(LION, MASTER, "master", F32, MAYBE_IN_PLACE, O, K))

PL_OP(COPY_IN, copy_in, COPY, ALONE,
      "dst = src, host to device; with attr.not_first not in the first micro-batch of a step, "
      "where what follows overwrites dst",
      PL_IN(COPY_IN, SRC, "src", ANY, NEEDED, O, K), PL_OUT(COPY_IN, DST, "dst", ANY, NEEDED, O, K))

PL_OP(COPY_OUT, copy_out, COPY, ALONE, "the same, device to host",
      PL_IN(COPY_OUT, SRC, "src", ANY, NEEDED, O, K),
      PL_OUT(COPY_OUT, DST, "dst", ANY, NEEDED, O, K))

PL_OP(ZERO, zero, ROWS, ALONE, "x = 0",
      /* no input */,
      PL_OUT(ZERO, X, "x", ANY, NEEDED, O, K))

PL_OP(SPREAD, spread, RANKS, ALONE,
      "the rows of g that are another rank's (shard.h) go to it; parts: those that are this one's, "
      "of every other rank, one rank after another; absent where none are. With attr.piece_rows so "
      "many rows of every rank's, from attr.piece_row0 of them on",
      PL_IN(SPREAD, G, "g", REAL, NEEDED, O, K),
      PL_OUT(SPREAD, PARTS, "parts", REAL, OPTIONAL, ANY, K))

PL_OP(SHARE, share, RANKS, ALONE,
      "x: the rows of every rank (shard.h) come from the rank that has them",
      PL_IN(SHARE, X, "x", ANY, IN_PLACE, O, K), PL_OUT(SHARE, X, "x", ANY, IN_PLACE, O, K))

PL_OP(FETCH, fetch, RANKS, ALONE,
      "x: all rows of a matrix; part: those that are this rank's (shard.h), absent where none are",
      PL_IN(FETCH, PART, "part", ANY, OPTIONAL, ANY, K), PL_OUT(FETCH, X, "x", ANY, NEEDED, O, K))

PL_OP(FOLD, fold, ROWS, ALONE,
      "g (=|+=) the parts of the ranks, one after another, rounded each time: of those that have a "
      "micro-batch (batch.contributors), or with attr.all_ranks of all. own: the part of this "
      "rank, which is number attr.rank of them; absent: it is among parts, or what g holds. Parts "
      "in fp32 of a g in bf16 are added in fp32 and rounded stochastically by (seed, step, tensor, "
      "element, micro-batch), the last being its number in the step",
      PL_IN(FOLD, PARTS, "parts", REAL, NEEDED, ANY, K)
      PL_IN(FOLD, G, "g", REAL, IN_PLACE, O, K)
      PL_IN(FOLD, OWN, "own", REAL, OPTIONAL, O, K),
      PL_OUT(FOLD, G, "g", REAL, IN_PLACE, O, K))

/* START and STAGE_* are in no plan: they read and write job tensors and staging, and
 * runtime/checkpoint calls them. */
PL_OP(START, start, ROWS, ALONE,
      "w = starting values: attr.spread, or element i random by (seed, attr.site, attr.stream, i), "
      "normal with that deviation or uniform within +-attr.spread; w begins with the element "
      "attr.first_element, a multiple of 4",
      /* no input */,
      PL_OUT(START, W, "w", FLOAT, NEEDED, O, K))

PL_OP(QUANT4, quant4, ROWS, ALONE,
      "absmax of each block of 64 of x, and the codes of x / absmax; an x without memory is what "
      "start would give it",
      PL_IN(QUANT4, X, "x", FLOAT, OPTIONAL, O, K),
      PL_OUT(QUANT4, CODES, "codes", U8, NEEDED, CODES, ONE)
      PL_OUT(QUANT4, ABSMAX, "absmax", F32, NEEDED, BLOCKS, ONE))

PL_OP(NEST4, nest4, ROWS, ALONE,
      "nested = the largest |absmax - attr.offset| of each 256; absmax8 = the codes of "
      "(absmax - attr.offset) / nested",
      PL_IN(NEST4, ABSMAX, "absmax", F32, NEEDED, BLOCKS, ONE),
      PL_OUT(NEST4, ABSMAX8, "absmax8", U8, NEEDED, BLOCKS, ONE)
      PL_OUT(NEST4, NESTED, "nested", F32, NEEDED, NESTS, ONE))

PL_OP(NARROW, narrow, ROWS, TOGETHER,
      "y = x, rounded, in the columns from attr.first_element on, and 0 in the others",
      PL_IN(NARROW, X, "x", FLOAT, NEEDED, O, K),
      PL_OUT(NARROW, Y, "y", FLOAT, NEEDED, O, C))

PL_OP(STAGE_IN, stage_in, ROWS, NO_KERNEL,
      "gives the buffer that files are read through its place in the plan; the checkpoint room "
      "does the copying",
      PL_IN(STAGE_IN, STAGING, "staging", ANY, NEEDED, ANY, ANY),
      /* no output */)

PL_OP(STAGE_OUT, stage_out, ROWS, NO_KERNEL, "the same of files that are written",
      PL_IN(STAGE_OUT, STAGING, "staging", ANY, NEEDED, ANY, ANY),
      /* no output */)

#ifdef PL_OP_ROWS_OF_A_TEST /* a test proves with these that a row is enough */
#include PL_OP_ROWS_OF_A_TEST
#endif
/* clang-format on */

#undef PL_OP
#undef PL_IN
#undef PL_OUT
#undef PL_FLOPS
#undef PL_SCRATCH
#undef PL_GRADIENT
#undef PL_TRAFFIC
