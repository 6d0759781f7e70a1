/* json_weight.c - see json_weight.h. */
#include "estimator/base/json_weight.h"

uint64_t pl_json_weight(const char *text, uint64_t n) {
    uint64_t weight = 0;
    for (uint64_t i = 0; i < n; i++)
        weight += text[i] == ','                     ? 1u
                  : text[i] == '[' || text[i] == '{' ? PL_JSON_BRACKET_WEIGHT
                                                     : 0u;
    return weight;
}
