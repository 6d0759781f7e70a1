#include "runtime/data/file_kind.h"

#include "estimator/base/text.h"

#include <string.h>

#define PYTHON(imports, call) "python3 -c \"import " imports "; " call "\""
#define TO_ROWS               ".to_json('rows.jsonl', orient='records', lines=True)"
#define PANDAS(reader)        "convert it: " PYTHON("pandas", "pandas." reader "('FILE')" TO_ROWS)
#define UNPACK(line)          "unpack it first: " line
#define ICONV(from)           "convert it: iconv -f " from " -t utf-8 'FILE' >rows.jsonl"
#define AGAIN                 "download the file again"

static const char office[] = "an Excel or other Office file, not text";
static const char utf16[] = "UTF-16 byte order mark: the file is not UTF-8";
static const char utf32[] = "UTF-32 byte order mark: the file is not UTF-8";
static const char pickle[] = "a Python pickle, not text";
static const char hint_pickle[] = "a pickle runs code when it is read; if you trust it: " PYTHON(
    "pandas", "pandas.DataFrame(pandas.read_pickle('FILE'))" TO_ROWS);
static const char utf16_bare[] = "UTF-16 text: the file is not UTF-8";
static const char weights[] = "weights of a model, not data";
static const char hint_weights[] = "`model` names models; `datasets` names data";
static const char answer[] = "the answer of a server, not data: a failed download?";

