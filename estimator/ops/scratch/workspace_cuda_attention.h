/* workspace_cuda_attention.h - scratch of ATTENTION_BWD on a GPU, as planner and kernels see it.
 *
 * The workspace has the stats of every query and head, and, where the attributes have `key_parts`,
 * the sums of dk and of dv of each part, fp32: [2][parts][N][G*D].
 *   W1  the number of parts depends on the tokens of the plan alone, neither on those of a
 *       micro-batch nor on the GPU, so the same job sums in the same order wherever it runs */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_ATTENTION_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_ATTENTION_H

#include "estimator/ops/scratch/scratch_bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys of the tile that a block owns, and the blocks that are wanted: four for each multiprocessor
 * of the large GPUs, which have room for two at a time and whose blocks differ in length. */
#define PL_CUDA_KEY_TILE   UINT64_C(64)
#define PL_CUDA_KEY_BLOCKS UINT64_C(512)

/* Returns the number of parts that the query heads of a kv head are divided into for dk and dv: as
 * many as give every GPU enough blocks, each of a head or more. 0: they are not divided, since
 * tokens give enough blocks, or since the back-end is another one. */
uint32_t pl_attention_key_parts(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t tokens);
/* Returns the query heads of a part; the last part may have fewer. */
uint32_t pl_attention_part_heads(uint32_t group, uint32_t parts);
/* Returns where the sums of the parts begin in the workspace: after the stats. */
uint64_t pl_attention_sums_at(uint64_t tokens, uint64_t heads);

#ifdef __cplusplus
}
#endif

#endif
