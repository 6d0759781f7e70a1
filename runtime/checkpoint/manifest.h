/* manifest.h - which bytes the files of a directory hold, as trainer_state.json says it.
 *
 * In:    files as they are written, or as they lie there.
 * Out:   {"NAME": {"bytes": N, "xxh64": "..."}}; of a file that several ranks wrote (share.h)
 *        {"NAME": {"bytes": N, "pieces": [[END, "..."], ...]}}.
 * Needs: base (digest.h: XXH64 of the xxHash specification), read_file.h, jansson.
 * A digest detects damage, and not collisions made on purpose: 64 bits miss one change in 2^64, and
 * run at the speed of memory, where CRC-32 misses one in 2^32 and SHA-256 takes longer than the
 * disk. XXH64 of a file cannot be made of those of its parts, so each stretch that one rank wrote
 * has a digest of its own.
 *   M1  the digest is of the bytes that were handed to write(2), not of what a later read gives
 *   M2  pieces are in the order of the file, without a gap, and the last one ends where the file
 *       ends
 * Use: outbox.manifest = json_object(); ...; pl_manifest_check(files, dir, &d); */
#ifndef PL_RUNTIME_CHECKPOINT_MANIFEST_H
#define PL_RUNTIME_CHECKPOINT_MANIFEST_H

#include "estimator/base/diag.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_file_digest { /* of a whole file: its size, and XXH64 of seed 0 */
    uint64_t bytes, xxh64;
};

struct pl_file_piece { /* bytes [begin, end) of a file */
    uint64_t begin, end, xxh64;
};

#define PL_DIGEST_TEXT 17 /* sixteen digits of hex and a NUL */

char *pl_digest_text(uint64_t xxh64, char buf[PL_DIGEST_TEXT]);
/* Reads the whole file. PL_ERR_CHECKPOINT_FILE: it cannot be read, or is no regular file. */
pl_err pl_file_digest_read(const char *path, struct pl_file_digest *out, struct pl_diag *d);
pl_err pl_manifest_add(json_t *files, const char *name, const struct pl_file_digest *digest,
                       struct pl_diag *d);
/* Lists a file of pieces [n], n >= 1 (M2); one alone is listed as the file that it is. */
pl_err pl_manifest_add_pieces(json_t *files, const char *name, const struct pl_file_piece *pieces,
                              uint32_t n, struct pl_diag *d);
/* True if a file of it has pieces: versions before them cannot check it. */
bool pl_manifest_has_pieces(json_t *files);
/* Checks one entry of a manifest against the file of that name in `dir`. PL_ERR_CHECKPOINT_FILE: it
 * is missing or cannot be read; PL_ERR_CHECKPOINT_FORMAT: its bytes are others. */
pl_err pl_manifest_check_file(const char *dir, const char *name, const json_t *entry,
                              struct pl_diag *d);
/* Checks every entry; stops at the first that is wrong. */
pl_err pl_manifest_check(json_t *files, const char *dir, struct pl_diag *d);

#endif