/* The first row that fits decides. */
static const struct {
    size_t at;
    const char *bytes;
    size_t n;
    const char *what, *hint;
} kinds[] = {
    {30, "[Content_Types].xml", 19, office, PANDAS("read_excel")},
    {30, "xl/", 3, office, PANDAS("read_excel")},
    {30, "docProps/", 9, office, PANDAS("read_excel")},
    {30, "_rels/", 6, office, PANDAS("read_excel")},
    {0, "\xD0\xCF\x11\xE0", 4, office, PANDAS("read_excel")},
    {30, "archive/data.pkl", 16, weights, hint_weights},
    {0, "PK\x03\x04", 4, "the file is a zip archive", UNPACK("unzip 'FILE'")},
    {0, "PK\x05\x06", 4, "the file is an empty zip archive", AGAIN},
    {257, "ustar", 5, "the file is a tar archive", UNPACK("tar -xf 'FILE'")},
    {0, "BZh", 3, "the file is compressed (bzip2)", UNPACK("bzip2 -dk 'FILE'")},
    {0, "\xFD\x37zXZ", 5, "the file is compressed (xz)", UNPACK("xz -dk 'FILE'")},
    {0, "\x5D\0\0", 3, "the file is compressed (lzma)", UNPACK("xz -dk --format=lzma 'FILE'")},
    {0, "\x04\x22\x4D\x18", 4, "the file is compressed (lz4)", UNPACK("lz4 -d 'FILE'")},
    {0, "\x1F\x9D", 2, "the file is compressed (compress)", UNPACK("gzip -dc 'FILE' >rows.jsonl")},
    {0, "7z\xBC\xAF\x27\x1C", 6, "the file is a 7-zip archive", UNPACK("7z x 'FILE'")},
    {0, "Rar!\x1A\x07", 6, "the file is a RAR archive", UNPACK("unrar x 'FILE'")},
    {0, "PAR1", 4, "a Parquet file inside a compressed file",
     UNPACK("gzip -dc 'FILE' >rows.parquet")},
    {0, "PARE", 4, "a Parquet file that is encrypted", "write it again without encryption"},
    {0, "ARROW1", 6, "an Arrow file, not JSON", PANDAS("read_feather")},
    {0, "FEA1", 4, "a Feather file, not JSON", PANDAS("read_feather")},
    {0, "\xFF\xFF\xFF\xFF", 4, "an Arrow stream, not JSON",
     "convert it: " PYTHON("datasets", "datasets.Dataset.from_file('FILE').to_json('rows.jsonl')")},
    {0, "ORC", 3, "an ORC file, not JSON", PANDAS("read_orc")},
    {0, "Obj\x01", 4, "an Avro file, not JSON",
     "convert it: " PYTHON("fastavro, pandas",
                           "pandas.DataFrame(fastavro.reader(open('FILE', 'rb')))" TO_ROWS)},
    {0, "SQLite format 3", 16, "an SQLite database, not text",
     "convert it: " PYTHON(
         "sqlite3, pandas",
         "pandas.read_sql('select * from TABLE', sqlite3.connect('FILE'))" TO_ROWS)},
    {0, "\x89HDF", 4, "an HDF5 file, not text", PANDAS("read_hdf")},
    {0, "\x93NUMPY", 6, "a NumPy file, not text",
     "write it as JSON Lines: rows of `input_ids`, or of `text`"},
    {0, "\x80\x02", 2, pickle, hint_pickle},
    {0, "\x80\x03", 2, pickle, hint_pickle},
    {0, "\x80\x04", 2, pickle, hint_pickle},
    {0, "\x80\x05", 2, pickle, hint_pickle},
    {0, "%PDF-", 5, "a PDF file, not JSON", "write its text as JSON Lines: {\"text\": ...}"},
    {0, "GGUF", 4, "a model (GGUF), not data", hint_weights},
    {6, "\0\0{\"", 4, weights, hint_weights}, /* safetensors: the length of the header, 8 bytes */
    {8, "DUCK", 4, "a DuckDB database, not text",
     "convert it: duckdb 'FILE' \"copy TABLE to 'rows.jsonl' (format json)\""},
    {0, "\xFF\xFE\x00\x00", 4, utf32, ICONV("utf-32")},
    {0, "\x00\x00\xFE\xFF", 4, utf32, ICONV("utf-32")},
    {0, "\xFF\xFE", 2, utf16, ICONV("utf-16")},
    {0, "\xFE\xFF", 2, utf16, ICONV("utf-16")},
    {0, "{\0", 2, utf16_bare, ICONV("utf-16le")},
    {0, "[\0", 2, utf16_bare, ICONV("utf-16le")},
    {0, "\0{", 2, utf16_bare, ICONV("utf-16be")},
    {0, "\0[", 2, utf16_bare, ICONV("utf-16be")},
    {0, "<", 1, "looks like HTML or XML, not JSON: a failed download?", AGAIN},
    {0, "version https://git-lfs", 23, "a Git LFS pointer, not the data",
     "fetch the content with `git lfs pull`"},
    {0, "404: Not Found", 14, answer, AGAIN},
    {0, "Entry not found", 15, answer, AGAIN},
    {0, "Repository not found", 20, answer, AGAIN},
    {0, "Access to dataset ", 18, answer,
     "ask for access on its page, and download the file again"},
    {0, "Invalid username or password", 28, answer, AGAIN},
};

void pl_file_hint(struct pl_diag *d, const char *hint, const char *path) {
    static const char name[] = "'FILE'";
    struct pl_text text = {0};
    const bool plain = strlen(path) < 128 && !strpbrk(path, "'\"\\$`");
    for (const char *at; plain && (at = strstr(hint, name)); hint = at + sizeof name - 1)
        pl_text_addf(&text, "%.*s'%s'", (int)(at - hint), hint, path);
    pl_diag_hint(d, "%s%s", pl_text_str(&text), hint);
    pl_text_finish(&text);
}

pl_err pl_file_kind_check(const char *path, const char *bytes, size_t n, struct pl_diag *d) {
    size_t skip = 0; /* pages of servers often start with empty lines */
    while (skip < n && bytes[skip] && strchr(" \t\r\n", bytes[skip]))
        skip++;
    if (skip == n || bytes[skip] != '<') skip = 0;
    bytes += skip;
    n -= skip;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t at = kinds[i].at;
        if (n < at + kinds[i].n || memcmp(bytes + at, kinds[i].bytes, kinds[i].n) != 0) continue;
        pl_err err = pl_diag_at(d, PL_ERR_DATA_SYNTAX, path, 1, 1, "%s", kinds[i].what);
        pl_file_hint(d, kinds[i].hint, path);
        return err;
    }
    return PL_ERR_OK;
}
