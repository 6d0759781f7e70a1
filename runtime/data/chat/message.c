/* message.c - roles by name, and dates. */
#include "runtime/data/chat/message.h"

#include <time.h>

const char *pl_chat_role_name(enum pl_chat_role role) {
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

bool pl_chat_date_parse(const char *text, struct pl_chat_date *out) {
    static const char form[] = "dddd-dd-dd";
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int v[3] = {0, 0, 0}, part = 0;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        if (form[i] == '-') {
            if (text[i] != '-') return false;
            part++;
        } else {
            if (text[i] < '0' || text[i] > '9') return false;
            v[part] = v[part] * 10 + (text[i] - '0');
        }
    }
    if (text[sizeof form - 1] || v[0] < 1 || v[1] < 1 || v[1] > 12) return false;
    const bool leap = (v[0] % 4 == 0 && v[0] % 100 != 0) || v[0] % 400 == 0;
    if (v[2] < 1 || v[2] > days[v[1] - 1] + (v[1] == 2 && leap)) return false;
    *out = (struct pl_chat_date){v[0], v[1], v[2]};
    return true;
}

struct pl_chat_date pl_chat_today(void) {
    time_t now = time(NULL);
    struct tm tm;
    if (!localtime_r(&now, &tm)) return (struct pl_chat_date){1970, 1, 1};
    return (struct pl_chat_date){tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday};
}
