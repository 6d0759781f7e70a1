/* paths.h - the files that an entry of `datasets` names: a file, a directory, or a pattern.
 *
 * In: entries.  Out: an entry for every file, in the order of the entries, and of names in each.
 * Needs: job.
 *   F1  a path that exists is not read as a pattern; a pattern is looked for from the current
 *       directory, then from that of the YAML file, as other input paths are
 *   F2  a directory stands for its files whose names end as data files do, not for those below it
 * Use: pl_paths_expand(job, list, &files, &d); ... pl_paths_finish(&files); */
#ifndef PL_RUNTIME_DATA_PATHS_H
#define PL_RUNTIME_DATA_PATHS_H

#include "estimator/base/diag.h"
#include "estimator/config/job.h"

/* PL_ERR_DATA_FILE at the line of an entry that names no file. On failure *out is empty. The items
 * of *out own their paths; their columns are the entry's. */
pl_err pl_paths_expand(const struct pl_job *job, const struct pl_dataset_list *list,
                       struct pl_dataset_list *out, struct pl_diag *d);
void pl_paths_finish(struct pl_dataset_list *files); /* leaves {0} */

#endif
