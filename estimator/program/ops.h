/* ops.h - the op kinds of a step program, one row each: operands, and what the op computes.
 *
 * X(KIND, "name", inputs, outputs)
 * Operand roles are listed in order; `?` may be absent (id PL_NONE); `!` is updated in place and
 * stands in both lists; `+=` accumulates as attr.accumulate says. Shapes: N tokens of the
 * micro-batch, T supervised tokens, B sequences, C hidden, V vocabulary, H/G query/kv heads, D head
 * size. Matrices are row-major; weights are [out,in] as in the files. `ws` is a workspace of
 * pl_op_workspace_bytes(). All reductions run in fp32 or wider, in an order that does not depend on
 * timing. All kernels must accept 0 rows. */
#ifndef PL_ESTIMATOR_PROGRAM_OPS_H
#define PL_ESTIMATOR_PROGRAM_OPS_H

#define PL_OP_MAP(X)                                                                               \
    /* x[i] = W[ids[i]] */                                                                         \
    X(EMBED, "embed", "ids[N] W[V,C]", "x[N,C]")                                                   \
    /* rstd = 1/sqrt(mean(x^2)+eps); y = x * rstd * w */                                           \
    X(RMSNORM, "rmsnorm", "x[N,C] w[C]", "y[N,C] rstd[N]f32")                                      \
    /* x += r; then as rmsnorm */                                                                  \
    X(ADD_RMSNORM, "add_rmsnorm", "x[N,C]! r[N,C] w[C]", "x[N,C]! y[N,C] rstd[N]f32")              \
    /* y = x * rstd * w with a kept rstd */                                                        \
    X(RENORM, "renorm", "x[N,C] w[C] rstd[N]f32", "y[N,C]")                                        \
    /* w = table[code] * absmax of its block, over the n elements of w, whose rows lie one after   \
     * another. absmax: one a block; with absmax8 one for every 256 blocks, and the offset */      \
    X(DEQUANT4, "dequant4", "codes[n/2]u8 absmax[..]f32 absmax8?[n/64]u8 offset?[1]f32", "w[O,K]") \
    /* y (=|+=) alpha * x W^T + bias */                                                            \
    X(LINEAR, "linear", "x[N,K] W[O,K] bias?[O] ws? y?[N,O]!", "y[N,O]")                           \
    /* per head h: rstd[i,h] = 1/sqrt(mean(x^2)+eps); y = x * rstd * w; heads = cols / D */        \
    X(QK_NORM, "qk_norm", "x[N,H*D] w[D]", "y[N,H*D] rstd[N,H]f32")                                \
    /* rotates pairs (i, i+rot/2) of each head by pos; attr.inverse turns back (= the gradient);   \
     * table2, where present, serves micro-batches with a sequence above attr.long_from */         \
    X(ROPE, "rope", "x[N,H*D]! pos[N]i32 table[S,rot/2,2]f32 table2?[S,rot/2,2]f32", "x[N,H*D]!")  \
    /* causal, per sequence, window positions back; lse = log-sum-exp of the scaled scores */      \
    X(ATTENTION, "attention", "q[N,H*D] k[N,G*D] v[N,G*D] offsets[B+1]i32 ws?",                    \
      "o[N,H*D] lse[N,H]f32")                                                                      \
    /* keys and values of position pos[i] of sequence s become row s * attr.context + pos[i] of    \
     * the cache; the positions of a sequence's rows follow each other */                          \
    X(KV_APPEND, "kv_append",                                                                      \
      "k[N,G*D] v[N,G*D] pos[N]i32 offsets[B+1]i32 kc[R,G*D]! vc[R,G*D]!",                         \
      "kc[R,G*D]! vc[R,G*D]!")                                                                     \
    /* query i of sequence s sees rows s * attr.context + j of the cache, j <= pos[i], window      \
     * positions back; pos as for KV_APPEND */                                                     \
    X(ATTENTION_CACHED, "attention_cached",                                                        \
      "q[N,H*D] kc[R,G*D] vc[R,G*D] pos[N]i32 offsets[B+1]i32 ws?", "o[N,H*D]")                    \
    /* m = silu(gu[:, :F]) * gu[:, F:] */                                                          \
    X(SWIGLU, "swiglu", "gu[N,2F]", "m[N,F]")                                                      \
    /* y = x * keep / (1-p); keep is a function of (seed, step, sample, position, site, column) */ \
    X(DROPOUT, "dropout", "x[N,K] offsets[B+1]i32 sample[B]u64", "y[N,K]")                         \
    /* xs[t] = x[rows[t]] + r[rows[t]] */                                                          \
    X(GATHER_ADD, "gather_add", "x[N,C] r[N,C] rows[T]i32", "xs[T,C]")                             \
    /* adds sum(lse - logit[target]) to loss[0]; with attr.gradient logits become d loss/d logits  \
     * times batch.loss_scale. rows: those of the chunk */                                         \
    X(CROSS_ENTROPY, "cross_entropy", "logits[T,V]! targets[T]i32 loss[2]f64! ws",                 \
      "logits[T,V]! loss[2]f64!")                                                                  \
    /* dx = 0, then dx[rows[t]] = dxs[t] */                                                        \
    X(SCATTER_ROWS, "scatter_rows", "dxs[T,C] rows[T]i32", "dx[N,C]")                              \
    /* dx (=|+=) alpha * dy W */                                                                   \
    X(LINEAR_DX, "linear_dx", "dy[N,O] W[O,K] ws? dx?[N,K]!", "dx[N,K]")                           \
    /* dW (=|+=) alpha * dy^T x */                                                                 \
    X(LINEAR_DW, "linear_dw", "dy[N,O] x[N,K] ws? dW[O,K]!", "dW[O,K]!")                           \
    /* db (=|+=) sum over rows of dy */                                                            \
    X(BIAS_GRAD, "bias_grad", "dy[N,O] ws db[O]!", "db[O]!")                                       \
    /* with xh = x*rstd, g = dy*w: d = rstd*(g - xh*mean(g*xh)); dx (=|+=) d if there is a dx;     \
     * dw (=|+=) sum(dy*xh) if there is a dw. attr.accumulate is dw's, attr.add_dx says += for dx; \
     * dx may be dy itself (in place, add_dx 0) */                                                 \
    X(RMSNORM_BWD, "rmsnorm_bwd", "dy[N,C] x[N,C] w[C] rstd[N]f32 ws? dx?[N,C]! dw?[C]!",          \
      "dx?[N,C]! dw?[C]!")                                                                         \
    /* the same per head, dy turned into dx in place; dw summed over tokens and heads */           \
    X(QK_NORM_BWD, "qk_norm_bwd", "dy[N,H*D]! x[N,H*D] w[D] rstd[N,H]f32 ws? dw?[D]!",             \
      "dy[N,H*D]! dw?[D]!")                                                                        \
    X(ATTENTION_BWD, "attention_bwd",                                                              \
      "q[N,H*D] k[N,G*D] v[N,G*D] o[N,H*D] lse[N,H]f32 do[N,H*D] offsets[B+1]i32 ws",              \
      "dq[N,H*D] dk[N,G*D] dv[N,G*D]")                                                             \
    /* gu becomes d gu in place */                                                                 \
    X(SWIGLU_BWD, "swiglu_bwd", "gu[N,2F]! dm[N,F]", "gu[N,2F]!")                                  \
    /* dx += d * keep / (1-p), the mask of DROPOUT */                                              \
    X(DROPOUT_BWD, "dropout_bwd", "dx[N,K]! d[N,K] offsets[B+1]i32 sample[B]u64", "dx[N,K]!")      \
    /* dW (=|+=) rows of dx summed by id, in token order; order: the tokens by ascending id, those \
     * of one id in token order. Row attr.padding_idx gets nothing, as in nn.Embedding */          \
    X(EMBED_BWD, "embed_bwd", "ids[N]i32 order[N]i32 dx[N,C] dW[V,C]!", "dW[V,C]!")                \
    /* partial = sum(g^2) in f64 */                                                                \
    X(SQUARE_SUM, "square_sum", "g[..] partial[1]f64! ws", "partial[1]f64!")                       \
    /* clip[0] = sqrt(sum partials); clip[1] = min(1, max_norm/(clip[0]+1e-6)); 1 if max_norm 0;   \
     * NaN when clip[0] or loss[0] is not finite, and for good: a NaN that clip[1] holds already   \
     * stays, so that no update follows a step that was lost before the host knows of it */        \
    X(CLIP_SCALE, "clip_scale", "partials[M]f64 loss[2]f64 clip[2]f64!", "clip[2]f64!")            \
    /* PyTorch's AdamW with g = clip[1]*grad; p in fp32 is master when there is one, which also    \
     * writes w; without one a bf16 w rounds stochastically by (seed, step, tensor, element).      \
     * ADAMW, ADAMW_8BIT and SGD leave every operand untouched where clip[1] is NaN */             \
    X(ADAMW, "adamw", "w[..]! g[..] m[..]f32! v[..]f32! clip[2]f64 master?[..]f32!",               \
      "w[..]! m[..]f32! v[..]f32! master?[..]f32!")                                                \
    /* the same with m and v as 8-bit codes and an absmax per block of 256 of the flattened window,\
     * or in fp32 where the absmax are absent; decays after the update. Matrices are whole rows */ \
    X(ADAMW_8BIT, "adamw_8bit",                                                                    \
      "w[..]! g[..] m[..]! v[..]! clip[2]f64 m_absmax?[n/256]f32! v_absmax?[n/256]f32! "           \
      "master?[..]f32!",                                                                           \
      "w[..]! m[..]! v[..]! m_absmax?[n/256]f32! v_absmax?[n/256]f32! master?[..]f32!")            \
    /* w -= lr * (clip[1]*g + wd*w) */                                                             \
    X(SGD, "sgd", "w[..]! g[..] clip[2]f64 master?[..]f32!", "w[..]! master?[..]f32!")             \
    /* dst = src, host to device and device to host; with attr.not_first not in the first          \
     * micro-batch of a step, where what follows overwrites dst */                                 \
    X(COPY_IN, "copy_in", "src[..]", "dst[..]")                                                    \
    X(COPY_OUT, "copy_out", "src[..]", "dst[..]")                                                  \
    /* w = starting values: attr.spread, or element i random by (seed, attr.site, attr.stream, i), \
     * normal with that deviation or uniform within +-attr.spread; w begins with the element       \
     * attr.first_element, a multiple of 4. This and the next two are no part of a plan: what they \
     * read and write are job tensors and staging, and the checkpoint room calls them */           \
    X(START, "start", "", "w[..]")                                                                 \
    /* absmax of each block of 64 of x, and the codes of x / absmax; an x without memory is what   \
     * START would give it */                                                                      \
    X(QUANT4, "quant4", "x?[..]", "codes[n/2]u8 absmax[n/64]f32")                                  \
    /* nested = the largest |absmax - attr.offset| of each 256; absmax8 = the codes of             \
     * (absmax - attr.offset) / nested */                                                          \
    X(NEST4, "nest4", "absmax[n/64]f32", "absmax8[n/64]u8 nested[n/16384]f32")                     \
    /* load and save stream every tensor through one staging buffer; the checkpoint room does the  \
     * copying, these rows only give the buffer its place in the plan */                           \
    X(STAGE_IN, "stage_in", "staging[]", "")                                                       \
    X(STAGE_OUT, "stage_out", "staging[]", "")

enum pl_op_kind {
#define X(kind, name, in, out) PL_OP_##kind,
    PL_OP_MAP(X)
#undef X
        PL_OP_COUNT
};

#endif
