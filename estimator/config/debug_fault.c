#include "estimator/config/debug_fault.h"

#include "estimator/config/scalar.h"

#include <string.h>

static bool parse_count(const char *text, uint64_t *out) {
    return *text >= '0' && *text <= '9' && pl_scalar_int(text, out) == PL_INT_OK && *out > 0;
}

static bool parse_repeat(const char *text, uint64_t *out) {
    static const char count[] = "count=";
    if (strcmp(text, "forever") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    return strncmp(text, count, sizeof count - 1) == 0 && parse_count(text + sizeof count - 1, out);
}

bool pl_fault_parse(const char *text, struct pl_fault *out) {
    static const struct {
        const char *prefix;
        enum pl_fault_kind kind;
    } kinds[] = {
        {"device_oom@alloc=", PL_FAULT_DEVICE_OOM_ALLOC},
        {"device_oom@step=", PL_FAULT_DEVICE_OOM_STEP},
        {"overflow@step=", PL_FAULT_OVERFLOW_STEP},
        {"device_oom@op=", PL_FAULT_DEVICE_OOM_OP},
        {"pinned_oom@alloc=", PL_FAULT_PINNED_OOM_ALLOC},
        {"disk_full@write=", PL_FAULT_DISK_FULL_WRITE},
        {"host_oom@alloc=", PL_FAULT_HOST_OOM_ALLOC},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t prefix = strlen(kinds[i].prefix), digits = strcspn(text, ",");
        char at[24]; /* 20 digits hold every uint64_t */
        struct pl_fault f = {.kind = kinds[i].kind, .count = 1};
        if (strncmp(text, kinds[i].prefix, prefix) != 0) continue;
        if (digits - prefix >= sizeof at) return false;
        memcpy(at, text + prefix, digits - prefix);
        at[digits - prefix] = 0;
        if (!parse_count(at, &f.at)) return false;
        if (text[digits] && !parse_repeat(text + digits + 1, &f.count)) return false;
        *out = f;
        return true;
    }
    return false;
}
