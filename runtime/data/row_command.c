#include "runtime/data/row_command.h"

#include "runtime/data/csv.h"
#include "runtime/data/unpack.h"

#include <string.h>

static const char *values_of(const struct pl_row_source *src) {
    static const char *const values[] = {
        [PL_SOURCE_LINES] = "map(json.loads, sys.stdin)",
        [PL_SOURCE_LIST] = "json.load(sys.stdin)",
        /* a string has no raw line feed, so that these braces are the ends of two objects */
        [PL_SOURCE_OBJECTS] =
            "json.loads('[' + re.sub(r'}\\s*\\n\\s*{', '},{', sys.stdin.read()) + ']')",
        [PL_SOURCE_TABLE] = "csv.DictReader(sys.stdin)",
        [PL_SOURCE_PARQUET] = "pyarrow.parquet.read_table('FILE').to_pylist()",
    };
    const bool tabs = src->kind == PL_SOURCE_TABLE &&
                      pl_csv_separator(src->path, pl_unpacked_length(src->path)) == '\t';
    return tabs ? "csv.DictReader(sys.stdin, dialect='excel-tab')" : values[src->kind];
}

void pl_row_command(const struct pl_row_source *src, const char *loops, const char *row,
                    struct pl_text *out) {
    static const char *const modules[] = {"ast.", "csv.", "re.", "pyarrow.parquet."};
    const size_t n = pl_unpacked_length(src->path);
    struct pl_text code = {0};
    const bool packed = src->path[n], zstd = packed && strcmp(src->path + n, ".gz") != 0;
    const size_t at = strcspn(loops, "@");
    if (packed) pl_text_addf(out, "%s -dc 'FILE' | ", zstd ? "zstd" : "gzip");
    pl_text_addf(&code, "[print(json.dumps(%s)) %.*s", row, (int)at, loops);
    if (loops[at]) pl_text_addf(&code, "%s%s", values_of(src), loops + at + 1);
    pl_text_add(out, "python3 -c \"import json, sys");
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strstr(pl_text_str(&code), modules[i]))
            pl_text_addf(out, ", %.*s", (int)strlen(modules[i]) - 1, modules[i]);
    pl_text_addf(out, "; %s]\"", pl_text_str(&code));
    pl_text_finish(&code);
    if (!packed && src->kind != PL_SOURCE_PARQUET) pl_text_add(out, " <'FILE'");
    pl_text_add(out, " >rows.jsonl");
}
