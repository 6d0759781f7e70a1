/* spec.h - the specification of a run: the job as it was written, and the same job with every key
 * decided that it leaves open.
 *
 * In: a job, and facts about it as they become known.  Out: the job as it runs.
 * Needs: job_values, job_text. No I/O.
 *   S1  the job that was written is never changed; the one that runs follows from it and from the
 *       facts alone, so a fact that is taken back leaves nothing
 *   S2  what a decision says of a key that the job has set counts for nothing; only ranks that were
 *       started, a checkpoint that is resumed and a smaller micro-batch change such a key
 * pl_resolve() is where a fact becomes the value of a key.
 * To ask about other facts, copy the specification, change one and resolve the copy.
 * Use: struct pl_spec s; pl_spec_init(&s, &job); s.facts.device = PL_DEVICE_CPU; pl_resolve(&s);
 *      ... s.job.device ... */
#ifndef PL_ESTIMATOR_CONFIG_SPEC_H
#define PL_ESTIMATOR_CONFIG_SPEC_H

#include "estimator/config/job.h"

/* The facts that a resumed checkpoint states. */
struct pl_kept {
    bool is;
    bool has_recovered;         /* its micro-batch was made smaller than the configuration asks */
    uint32_t batch_size;        /* in use */
    uint32_t loss_chunk_tokens; /* in use; 0: not recorded */
    uint64_t samples;           /* of a step */
    /* Settings as they were decided; borrowed; NULL: not recorded. */
    const char *gradient_dtype, *mlp_chunk_tokens, *unpack_buffer, *keep_first_pass,
        *precompute_reference;
};

/* The facts that the directory of an adapter states, to generate with it. */
struct pl_adapter_facts {
    bool are;
    uint32_t r;
    double alpha;
    bool use_rslora;
    const struct pl_job *names; /* borrowed; the lists that it gives are those of the adapter */
};

/* The keys that a search chooses (question.h), each as a value of its key, which may be `auto`. It
 * has no padding, so that two are compared as bytes and ranks exchange it. */
struct pl_choices {
    uint32_t gradient_checkpointing; /* PL_RECOMPUTE_* */
    uint32_t optimizer_in_backward;  /* PL_TRI_* */
    uint32_t mlp_chunk_tokens;
    uint32_t keep_first_pass; /* PL_TRI_* */
    uint64_t unpack_buffer;
    uint64_t keep_unpacked; /* PL_TRI_*, in as many bits as leave no padding */
};
#define PL_CHOICES_OPEN                                                                            \
    ((struct pl_choices){PL_RECOMPUTE_AUTO, PL_TRI_AUTO, PL_AUTO, PL_TRI_AUTO, PL_AUTO_BYTES,      \
                         PL_TRI_AUTO})

/* The decisions of a search, as they are for its micro-batch. */
struct pl_decided {
    bool are;
    bool one_micro_batch; /* a step that no key sizes is one */
    uint32_t batch_size;  /* of `batch_size: auto` */
    struct pl_choices choices;
    enum pl_dtype dtype; /* bf16, which `auto` is wherever it can be, is not written down */
};

/* The decisions that a program was built with. */
struct pl_built {
    bool is;
    bool has_masters, adapts_whole; /* lora_modules_to_save are trained */
    enum pl_dtype dtype, gradient_dtype, base_dtype;
    uint32_t loss_chunk_tokens, mlp_chunk_tokens;
    uint64_t unpack_bytes;
};

/* {0} with `sharding`, `device` and the two budgets open: nothing is known. */
struct pl_job_facts {
    /* the machine and the ranks */
    bool are_ranks;                    /* a launcher started `devices` of them */
    uint32_t local_rank;               /* of those on this machine */
    uint32_t devices;                  /* 0: as written */
    uint32_t device;                   /* PL_DEVICE_AUTO: as written */
    uint32_t threads;                  /* 0: as written */
    uint64_t vram_budget, vram_margin; /* PL_AUTO_BYTES: as written */
    bool names_budget; /* the memory is that of a GPU, or of vram_budget as it was written, and not
                        * what a machine happens to have free */
    /* generating */
    bool generates;
    bool is_stored_wide; /* the weights are fp32 */
    struct pl_adapter_facts adapter;
    /* the run that goes on, and its data */
    struct pl_kept kept;
    char chat_date[16]; /* "": as written; else the day that chats show */
    bool weighs_rows;   /* a row has a weight other than 1 */
    uint32_t samples;   /* of a step that no key sizes, as the rows ask for; 0: not decided */
    uint32_t precompute_reference; /* PL_TRI_*; AUTO: not decided */
    bool has_warmup;               /* it was decided */
    uint32_t warmup_steps;
    /* the plan */
    uint32_t cut_batch_size; /* a smaller micro-batch than was decided first; 0: none */
    uint64_t cut_samples;    /* of a step, which stays as it was */
    uint32_t sharding;       /* PL_SHARDING_AUTO: not decided */
    struct pl_decided decided;
    struct pl_built built;
};

struct pl_spec {
    const struct pl_job *asked; /* borrowed */
    struct pl_job_facts facts;
    struct pl_job job; /* as it runs; shallow: strings and lists are those of `asked` and of the
                        * facts, and it is never finished. A copy of the specification has to be
                        * resolved before its job is read */
};

/* Nothing is known: the job is the one that was written. */
void pl_spec_init(struct pl_spec *s, const struct pl_job *asked);
/* Makes s->job of what was asked and the facts. */
void pl_resolve(struct pl_spec *s);
/* Takes back what was decided of the plan, for micro-batches of so many samples in steps of so
 * many; resolved. */
void pl_spec_cut(struct pl_spec *s, uint32_t batch_size, uint64_t samples);
/* Writes decisions into a job with the same open keys: batch_size included, and global_batch_size
 * where no key sizes the step. */
void pl_job_settle(struct pl_job *job, const struct pl_decided *x);
/* The same for a plan of any micro-batch: a step that no key sizes stays open, but where it is one
 * micro-batch. */
void pl_job_settle_choices(struct pl_job *job, const struct pl_decided *x);
/* Writes down the micro-batch; a step that no key sizes keeps its samples, or follows from it. */
void pl_job_fix_batch(struct pl_job *job, uint32_t batch_size, bool keeps_step);

#endif
