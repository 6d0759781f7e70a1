#include "runtime/train/run_ops.h"

#include "runtime/session/arenas.h"

pl_err pl_run_inject(struct pl_run *r, struct pl_diag *d) {
    r->s.facts = (struct pl_oom_facts){.what = "a step's kernel (injected)",
                                       .requested_bytes = r->s.batch_arena.bytes,
                                       .free_bytes = pl_session_free_bytes(&r->s),
                                       .injected = true};
    return pl_diag_set(d, PL_ERR_DEVICE_OOM, "injected: out of memory in step %llu",
                       (unsigned long long)(r->state.step + 1));
}

/* True if device_oom@op=N strikes among the next n operations of the run; *before: how many run
 * before it. */
static bool op_fault_due(struct pl_run *r, uint32_t n, uint32_t *before) {
    struct pl_debug_fault *f = &r->op_fault;
    if (f->count == 0 || f->at <= r->ops_run || f->at > r->ops_run + n) return false;
    *before = (uint32_t)(f->at - r->ops_run - 1);
    f->at++;
    if (f->count != UINT64_MAX) f->count--;
    return true;
}

/* Op `first` fails; other ranks wait for what follows it, as after a failure of a kernel (E5 of
 * exec.h). */
static pl_err fail_op(struct pl_run *r, uint32_t first, uint32_t n, struct pl_diag *d) {
    struct pl_diag ignored = {0};
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    pl_err err = pl_run_inject(r, d);
    if (!r->s.comm) return err;
    exec->muted = true;
    (void)pl_exec_run(exec, first, n, &ignored);
    return err;
}

/* A library that has no memory for a product does not say how much it wanted. */
pl_err pl_run_ops(struct pl_run *r, pl_err before, const struct pl_phase_range *ops,
                  struct pl_diag *d) {
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    struct pl_diag ignored = {0}, *why = before == PL_ERR_OK ? d : &ignored;
    uint32_t n = ops->n_ops, until_fault;
    if (before != PL_ERR_OK && !r->s.comm) return before;
    if (before != PL_ERR_OK) exec->muted = true;
    if (before == PL_ERR_COMM_PEER_LOST) return before;
    const bool fails = op_fault_due(r, n, &until_fault);
    if (fails) n = until_fault;
    r->ops_run += n + fails;
    pl_err err = pl_exec_run(exec, ops->first_op, n, why);
    if (err == PL_ERR_OK && fails)
        err = fail_op(r, ops->first_op + n, ops->n_ops - n, why);
    else if (err == PL_ERR_DEVICE_OOM)
        r->s.facts = (struct pl_oom_facts){.what = "a step's kernel",
                                           .free_bytes = pl_session_free_bytes(&r->s)};
    return before == PL_ERR_OK ? err : before;
}

pl_err pl_run_drain(struct pl_run *r, struct pl_diag *d) {
    pl_err err = r->s.device->ops->sync ? r->s.device->ops->sync(r->s.device) : PL_ERR_OK;
    return err == PL_ERR_OK ? err : pl_diag_set(d, err, "the device did not recover");
}
