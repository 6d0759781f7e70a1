/* row_members.h - the members of a row that no format reads, as far as a hint needs them.
 *
 * In: the row as JSON.  Out: names, kinds of values, and the beginnings of values.  Needs:
 * json_scan.
 *   M1  at most PL_MEMBERS_MOST members are looked at, and names of less than PL_MEMBER_NAME bytes
 *   M2  names hold no control character and no byte that is special between quotes of a shell or of
 *       Python
 *   M3  names are compared by letters and digits alone, in either case
 * Use: struct pl_members m; if (pl_members_read(text, n, &m)) pl_member_pick(&m, names, kind); */
#ifndef PL_RUNTIME_DATA_ROW_MEMBERS_H
#define PL_RUNTIME_DATA_ROW_MEMBERS_H

#include "estimator/base/json_scan.h"

#define PL_MEMBERS_MOST 48
#define PL_MEMBER_NAME  64

struct pl_member {
    char name[PL_MEMBER_NAME];
    enum pl_scan_kind kind;
    enum pl_scan_kind first; /* kind of the first element of an array, or of the first value of an
                                object */
    bool numbered;           /* an object whose first key is a number */
    bool holds_chat;         /* an object with messages, or a string that may be a list of them */
    const char *role, *content; /* keys of the message at the beginning of an array; NULL = none */
};
struct pl_members {
    struct pl_member m[PL_MEMBERS_MOST];
    int n;
    bool all; /* the row has no other members */
};

/* False: the row is not an object, or cannot be read. */
bool pl_members_read(const char *text, size_t n, struct pl_members *out);
bool pl_member_named(const char *name, const char *other);
/* Returns the first member of this kind that has one of the names, which end with NULL, and is not
 * `taken` (nullable). NULL = none. */
const struct pl_member *pl_member_pick(const struct pl_members *r, const char *const *names,
                                       enum pl_scan_kind kind, const struct pl_member *taken);

/* True if the value at the cursor of s is a message: *role and *content are then its keys, else
 * NULL. */
bool pl_message_keys(struct pl_scan s, const char **role, const char **content);

#endif
